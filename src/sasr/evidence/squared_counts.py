"""The released code's estimator: the sum of squared products of random features."""

from __future__ import annotations

import torch
from torch import Tensor

from sasr.evidence.counts import Counts
from sasr.evidence.features import RandomFeatures, full_float32
from sasr.experience.retained import OUTCOMES


class SquaredCounts(Counts):
    """Σⱼ (z(s)·z(sⱼ))² = z(s)ᵀ C z(s) from an M × M matrix C = Σⱼ z(sⱼ) z(sⱼ)ᵀ per seed and outcome.

    The square of a kernel estimate is never negative, but far states still add 1/M each: D/M in all.
    """

    matrix: Tensor  # (P, 2, M, M): C; or, while `direct`, the features of the stored states as its first D rows
    direct: Tensor  # (P, 2) bool

    def __init__(self, features: RandomFeatures) -> None:
        members, device = len(features.bandwidth), features.bandwidth.device
        M = features.count
        super().__init__(members, device)
        self.features = features
        self.register_buffer("matrix", torch.zeros((members, 2, M, M), device=device))
        # With D < M rows, D·M products per state beat M². On an accelerator a shape that never changes matters more:
        # a captured graph can't follow D.
        on_cpu = device.type == "cpu"
        self.register_buffer("direct", torch.full((members, 2), on_cpu, dtype=torch.bool))

    @property
    def h(self) -> Tensor:
        """The features' bandwidths, (P,)."""
        return self.features.bandwidth

    def raw(self, states: Tensor) -> Tensor:
        """z(s)ᵀ C z(s) for both outcomes, (P, B, 2)."""
        z_PBM = self.features(states)
        with full_float32(), torch.autocast(states.device.type, enabled=False):
            if states.device.type == "cpu":
                return torch.stack([self._of_member(p, z_BM) for p, z_BM in enumerate(z_PBM)])
            return torch.stack([((z_PBM @ self.matrix[:, x]) * z_PBM).sum(-1) for x in OUTCOMES], dim=-1)

    def _of_member(self, member: int, z_BM: Tensor) -> Tensor:
        sums = []
        for outcome in OUTCOMES:
            matrix = self.matrix[member, outcome]
            if self.direct[member, outcome]:
                z_DM = matrix[: int(self.size[member, outcome])]
                sums.append((z_BM @ z_DM.T).square_().sum(-1))
            else:
                sums.append(quadratic_form(z_BM, matrix))
        return torch.stack(sums, dim=-1)

    def _clear(self, member: int) -> None:
        self.matrix[member] = 0.0
        self.direct[member] = self.matrix.device.type == "cpu"

    def _add_chunk(self, member: int, outcome: int, states: Tensor, sign: int) -> None:
        z_DM = self.features.of_member(member, states)
        stored = int(self.size[member, outcome])
        matrix = self.matrix[member, outcome]
        if self.direct[member, outcome]:
            if sign > 0 and stored + len(z_DM) < self.features.count:
                matrix[stored : stored + len(z_DM)] = z_DM
                return
            rows = matrix[:stored].clone()
            with full_float32():
                torch.mm(rows.T, rows, out=matrix)
            self.direct[member, outcome] = False
        with full_float32():
            matrix.addmm_(z_DM.T, z_DM, alpha=float(sign))


def quadratic_form(z_BM: Tensor, matrix: Tensor, blocks: int = 4) -> Tensor:
    """Z C zᵀ row by row, from the blocks of a symmetric C on and above its diagonal: 10 of 16 for four."""
    step = -(-len(matrix) // blocks)
    total = torch.zeros(len(z_BM), device=z_BM.device)
    for start in range(0, len(matrix), step):
        rows, end = z_BM[:, start : start + step], start + step
        product = (rows @ matrix[start:end, start:]).mul_(z_BM[:, start:])
        # What lies right of the diagonal block stands for its mirror image below it too.
        total += product[:, :step].sum(-1) + 2.0 * product[:, step:].sum(-1)
    return total
