"""The evidence: retained states, the way they are mapped, and the counts over them, kept consistent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor, nn

from sasr.evidence.bandwidth import Bandwidth, LinearSchedule, choose_bandwidth
from sasr.evidence.counts import Counts, ExactCounts, LinearCounts, SquaredCounts
from sasr.evidence.kernels import Kernel
from sasr.evidence.normaliser import StateNormaliser
from sasr.experience.retained import FAILURE, OUTCOMES, SUCCESS, ReplayFlags, Retained, StatePool
from sasr.experience.types import sent

Scaling = Literal["sum", "density"]
ROWS = 32
"""States that `Evidence.absorb` takes at once: episodes of a few hundred steps leave about that many as evidence."""
SCHEDULE_STEP = 0.05
"""A scheduled bandwidth that moved by this share makes the sums be rebuilt: about 32 times on the way 0.5 → 0.1."""


class Evidence(nn.Module):
    """Counts of P seeds' states in successes and failures, for states as raw as the environment gave them.

    The sums are rebuilt from the retained states once as many states came (or went) as they were last built from: only
    then the standardisation and the bandwidth are renewed. Growing evidence is thus rebuilt each time it has doubled,
    and the work per state stays constant on average.
    """

    until_rebuild: Tensor  # (P,) int64, how many more states may come or go before the sums are rebuilt
    rebuilds: Tensor  # (P,) int64
    observed: Tensor  # (P,) float32, N on the device, for density scaling
    compilable = ("finish",)

    def __init__(
        self,
        store: StatePool | ReplayFlags,
        normaliser: StateNormaliser,
        counts: Counts,
        kernel: Kernel,
        bandwidth: Bandwidth,
        *,
        scaling: Scaling = "sum",
        burn_in: int = 0,
        background: float = 0.0,
    ) -> None:
        super().__init__()
        self.store, self.normaliser, self.estimator = store, normaliser, counts
        self.kernel, self.bandwidth = kernel, bandwidth
        self.scaling, self.burn_in, self.background = scaling, burn_in, background
        members = len(counts.size)
        self.register_buffer("until_rebuild", torch.ones(members, dtype=torch.int64))
        self.register_buffer("rebuilds", torch.zeros(members, dtype=torch.int64))
        self.register_buffer("observed", torch.zeros(members, device=counts.size.device))

    @property
    def h(self) -> Tensor:
        """The bandwidths in force, (P,)."""
        if isinstance(self.estimator, ExactCounts):
            return self.estimator.bandwidth
        return cast(LinearCounts | SquaredCounts, self.estimator).features.bandwidth

    def observe(self, states: Tensor, valid: Tensor | None = None) -> None:
        """Take states (P, n, k) into the statistics, leaving out those that are not valid (P, n)."""
        self.normaliser.observe(states, valid)
        if self.scaling == "density":
            self.observed.copy_(self.normaliser.count)

    def add(
        self,
        member: int,
        outcome: int,
        items: Tensor,
        *,
        absorb: Callable[[Tensor, Tensor], None] | None = None,
    ) -> None:
        """Keep what `items` (n, …) stand for as evidence of an outcome.

        `absorb` is this object's method or a captured graph of it: a graph is one launch and not twenty.
        """
        states = cast(Retained, self.store).append(member, outcome, items)
        self.until_rebuild[member] -= len(states)
        if self._is_due(member):
            self.rebuild(member)
        elif absorb and self._absorbs(states):
            for chunk in torch.split(states, ROWS):
                rows = chunk.new_zeros(ROWS, chunk.shape[1])
                rows[: len(chunk)] = chunk
                absorb(rows, torch.tensor([2 * member + outcome, len(chunk)]))
        else:
            self._count(member, outcome, states)

    def _absorbs(self, states: Tensor) -> bool:
        return isinstance(self.estimator, LinearCounts) and states.device.type == "cpu"

    def _count(self, member: int, outcome: int, states: Tensor) -> None:
        self.estimator.add(member, outcome, self.normaliser.of_member(member, sent(states, self.h.device)))

    def absorb(self, rows: Tensor, place: Tensor) -> None:
        """Count some of the first rows (ROWS, k): `place` (2,) is 2·member + outcome, and how many; of fixed shapes."""
        rows, (which, count) = rows.to(self.h.device), torch.split(place.to(self.h.device), 1)
        mapped = self.normaliser.of_members(which // 2, rows[None])
        cast(LinearCounts, self.estimator).add_first(which, count, mapped)

    def release(self, member: int, slot: int) -> None:
        """Forget a replay slot that is about to be overwritten."""
        released = cast(ReplayFlags, self.store).release(member, slot)
        if released is not None:
            outcome, state = released
            self.until_rebuild[member] -= 1
            self.estimator.remove(member, outcome, self.normaliser.of_member(member, state))

    def forget(self) -> None:
        """Forget all states that were marked in a replay buffer; statistics of states stay."""
        cast(ReplayFlags, self.store).flags.zero_()
        for member in range(len(self.until_rebuild)):
            self.estimator.clear(member)
        self.until_rebuild.fill_(1)

    def rebuild(self, member: int) -> None:
        """Renew one seed's standardisation and bandwidth and sum its retained states anew."""
        store = cast(Retained, self.store)
        self.normaliser.freeze(member)
        stored = [sent(store.select(member, outcome), self.h.device) for outcome in OUTCOMES]
        mapped = [self.normaliser.of_member(member, states) for states in stored]
        observed = float(self.normaliser.count[member])
        self.h[member] = choose_bandwidth(self.bandwidth, torch.cat(mapped), self.kernel, observed)
        self.estimator.clear(member)
        for outcome, states in zip(OUTCOMES, mapped, strict=True):
            self.estimator.add(member, outcome, states)
        self.until_rebuild[member] = sum(len(states) for states in mapped)
        self.rebuilds[member] += 1

    def raw(self, states: Tensor) -> Tensor:
        """Estimates (P, B, 2) of states (P, B, k) before clamping."""
        return self.estimator.raw(self.normaliser(states))

    def counts(self, states: Tensor) -> Tensor:
        """Counts Ñ_S and Ñ_F, (P, B, 2), of states (P, B, k)."""
        return self.finish(self.raw(states))

    def finish(self, raw: Tensor) -> Tensor:
        """Counts (P, B, 2) from estimates: never negative, nothing before the burn-in, scaled, plus the prior."""
        total = raw.clamp(min=0.0) * (self.estimator.size[:, None, :] > self.burn_in)
        if self.scaling == "density":
            # Paper, equation for Ñ_X: N/|D_X| · Σ K, with N all states observed so far.
            total = total * (self.observed[:, None, None] / self.estimator.size.clamp(min=1)[:, None, :])
        if self.background:
            total = total + self.background * self.average[:, None]
        return total

    @property
    def average(self) -> Tensor:
        """The shares (P, 2) of successes and failures among the retained states; 0 until one succeeded."""
        size = self.estimator.size
        share = size / size.sum(-1, keepdim=True).clamp(min=1)
        return share * (size[..., SUCCESS, None] > 0)

    @property
    def failure_share(self) -> Tensor:
        """The share of each seed's retained states that are of failures, (P, 1); 1 while there are none at all."""
        return (self.estimator.size[:, FAILURE:] + 1.0) / (self.estimator.size.sum(1, keepdim=True) + 1.0)

    def _is_due(self, member: int) -> bool:
        if isinstance(self.bandwidth, LinearSchedule):
            wanted = self.bandwidth.at(float(self.normaliser.count[member]))
            if abs(wanted / float(self.h[member]) - 1.0) > SCHEDULE_STEP:
                return True
        return int(self.until_rebuild[member]) <= 0
