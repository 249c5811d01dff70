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
from sasr.evidence.features import RandomFeatures
from sasr.experience.retained import OUTCOMES

ROWS = 32
"""States in a block: episodes of a few hundred steps leave about that many as evidence."""


class LinearCountsOnDevice(LinearCounts):
    """Linear counts of all seeds at once."""

    features: RandomFeatures
    compilable = ("project",)

    def raw(self, states: Tensor) -> Tensor:
        """z(s)·Z for both outcomes, (P, B, 2)."""
        return self.project(self.features.angles(states))

    def project(self, angle: Tensor) -> Tensor:
        """z·Z for both outcomes, (P, B, 2), from the angles of z."""
        z_PBM = self.features.waves(angle, self.features.phase[:, None, :]).double()
        if torch.compiler.is_compiling():
            # As sums, which a compiler joins with the cosines: features are never written to memory.
            return torch.stack([(z_PBM * self.total[:, x, None]).sum(-1) for x in OUTCOMES], dim=-1).float()
        return (z_PBM @ self.total.transpose(1, 2)).float()

    def add_first(self, which: Tensor, count: Tensor, states: Tensor) -> None:
        """Count the first `count` (1,) of states (1, n, k) towards `which` (1,), 2·seed + outcome.

        The same as `add`, with everything in tensors: nothing depends on a number that Python would have to read.
        """
        used = torch.arange(states.shape[1], device=states.device) < count
        z_1DM = self.features.of_members(which // 2, states).double() * used[:, None]
        self.total.flatten(0, 1).index_add_(0, which, z_1DM.sum(1))
        self.size.flatten().index_add_(0, which, count)


class EvidenceInBlocks(Evidence):
    """Counts states in blocks of `ROWS`, each by one call of `count_block`, which may be a captured graph."""

    estimator: LinearCountsOnDevice

    def __init__(self, *parts: Any, count_block: Callable[[Tensor, Tensor], None], **options: Any) -> None:
        """Take what `Evidence` takes.

        Args:
            parts: As for `Evidence`.
            count_block: This object's own `count_block`, or a captured graph of it: one launch and not twenty.
            options: As for `Evidence`.
        """
        super().__init__(*parts, **options)
        self.call_count_block = count_block

    def count(self, member: int, outcome: int, states: Tensor) -> None:
        """Add states (n, k), as raw as they came, to the sums."""
        for chunk in torch.split(states, ROWS):
            rows = chunk.new_zeros(ROWS, chunk.shape[1])
            rows[: len(chunk)] = chunk
            self.call_count_block(rows, torch.tensor([2 * member + outcome, len(chunk)]))

    def count_block(self, rows: Tensor, place: Tensor) -> None:
        """Count some of the first rows (ROWS, k): `place` (2,) is 2·seed + outcome, and how many; of fixed shapes."""
        rows, (which, count) = rows.to(self.h.device), torch.split(place.to(self.h.device), 1)
        mapped = self.normaliser.of_members(which // 2, rows[None])
        self.estimator.add_first(which, count, mapped)
