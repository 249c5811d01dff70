"""Evidence on an accelerator: the same sums in batched products and in blocks of one shape, which a CUDA graph repeats.

Chosen once, when SASR is bound to a host there. `counts.py` and `evidence.py` say what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sasr.evidence.counts import LinearCounts
from sasr.evidence.evidence import Evidence
from sasr.evidence.features import RandomFeatures, full_float32
from sasr.experience.retained import OUTCOMES

ROWS = 32
"""States in a block: episodes of a few hundred steps leave about that many as evidence."""
NOBODY = -1


class LinearCountsOnDevice(LinearCounts):
    """Linear counts of all seeds at once."""

    features: RandomFeatures

    def raw(self, states: Tensor) -> Tensor:
        """z(s)·Z for both outcomes, (P, B, 2)."""
        angle = self.features.angles(states)
        z_PBM = self.features.cosines(angle, self.features.phase[:, None]).double()
        if torch.compiler.is_compiling():
            # As sums, which a compiler joins with the cosines: features are never written to memory.
            return torch.stack([(z_PBM * self.total[:, x, None]).sum(-1) for x in OUTCOMES], dim=-1).float()
        return (z_PBM @ self.total.transpose(1, 2)).float()

    def add_rows(self, belongs: Tensor, states: Tensor) -> None:
        """Count states (P, n, k) of which `belongs` (P, 2, n) says whose they are, and of which outcome.

        The same as `add`, with everything in tensors: nothing depends on a number that Python would have to read.
        """
        z_PnM = self.features(states).double()
        self.total.add_(belongs.double() @ z_PnM)
        self.size.add_(belongs.sum(-1))


class EvidenceInBlocks(Evidence):
    """Counts states in blocks of `ROWS`, those of all seeds together.

    What `add` was given waits until `flush` is called.
    """

    estimator: LinearCountsOnDevice
    compilable = ("fused_counts", "fused_count_block")

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.waiting: list[tuple[int, int, Tensor]] = []
        """Seed, outcome and states (n, k) that were not counted yet."""

    def count(self, member: int, outcome: int, states: Tensor) -> None:
        """Add states (n, k), as raw as they came, to the sums, with the next `flush`."""
        self.waiting.append((member, outcome, states))

    def flush(self, count_block: Callable[[Tensor, Tensor], None]) -> None:
        """Count the states that wait, each block by one call of `count_block`, which may be a captured graph."""
        if not self.waiting:
            return
        owners = [torch.full((len(states),), 2 * p + outcome) for p, outcome, states in self.waiting]
        states = torch.cat([states for _, _, states in self.waiting])
        self.waiting = []
        for block, owners_of_block in zip(states.split(ROWS), torch.cat(owners).split(ROWS), strict=True):
            rows, which = block.new_zeros(ROWS, block.shape[1]), owners_of_block.new_full((ROWS,), NOBODY)
            rows[: len(block)] = block
            which[: len(block)] = owners_of_block
            count_block(rows, which)

    def counts(self, states: Tensor) -> Tensor:
        """Counts Ñ_S and Ñ_F, (P, B, 2), of states (P, B, k)."""
        with full_float32():
            return self.fused_counts(states)

    def fused_counts(self, states: Tensor) -> Tensor:
        """All tensor work of it in one function, which may be compiled."""
        return self.finish(self.raw(states))

    def rebuild(self, member: int) -> None:
        """Rebuild one seed's sums; those of its states that wait are among the retained ones already."""
        self.waiting = [entry for entry in self.waiting if entry[0] != member]
        super().rebuild(member)

    def count_block(self, rows: Tensor, which: Tensor) -> None:
        """Count rows (ROWS, k) towards `which` (ROWS,), 2·seed + outcome, or `NOBODY`; of fixed shapes."""
        with full_float32():
            self.fused_count_block(rows.to(self.h.device), which.to(self.h.device))

    def fused_count_block(self, rows: Tensor, which: Tensor) -> None:
        """All tensor work of it in one function, which may be compiled."""
        sums = torch.arange(2 * len(self.h), device=which.device)
        belongs = (sums[:, None] == which).view(len(self.h), 2, ROWS)
        # 0 where a row is another seed's: whatever its numbers are, they stay apart.
        mapped = torch.where(belongs.any(1)[..., None], self.normaliser(rows[None]), 0.0)
        self.estimator.add_rows(belongs, mapped)
