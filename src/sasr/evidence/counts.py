"""How often a state was visited in successes and in failures, at a cost that does not grow with the visits.

Sums commute, so the estimate over D stored states needs only a sum of features, never the states again:

* linear   Σⱼ z(s)·z(sⱼ)    = z(s)·Z,        Z = Σⱼ z(sⱼ)           the paper's Algorithm 1
* squared  Σⱼ (z(s)·z(sⱼ))² = z(s)ᵀ C z(s),  C = Σⱼ z(sⱼ) z(sⱼ)ᵀ    the released code
* exact    Σⱼ K(s − sⱼ), chunk by chunk over the stored states      the reference; the paper's "without RFF"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from sasr.evidence.features import RandomFeatures, full_float32
from sasr.evidence.kernels import Kernel
from sasr.experience.retained import OUTCOMES, StatePool

EstimatorName = Literal["linear", "squared", "exact"]
CHUNK = 4096


class Counts(nn.Module, ABC):
    """Kernel sums over the states of P seeds, kept apart by outcome (the last axis: success, failure)."""

    size: Tensor  # (P, 2) int64, how many states each sum is over

    def __init__(self, members: int, device: torch.device | None = None) -> None:
        super().__init__()
        self.register_buffer("size", torch.zeros((members, len(OUTCOMES)), dtype=torch.int64, device=device))

    def add(self, member: int, outcome: int, states: Tensor) -> None:
        """Count one seed's states (n, k) towards an outcome."""
        self._accumulate(member, outcome, states, sign=1)

    def remove(self, member: int, outcome: int, states: Tensor) -> None:
        """Take back states that were added before."""
        self._accumulate(member, outcome, states, sign=-1)

    def counts(self, states: Tensor) -> Tensor:
        """Counts (P, B, 2) of states (P, B, k), never negative."""
        return self.raw(states).clamp(min=0.0)

    def clear(self, member: int) -> None:
        """Forget everything of one seed."""
        self.size[member] = 0
        self._clear(member)

    def _accumulate(self, member: int, outcome: int, states: Tensor, *, sign: int) -> None:
        for start in range(0, len(states), CHUNK):
            chunk = states[start : start + CHUNK]
            self._add_chunk(member, outcome, chunk, sign)
            self.size[member, outcome] += sign * len(chunk)

    @abstractmethod
    def raw(self, states: Tensor) -> Tensor:
        """The estimates (P, B, 2) before clamping; a linear one can fall below 0."""

    @abstractmethod
    def _clear(self, member: int) -> None: ...

    @abstractmethod
    def _add_chunk(self, member: int, outcome: int, states: Tensor, sign: int) -> None: ...


class LinearCounts(Counts):
    """Σⱼ z(s)·z(sⱼ) from one feature vector per seed and outcome."""

    total: Tensor  # (P, 2, M) float64: large terms of both signs nearly cancel where a state has no neighbour
    compilable = ("project",)

    def __init__(self, features: RandomFeatures) -> None:
        members, device = len(features.bandwidth), features.bandwidth.device
        super().__init__(members, device)
        self.features = features
        self.register_buffer("total", torch.zeros((members, 2, features.count), dtype=torch.float64, device=device))

    def raw(self, states: Tensor) -> Tensor:
        """z(s)·Z for both outcomes, (P, B, 2)."""
        if states.device.type != "cpu":
            return self.project(self.features.angles(states))
        z_PBM: Tensor = self.features(states).double()
        return torch.stack([z @ total.T for z, total in zip(z_PBM, self.total, strict=True)]).float()

    def project(self, angle: Tensor) -> Tensor:
        """z·Z for both outcomes, (P, B, 2), from the angles of z."""
        z_PBM = self.features.waves(angle, self.features.phase[:, None, :]).double()
        if torch.compiler.is_compiling():
            # As sums, which a compiler joins with the cosines: features are never written to memory.
            return torch.stack([(z_PBM * self.total[:, x, None]).sum(-1) for x in OUTCOMES], dim=-1).float()
        return (z_PBM @ self.total.transpose(1, 2)).float()

    def add_first(self, which: Tensor, count: Tensor, states: Tensor) -> None:
        """Count the first `count` (1,) of states (1, n, k) towards `which` (1,), 2·member + outcome.

        The same as `add`, with everything in tensors: nothing depends on a number that Python would have to read.
        """
        used = torch.arange(states.shape[1], device=states.device) < count
        z_1DM = self.features.of_members(which // 2, states).double() * used[:, None]
        self.total.flatten(0, 1).index_add_(0, which, z_1DM.sum(1))
        self.size.flatten().index_add_(0, which, count)

    def _clear(self, member: int) -> None:
        self.total[member] = 0.0

    def _add_chunk(self, member: int, outcome: int, states: Tensor, sign: int) -> None:
        z_DM = self.features.of_member(member, states).double()
        self.total[member, outcome] += sign * z_DM.sum(0)


class SquaredCounts(Counts):
    """Σⱼ (z(s)·z(sⱼ))² from an M × M matrix per seed and outcome.

    The square of a kernel estimate is never negative, but far states still add 1/M each. `subtract_floor` takes that
    expected D/M off again.
    """

    matrix: Tensor  # (P, 2, M, M): C; or, while `direct`, the features of the stored states as its first D rows
    direct: Tensor  # (P, 2) bool

    def __init__(self, features: RandomFeatures, *, subtract_floor: bool = False) -> None:
        members, device, M = len(features.bandwidth), features.bandwidth.device, features.count
        super().__init__(members, device)
        self.features = features
        self.subtract_floor = subtract_floor
        self.register_buffer("matrix", torch.zeros((members, 2, M, M), device=device))
        # With D < M rows, D·M products per state beat M². On an accelerator a shape that never changes matters more:
        # a captured graph can't follow D.
        on_cpu = device.type == "cpu"
        self.register_buffer("direct", torch.full((members, 2), on_cpu, dtype=torch.bool))

    def raw(self, states: Tensor) -> Tensor:
        """z(s)ᵀ C z(s) for both outcomes, (P, B, 2)."""
        z_PBM = self.features(states)
        with full_float32(), torch.autocast(states.device.type, enabled=False):
            if states.device.type == "cpu":
                total = torch.stack([self._of_member(p, z_BM) for p, z_BM in enumerate(z_PBM)])
            else:
                total = torch.stack([((z_PBM @ self.matrix[:, x]) * z_PBM).sum(-1) for x in OUTCOMES], dim=-1)
        if not self.subtract_floor:
            return total
        return total - self.size[:, None, :] / self.features.count

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


class ExactCounts(Counts):
    """Σⱼ K(s − sⱼ) over every stored state: the reference, O(D) for each query."""

    bandwidth: Tensor  # (P,)

    def __init__(self, kernel: Kernel, k: int, members: int = 1, device: torch.device | None = None) -> None:
        super().__init__(members, device)
        self.kernel = kernel
        self.register_buffer("bandwidth", torch.ones(members, device=device))
        self.pool = StatePool(k, torch.float32, self.size.device)

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

    def _clear(self, member: int) -> None:
        self.pool.clear(member)

    def remove(self, member: int, outcome: int, states: Tensor) -> None:
        """Not offered: an exact sum has no use for a state that is gone."""
        raise NotImplementedError("exact counts can't forget single states; use estimator='linear' or 'squared'")

    def _add_chunk(self, member: int, outcome: int, states: Tensor, sign: int) -> None:
        self.pool.append(member, outcome, states)
