from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sasr.shaping.rivals.explo import PRIMES, Explo
from tests.conftest import make_batch, make_step
from tests.shaping.rivals.novelty import bind


def play(shaper: Explo, states: torch.Tensor) -> None:
    """Reach states (P, T, k) one after another."""
    for t in range(states.shape[1]):
        shaper.observe(make_step(states[:, t : t + 1]))


def codes(shaper: Explo, states: torch.Tensor) -> list[tuple[bool, ...]]:
    return [tuple(code) for code in shaper.bits(shaper.states(states))[0].tolist()]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    bits=st.integers(1, 70),
    standardise=st.booleans(),
    steps=st.integers(1, 60),
    envs=st.integers(1, 3),
)
def test_counts_are_those_of_a_dictionary(seed: int, bits: int, standardise: bool, steps: int, envs: int) -> None:
    primes = (100_003, 100_019, 100_043)
    shaper = bind(Explo(bits=bits, standardise=standardise, first_states=25, primes=primes), 2, envs=envs)
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(steps, 1, envs, 2, generator=generator).round(decimals=1)
    for obs in states:
        shaper.observe(make_step(obs))
    rows = states.view(1, -1, 2)
    if not shaper.frozen:
        assert steps * envs < 25
        assert (shaper.shape(make_batch(rows)) == 0).all()
        return
    own = codes(shaper, rows)
    expected = Counter(own)
    assert shaper.counts(shaper.states(rows))[0].tolist() == [expected[code] for code in own]
    assert shaper.codes.tolist() == [len(expected)]


def test_a_hundred_thousand_states_are_counted_exactly() -> None:
    shaper = bind(Explo(bits=32, standardise=False), 4)
    states = torch.randn(1, 100_000, 4)
    shaper.table.scatter_add_(2, keys := shaper.keys(states), torch.ones_like(keys, dtype=torch.int32))
    own = codes(shaper, states)
    expected = Counter(own)
    exact = torch.tensor([expected[code] for code in own])
    counted = shaper.counts(states)[0]
    assert (counted >= exact).all()
    assert float((counted == exact).float().mean()) > 0.999


def test_a_code_seen_n_times_pays_the_weight_over_root_n() -> None:
    shaper = bind(Explo(weight=0.3, standardise=False), 2)
    here = torch.tensor([[[0.4, -0.7]]])
    for n in range(1, 30):
        shaper.observe(make_step(here))
        assert float(shaper.shape(make_batch(here))) == pytest.approx(0.3 / n**0.5, abs=1e-7)
    elsewhere = torch.tensor([[[-0.4, 0.7]]])
    assert float(shaper.shape(make_batch(elsewhere))) == pytest.approx(0.3)


def test_sampling_counts_nothing() -> None:
    shaper = bind(Explo(standardise=False, primes=(101, 103)), 3)
    states = torch.randn(1, 50, 3)
    play(shaper, states)
    before = shaper.table.clone()
    for _ in range(1000):
        shaper.shape(make_batch(states))
    shaper.update(make_batch(states))
    assert torch.equal(shaper.table, before)


def test_raw_states_hash_by_direction_alone_and_the_defaults_do_not() -> None:
    states = torch.randn(1, 200, 4)
    raw = bind(Explo(standardise=False, offset=0.0), 4)
    assert codes(raw, states) == codes(raw, 3.0 * states)
    ours = bind(Explo(first_states=50), 4)
    play(ours, states[:, :50])
    assert ours.frozen
    same = [a == b for a, b in zip(codes(ours, states), codes(ours, 3.0 * states), strict=True)]
    assert sum(same) < 20


def test_features_of_different_size_count_alike_once_standardised() -> None:
    """MountainCar's velocity is 25 times smaller than its position: raw codes hardly see it."""
    place, speed = torch.rand(2, 400) * 2.0 - 1.0
    states = torch.stack([place, 0.04 * speed], dim=-1)[None]
    slower = torch.stack([place, -0.04 * speed], dim=-1)[None]
    share = {}
    for standardise in (False, True):
        shaper = bind(Explo(standardise=standardise, first_states=100, offset=0.0), 2)
        play(shaper, states[:, :100])
        pairs = zip(codes(shaper, states), codes(shaper, slower), strict=True)
        share[standardise] = sum(a == b for a, b in pairs) / 400
    assert share[False] > 2.0 * share[True]


def test_a_code_never_changes_once_the_first_states_are_in() -> None:
    shaper = bind(Explo(first_states=30), 3)
    states = torch.randn(1, 30, 3)
    play(shaper, states)
    before = codes(shaper, states)
    play(shaper, 10.0 + 5.0 * torch.randn(1, 100, 3))
    assert codes(shaper, states) == before
    # The first states themselves were counted when the standardisation was settled.
    assert int(shaper.counts(shaper.states(states)).min()) >= 1
    assert shaper.held.shape[1] == 0


def test_a_state_has_the_same_code_alone_and_in_a_batch() -> None:
    shaper = bind(Explo(first_states=10, bits=256), 50)
    states = torch.randn(1, 300, 50)
    play(shaper, states[:, :10])
    assert codes(shaper, states) == [codes(shaper, states[:, i : i + 1])[0] for i in range(300)]


def test_keys_of_wide_codes_are_exact() -> None:
    shaper = bind(Explo(bits=300, standardise=False), 5)
    states = torch.randn(1, 20, 5)
    for place, code in enumerate(codes(shaper, states)):
        number = sum(2**bit for bit, is_set in enumerate(code) if is_set)
        assert shaper.keys(states)[0, :, place].tolist() == [number % prime for prime in PRIMES]
