from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from sasr.evidence.bandwidth import Bandwidth, LinearSchedule
from sasr.evidence.counts import LinearCounts
from sasr.evidence.evidence import Evidence
from sasr.evidence.exact_counts import ExactCounts
from sasr.evidence.features import RandomFeatures, StateNormaliser
from sasr.evidence.flagged import FlaggedEvidence, ReplayFlags
from sasr.evidence.kernels import Gaussian
from sasr.evidence.on_device import EvidenceInBlocks, LinearCountsOnDevice
from sasr.experience.retained import StatePool
from sasr.experience.types import Host
from sasr.training.fast import can_compile, compile_parts
from tests.conftest import box

K = 3
CPU = torch.device("cpu")


def make(
    members: int = 1,
    *,
    bandwidth: Bandwidth = "dimension",
    standardise: bool = True,
    exact: bool = False,
    **options: Any,
) -> Evidence:
    counts = (
        ExactCounts(Gaussian(), K, members)
        if exact
        else LinearCounts(RandomFeatures(Gaussian(), K, 64, seeds=range(members)))
    )
    normaliser = StateNormaliser(members, K, enabled=standardise, clip=5.0)
    return Evidence(StatePool(K, torch.float32, CPU), normaliser, counts, Gaussian(), bandwidth, **options)


def feed(evidence: Evidence, member: int, outcome: int, states: Tensor) -> None:
    everyone = torch.zeros(len(evidence.h), *states.shape)
    everyone[member] = states
    valid = torch.zeros(everyone.shape[:2], dtype=torch.bool)
    valid[member] = True
    evidence.observe(everyone, valid)
    evidence.add(member, outcome, states)


def test_sums_are_always_those_of_a_fresh_rebuild_with_the_frozen_mapping() -> None:
    evidence, query = make(), torch.randn(1, 9, K)
    generator = torch.Generator().manual_seed(0)
    kept = []
    for round_ in range(40):
        states = torch.randn(5, K, generator=generator) * (1 + round_) + round_
        feed(evidence, 0, 1, states)
        kept.append(states)
        mapped = evidence.normaliser.of_member(0, torch.cat(kept))
        fresh = LinearCounts(cast(RandomFeatures, evidence.estimator.features))
        fresh.add(0, 1, mapped)
        torch.testing.assert_close(evidence.raw(query), fresh.raw(evidence.normaliser(query)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_states_counted_in_blocks_count_as_those_added_one_segment_at_a_time(dtype: torch.dtype) -> None:
    """What an accelerator does, done on a CPU."""
    plain, query = make(3), torch.randn(3, 9, K)
    blocks: list[Tensor] = []

    def count_block(rows: Tensor, which: Tensor) -> None:
        blocks.append(rows)
        in_blocks.count_block(rows, which)

    in_blocks = EvidenceInBlocks(
        StatePool(K, torch.float32, CPU),
        StateNormaliser(3, K, enabled=True, clip=5.0),
        LinearCountsOnDevice(RandomFeatures(Gaussian(), K, 64, seeds=range(3))),
        Gaussian(),
        "dimension",
    )
    generator = torch.Generator().manual_seed(0)
    for round_ in range(30):
        member, outcome, length = round_ % 3, round_ % 2, int(torch.randint(1, 80, (), generator=generator))
        states = (40 * torch.rand(length, K, generator=generator)).to(dtype)
        for evidence in (plain, in_blocks):
            evidence.observe(states.float().expand(3, -1, -1))
            evidence.add(member, outcome, states)
            if round_ % 4 == 0:
                evidence.flush(count_block)
    in_blocks.flush(count_block)
    assert torch.equal(plain.estimator.size, in_blocks.estimator.size)
    assert torch.equal(plain.rebuilds, in_blocks.rebuilds)
    assert {len(rows) for rows in blocks} == {32}
    torch.testing.assert_close(plain.raw(query), in_blocks.raw(query), rtol=1e-5, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(CPU), reason="needs a C++ compiler")
def test_compiled_counts_equal_plain_ones() -> None:
    """What an accelerator compiles, compiled for a CPU."""
    both = []
    for _ in range(2):
        normaliser = StateNormaliser(3, K, enabled=True, clip=5.0)
        estimator = LinearCountsOnDevice(RandomFeatures(Gaussian(), K, 64, seeds=range(3)))
        pool = StatePool(K, torch.float32, CPU)
        parts = (pool, normaliser, estimator, Gaussian(), "dimension")
        both.append(EvidenceInBlocks(*parts))
    compile_parts(both[1:])
    states, query = 40 * torch.rand(3, 20, K), 40 * torch.rand(3, 9, K)
    for evidence in both:
        evidence.observe(states)
        for member, rows in enumerate(states):
            for part in rows.split(4):
                evidence.add(member, member % 2, part)
                evidence.flush(evidence.count_block)
    plain, compiled = both
    assert torch.equal(plain.estimator.size, compiled.estimator.size)
    assert (plain.counts(query) > 0.0).any()
    torch.testing.assert_close(plain.counts(query), compiled.counts(query), rtol=1e-4, atol=1e-3)


def test_linear_estimates_fall_below_zero_and_are_clamped() -> None:
    evidence, query = make(), torch.randn(1, 500, K) * 30.0
    feed(evidence, 0, 0, torch.randn(200, K))
    assert (evidence.raw(query) < 0).any()
    assert (evidence.counts(query) >= 0).all()


def test_rebuilds_come_each_time_the_evidence_has_doubled() -> None:
    evidence, at = make(), []
    for n in range(1, 600):
        before = int(evidence.rebuilds[0])
        feed(evidence, 0, 0, torch.randn(1, K))
        if int(evidence.rebuilds[0]) > before:
            at.append(n)
    assert at == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def test_a_rebuild_of_one_member_leaves_the_others_bit_for_bit() -> None:
    evidence, query = make(members=3), torch.randn(3, 7, K)
    for member in range(3):
        feed(evidence, member, 0, torch.randn(10, K))
    before = evidence.counts(query)
    feed(evidence, 1, 1, torch.randn(500, K) * 9)
    after = evidence.counts(query)
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.equal(before[1], after[1])


def test_scheduled_bandwidth_is_followed_within_five_per_cent() -> None:
    evidence = make(bandwidth=LinearSchedule(0.5, 0.1, 1000), standardise=False)
    for n in range(1, 1001):
        feed(evidence, 0, 0, torch.randn(1, K))
        assert float(evidence.h[0]) == pytest.approx(0.5 - 0.4 * n / 1000, rel=0.06)
    assert int(evidence.rebuilds[0]) < 60


def test_density_scaling_is_the_papers_equation() -> None:
    """Ñ_X = N/|D_X| · Σ K: N states observed, |D_X| of them kept for the outcome."""
    plain, scaled = (make(exact=True, bandwidth=0.8, standardise=False, scaling=s) for s in ("sum", "density"))
    success, failure, query = torch.randn(4, K), torch.randn(12, K), torch.randn(1, 6, K)
    for evidence in (plain, scaled):
        evidence.observe(torch.randn(1, 84, K))
        feed(evidence, 0, 0, success)
        feed(evidence, 0, 1, failure)
    by_hand = torch.stack([100 / len(d) * Gaussian().value(query[0], d, 0.8).sum(1) for d in (success, failure)], dim=1)
    torch.testing.assert_close(scaled.counts(query)[0], by_hand)
    torch.testing.assert_close(scaled.counts(query), plain.counts(query) * torch.tensor([100 / 4, 100 / 12]))


def test_burn_in_hides_an_outcome_until_it_has_more_states() -> None:
    evidence, query = make(exact=True, burn_in=10), torch.zeros(1, 1, K)
    feed(evidence, 0, 0, torch.zeros(11, K))
    feed(evidence, 0, 1, torch.zeros(10, K))
    assert evidence.counts(query).flatten().tolist() == [11.0, 0.0]


class Replay:
    """Slots that hold one state each."""

    def __init__(self, states: Tensor) -> None:
        self.states, self.capacity = states, len(states)

    def read(self, member: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        return self.states[slots], torch.zeros(len(slots), 1)


def flagged(replay: Replay) -> FlaggedEvidence:
    store = ReplayFlags(
        Host(observation_space=box(K), action_space=box(1), replay=replay),
        lambda obs, action: obs,
    )
    counts = LinearCounts(RandomFeatures(Gaussian(), K, 64))
    return FlaggedEvidence(store, StateNormaliser(1, K, enabled=True, clip=5.0), counts, Gaussian(), "dimension")


def test_flagged_slots_count_and_are_forgotten_when_released() -> None:
    replay = Replay(torch.randn(40, K))
    evidence = flagged(replay)
    counts = evidence.estimator
    assert isinstance(counts, LinearCounts)
    evidence.observe(replay.states[None])
    evidence.add(0, 0, torch.tensor([3, 5, 7]))
    evidence.add(0, 1, torch.arange(10, 30))
    assert counts.size.tolist() == [[3, 20]]
    for slot in range(20):
        evidence.release(torch.tensor([[slot]]))
        replay.states[slot] = 99.0
    assert counts.size.tolist() == [[0, 10]]
    query = torch.randn(1, 8, K)
    fresh = LinearCounts(counts.features)
    fresh.add(0, 1, evidence.normaliser.of_member(0, replay.states[20:30]))
    torch.testing.assert_close(evidence.raw(query), fresh.raw(evidence.normaliser(query)), rtol=1e-4, atol=1e-4)


def test_turnover_in_a_full_replay_buffer_still_renews_the_mapping() -> None:
    replay = Replay(torch.zeros(64, K))
    evidence = flagged(replay)
    for step in range(640):
        slot = step % 64
        evidence.release(torch.tensor([[slot]]))
        replay.states[slot] = torch.randn(K) + step
        evidence.observe(replay.states[None, slot : slot + 1])
        evidence.add(0, 1, torch.tensor([slot]))
    assert int(evidence.estimator.size.sum()) == 64
    assert float(evidence.normaliser.centre[0].mean()) > 200.0
