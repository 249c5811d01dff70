"""The evidence: retained states, the way they are mapped, and the counts over them, kept consistent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from sasr.evidence.bandwidth import Bandwidth, LinearSchedule, choose_bandwidth
from sasr.evidence.counts import CHUNK, Counts
from sasr.evidence.features import StateNormaliser
from sasr.evidence.kernels import Kernel
from sasr.experience.retained import FAILURE, OUTCOMES, SUCCESS, Retained
from sasr.experience.types import to_device

Scaling = Literal["sum", "density"]
SCHEDULE_STEP = 0.05
"""A scheduled bandwidth that moved by this share is renewed: about 32 times on the way 0.5 → 0.1."""


class Evidence(nn.Module):
    """Counts of P seeds' states in successes and failures, for states as raw as the environment gave them.

    The sums are rebuilt from the retained states once as many states came (or went) as they were last built
    from: only then the standardisation and the bandwidth are renewed. Growing evidence is thus rebuilt each time
    it has doubled, and the work per state stays constant on average.
    """

    until_rebuild: Tensor  # (P,) int64, how many more states may come or go before the sums are rebuilt
    rebuilds: Tensor  # (P,) int64
    observed: Tensor  # (P,) float32, N on the device, for density scaling
    compilable: tuple[str, ...] = ("finish",)

    def __init__(
        self,
        store: Retained,
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
        self.store = store
        self.normaliser, self.estimator = normaliser, counts
        self.kernel, self.bandwidth = kernel, bandwidth
        self.scaling, self.burn_in = scaling, burn_in
        self.background = background
        members = len(counts.size)
        self.register_buffer("until_rebuild", torch.ones(members, dtype=torch.int64))
        self.register_buffer("rebuilds", torch.zeros(members, dtype=torch.int64))
        self.register_buffer("observed", torch.zeros(members, device=counts.size.device))

    @property
    def h(self) -> Tensor:
        """The bandwidths in force, (P,)."""
        return self.estimator.h

    # -------------------------------------------------- from states to sums

    def observe(self, states: Tensor, valid: Tensor | None = None) -> None:
        """Take states (P, n, k) into the statistics, leaving out those that are not valid (P, n)."""
        self.normaliser.observe(states, valid)
        if self.scaling == "density":
            self.observed.copy_(self.normaliser.count)

    def add(self, member: int, outcome: int, items: Tensor) -> None:
        """Keep what `items` (n, …) stand for as evidence of an outcome."""
        states = self.store.append(member, outcome, items)
        self.until_rebuild[member].sub_(len(states))
        if self._is_due(member):
            self.rebuild(member)
        else:
            self.count(member, outcome, states)

    def count(self, member: int, outcome: int, states: Tensor) -> None:
        """Add states (n, k), as raw as they came, to the sums."""
        mapped = self.normaliser.of_member(member, to_device(states, self.h.device))
        self.estimator.add(member, outcome, mapped)

    def flush(self, count_block: Callable[[Tensor, Tensor], None]) -> None:
        """Count what `add` may have put off: here nothing, on an accelerator the states of one step together."""

    def rebuild(self, member: int) -> None:
        """Renew one seed's standardisation and bandwidth and sum its retained states anew."""
        self.normaliser.freeze(member)
        kept = [to_device(self.store.select(member, outcome), self.h.device) for outcome in OUTCOMES]

        def bandwidth() -> float:
            mapped = self.normaliser.of_member(member, torch.cat(kept))
            return choose_bandwidth(self.bandwidth, mapped, self.kernel, float(self.normaliser.count[member]))

        self.estimator.renew(member, bandwidth)
        self.estimator.clear(member)
        for outcome in OUTCOMES:
            for states in torch.split(kept[outcome], CHUNK):  # images take much more memory standardised than as bytes
                self.estimator.add(member, outcome, self.normaliser.of_member(member, states))
        self.until_rebuild[member] = sum(len(states) for states in kept)
        self.rebuilds[member] += 1

    def _is_due(self, member: int) -> bool:
        if isinstance(self.bandwidth, LinearSchedule):
            wanted = self.bandwidth.at(float(self.normaliser.count[member]))
            if abs(wanted / float(self.h[member]) - 1.0) > SCHEDULE_STEP:
                return True
        return int(self.until_rebuild[member]) <= 0

    # -------------------------------------------------- from sums to counts

    def counts(self, states: Tensor) -> Tensor:
        """Counts Ñ_S and Ñ_F, (P, B, 2), of states (P, B, k)."""
        return self.finish(self.raw(states))

    def raw(self, states: Tensor) -> Tensor:
        """Estimates (P, B, 2) of states (P, B, k) before clamping."""
        return self.estimator.raw(self.normaliser(states))

    def finish(self, raw: Tensor) -> Tensor:
        """Counts (P, B, 2) from estimates: never negative, 0 before the burn-in, scaled, plus the prior."""
        size = self.estimator.size
        total = raw.clamp(min=0.0) * (size[:, None, :] > self.burn_in)
        if self.scaling == "density":
            # Paper, equation for Ñ_X: N/|D_X| · Σ K, with N all states observed so far.
            total = total * (self.observed[:, None, None] / size.clamp(min=1)[:, None, :])
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
        """The share of failures among each seed's retained states, (P, 1); 1 while there are none at all."""
        size = self.estimator.size
        return (size[:, FAILURE:] + 1.0) / (size.sum(1, keepdim=True) + 1.0)
