"""Kernel sums without random features: the reference for the estimators, and the paper's "without RFF"."""

from __future__ import annotations

import torch
from torch import Tensor

from sasr.evidence.counts import CHUNK, Counts
from sasr.evidence.kernels import Kernel
from sasr.experience.retained import OUTCOMES, StatePool


class ExactCounts(Counts):
    """Σⱼ K(s − sⱼ) over every stored state, chunk by chunk: O(D) for each query."""

    bandwidth: Tensor  # (P,)
    capturable = False  # it reads as many states as there are

    def __init__(self, kernel: Kernel, k: int, members: int = 1, device: torch.device | None = None) -> None:
        super().__init__(members, device)
        self.kernel = kernel
        self.register_buffer("bandwidth", torch.ones(members, device=device))
        self.pool = StatePool(k, torch.float32, self.size.device)

    @property
    def h(self) -> Tensor:
        """The bandwidths, (P,)."""
        return self.bandwidth

    def raw(self, states: Tensor) -> Tensor:
        """Exact kernel sums for both outcomes, (P, B, 2)."""
        sums = torch.zeros((*states.shape[:2], len(OUTCOMES)), dtype=torch.float64, device=states.device)
        for p, queries in enumerate(states):
            h = float(self.bandwidth[p])
            for outcome in OUTCOMES:
                for stored in torch.split(self.pool.select(p, outcome), CHUNK):
                    sums[p, :, outcome] += self._chunk_sum(queries, stored, h)
        return sums.float()

    def _chunk_sum(self, states: Tensor, stored: Tensor, h: float) -> Tensor:
        # Bounds the largest temporary, states × stored × k for the Cauchy kernel, to some tens of megabytes.
        rows = max(1, 2**23 // max(1, stored.numel()))
        return torch.cat([self.kernel.value(part, stored, h).double().sum(1) for part in torch.split(states, rows)])

    def _add_chunk(self, member: int, outcome: int, states: Tensor, sign: int) -> None:
        if sign < 0:
            raise NotImplementedError("exact counts can't forget single states; use estimator='linear' or 'squared'")
        self.pool.append(member, outcome, states)

    def _clear(self, member: int) -> None:
        self.pool.clear(member)
