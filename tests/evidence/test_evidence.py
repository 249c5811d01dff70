from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from sasr.evidence.bandwidth import Bandwidth, LinearSchedule
from sasr.evidence.counts import ExactCounts, LinearCounts
from sasr.evidence.evidence import Evidence
from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import Gaussian
from sasr.evidence.normaliser import StateNormaliser
from sasr.experience.retained import ReplayFlags, StatePool

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
def test_states_absorbed_in_chunks_count_as_those_added_one_segment_at_a_time(dtype: torch.dtype) -> None:
    one_by_one, in_chunks, query = make(3), make(3), torch.randn(3, 9, K)
    generator = torch.Generator().manual_seed(0)
    absorbed: list[Tensor] = []

    def absorb(rows: Tensor, place: Tensor) -> None:
        absorbed.append(rows)
        in_chunks.absorb(rows, place)

    for round_ in range(30):
        member, outcome, length = round_ % 3, round_ % 2, int(torch.randint(1, 80, (), generator=generator))
        states = (40 * torch.rand(length, K, generator=generator)).to(dtype)
        for evidence in (one_by_one, in_chunks):
            evidence.observe(states.float().expand(3, -1, -1))
        one_by_one.add(member, outcome, states)
        in_chunks.add(member, outcome, states, absorb=absorb)
    assert torch.equal(one_by_one.estimator.size, in_chunks.estimator.size)
    assert torch.equal(one_by_one.rebuilds, in_chunks.rebuilds)
    assert {len(rows) for rows in absorbed} == {32}
    torch.testing.assert_close(one_by_one.raw(query), in_chunks.raw(query), rtol=1e-5, atol=1e-4)


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


def test_flagged_slots_count_and_are_forgotten_when_released() -> None:
    replay = torch.randn(1, 40, K)
    store = ReplayFlags(1, 40, lambda member, slots: replay[member, slots], CPU)
    counts = LinearCounts(RandomFeatures(Gaussian(), K, 64))
    evidence = Evidence(store, StateNormaliser(1, K, enabled=True, clip=5.0), counts, Gaussian(), "dimension")
    evidence.observe(replay)
    evidence.add(0, 0, torch.tensor([3, 5, 7]))
    evidence.add(0, 1, torch.arange(10, 30))
    assert counts.size.tolist() == [[3, 20]]
    for slot in range(20):
        evidence.release(0, slot)
        replay[0, slot] = 99.0
    assert counts.size.tolist() == [[0, 10]]
    query = torch.randn(1, 8, K)
    fresh = LinearCounts(counts.features)
    fresh.add(0, 1, evidence.normaliser.of_member(0, replay[0, 20:30]))
    torch.testing.assert_close(evidence.raw(query), fresh.raw(evidence.normaliser(query)), rtol=1e-4, atol=1e-4)


def test_turnover_in_a_full_replay_buffer_still_renews_the_mapping() -> None:
    replay = torch.zeros(1, 64, K)
    store = ReplayFlags(1, 64, lambda member, slots: replay[member, slots], CPU)
    counts = LinearCounts(RandomFeatures(Gaussian(), K, 64))
    evidence = Evidence(store, StateNormaliser(1, K, enabled=True, clip=5.0), counts, Gaussian(), "dimension")
    for step in range(640):
        slot = step % 64
        evidence.release(0, slot)
        replay[0, slot] = torch.randn(K) + step
        evidence.observe(replay[:, slot : slot + 1])
        evidence.add(0, 1, torch.tensor([slot]))
    assert int(counts.size.sum()) == 64
    assert float(evidence.normaliser.centre[0].mean()) > 200.0
