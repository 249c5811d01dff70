from __future__ import annotations

import copy
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KernelDensity
from torch import Tensor

from sasr.evidence.counts import Counts, LinearCounts
from sasr.evidence.exact_counts import ExactCounts
from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import KERNELS, Gaussian
from sasr.evidence.squared_counts import SquaredCounts

K, M = 3, 24


def make(kind: str, members: int) -> Counts:
    if kind == "exact":
        counts = ExactCounts(Gaussian(), K, members)
        counts.bandwidth.fill_(0.8)
        return counts
    features = RandomFeatures(Gaussian(), K, M, seeds=range(members))
    features.bandwidth.fill_(0.8)
    return LinearCounts(features) if kind == "linear" else SquaredCounts(features)


def brute_force(kind: str, features: RandomFeatures, member: int, states: Tensor, stored: Tensor) -> Tensor:
    """The sum over stored states, one by one, in float64, from the same features."""
    z, z_stored = (features.of_member(member, x).double() for x in (states, stored))
    total = torch.zeros(len(states), dtype=torch.float64)
    for one in z_stored:
        product = (z * one).sum(1)
        total += product if kind == "linear" else product**2
    return total


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["linear", "squared"]),
    members=st.sampled_from([1, 7]),
    adds=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1), st.integers(1, 40)), max_size=8),
    seed=st.integers(0, 2**16),
    reload=st.booleans(),
)
def test_counts_equal_brute_force_sums(
    kind: str, members: int, adds: list[tuple[int, int, int]], seed: int, reload: bool
) -> None:
    """Any number of states, before and after D passes M, in any order of adds, after save and load."""
    generator = torch.Generator().manual_seed(seed)
    counts = make(kind, members)
    kept: dict[tuple[int, int], list[Tensor]] = {(p, x): [] for p in range(members) for x in (0, 1)}
    for member, outcome, n in adds:
        states = torch.randn(n, K, generator=generator)
        counts.add(member % members, outcome, states)
        kept[member % members, outcome].append(states)
    if reload:
        fresh = make(kind, members)
        fresh.load_state_dict(copy.deepcopy(counts.state_dict()))
        counts = fresh
    queries = torch.randn(members, 6, K, generator=generator)
    found = counts.raw(queries)
    assert found.shape == (members, 6, 2)
    for (member, outcome), parts in kept.items():
        stored = torch.cat(parts) if parts else torch.zeros(0, K)
        expected = brute_force(kind, cast(RandomFeatures, counts.features), member, queries[member], stored)
        # The absolute part is for a linear sum whose terms of both signs cancel to nearly 0.
        torch.testing.assert_close(found[member, :, outcome].double(), expected, rtol=1e-5, atol=1e-5)
        assert int(counts.size[member, outcome]) == len(stored)


@pytest.mark.parametrize("kind", ["linear", "squared"])
def test_order_of_adds_does_not_matter(kind: str) -> None:
    states, query = torch.randn(100, K), torch.randn(1, 8, K)
    one, other = make(kind, 1), make(kind, 1)
    one.add(0, 0, states)
    for index in torch.randperm(100).tolist():
        other.add(0, 0, states[index : index + 1])
    torch.testing.assert_close(one.raw(query), other.raw(query), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "squared"])
def test_remove_undoes_add(kind: str) -> None:
    counts, query = make(kind, 1), torch.randn(1, 8, K)
    first, second = torch.randn(2, 40, K)
    counts.add(0, 1, first)
    expected = counts.raw(query)
    counts.add(0, 1, second)
    counts.add(0, 1, second, sign=-1)
    torch.testing.assert_close(counts.raw(query), expected, rtol=1e-4, atol=1e-4)
    assert counts.size.tolist() == [[0, 40]]


@pytest.mark.parametrize("kind", ["linear", "squared"])
def test_a_member_counts_the_same_bit_for_bit_alone_and_in_a_population(kind: str) -> None:
    query = torch.randn(7, 33, K)
    together, alone = make(kind, 7), make(kind, 1)
    for n in (5, 60, 300):
        states = torch.randn(7, n, K)
        alone.add(0, 0, states[0])
        for member in range(7):
            together.add(member, member % 2, states[member])
    assert torch.equal(together.raw(query)[0], alone.raw(query[:1])[0])


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "cauchy"])
def test_exact_counts_equal_plain_kernel_sums(name: str) -> None:
    counts = ExactCounts(KERNELS[name], K, members=2)
    counts.bandwidth.fill_(0.7)
    stored, query = torch.randn(5000, K), torch.randn(2, 10, K)
    counts.add(1, 0, stored[:3000])
    counts.add(1, 0, stored[3000:])
    found = counts.raw(query)
    expected = KERNELS[name].value(query[1].double(), stored.double(), 0.7).sum(1)
    torch.testing.assert_close(found[1, :, 0].double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found[0], torch.zeros(10, 2))
    counts.clear(1)
    assert torch.equal(counts.raw(query), torch.zeros(2, 10, 2))


def test_exact_counts_agree_with_scikit_learn() -> None:
    h, stored, query = 0.6, torch.randn(300, K), torch.randn(1, 20, K)
    counts = ExactCounts(Gaussian(), K)
    counts.bandwidth.fill_(h)
    counts.add(0, 0, stored)
    density = np.exp(KernelDensity(kernel="gaussian", bandwidth=h).fit(stored.numpy()).score_samples(query[0].numpy()))
    ours = counts.raw(query)[0, :, 0].double().numpy() / 300 / np.exp(Gaussian().log_mass(K, h))
    np.testing.assert_allclose(ours, density, rtol=1e-4)


def test_squared_estimate_has_the_floor_of_the_released_code() -> None:
    """Far-away states add 1/M each: D = 20,000 and M = 1000 give 20 ± 1."""
    counts = SquaredCounts(RandomFeatures(Gaussian(), 10, 1000))
    counts.add(0, 1, torch.randn(20_000, 10) * 50.0)
    query = torch.randn(1, 200, 10) * 50.0 + 1000.0
    assert float(counts.raw(query)[..., 1].mean()) == pytest.approx(20.0, abs=1.0)


def test_memory_of_the_sums_does_not_depend_on_the_number_of_states() -> None:
    def size(n: int) -> int:
        counts = make("squared", 1)
        counts.add(0, 0, torch.randn(n, K))
        return sum(buffer.numel() for buffer in counts.buffers())

    assert size(10) == size(10_000)


def test_exact_counts_refuse_to_forget() -> None:
    with pytest.raises(NotImplementedError, match="use estimator='linear'"):
        ExactCounts(Gaussian(), K).add(0, 0, torch.zeros(1, K), sign=-1)
