"""How often a state was visited in successes and in failures, at a cost that does not grow with the visits.

A kernel K(s − sⱼ) is estimated by the product z(s)·z(sⱼ) of random features. Sums commute, so the estimate over
D stored states needs only the sum of their features, never the states again (the paper's Algorithm 1):

    Σⱼ z(s)·z(sⱼ) = z(s)·Z,   Z = Σⱼ z(sⱼ)

Two other estimators have files of their own: `squared_counts.py` is the released code's, `exact_counts.py` is
the paper's "without RFF".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from sasr.evidence.features import Features, StateNormaliser
from sasr.experience.retained import OUTCOMES
from sasr.experience.types import Batch

EstimatorName = Literal["linear", "squared", "exact"]
CHUNK = 4096
"""States that are mapped at once: it bounds the memory that a rebuild takes."""
BLOCK = 64
"""States that are compared with the sums at once."""


class Counts(nn.Module, ABC):
    """Kernel sums over the states of P seeds, kept apart by outcome (the last axis: success, failure)."""

    size: Tensor  # (P, 2) int64, how many states each sum is over
    capturable = True
    """Whether `raw` and `learn` are tensor work of fixed shapes, which a CUDA graph can capture."""

    def __init__(self, members: int, device: torch.device | None = None) -> None:
        super().__init__()
        self.register_buffer("size", torch.zeros((members, len(OUTCOMES)), dtype=torch.int64, device=device))

    @property
    @abstractmethod
    def h(self) -> Tensor:
        """The bandwidths of the kernel, (P,), to be changed in place while nothing is counted."""

    @abstractmethod
    def raw(self, states: Tensor) -> Tensor:
        """Estimates (P, B, 2) for states (P, B, k); a linear one can fall below 0."""

    def renew(self, member: int, bandwidth: Callable[[], float]) -> None:
        """Renew how one seed's states are compared, before all of them are counted anew."""
        self.h[member] = bandwidth()

    def learn(self, batch: Batch, normaliser: StateNormaliser) -> dict[str, Tensor]:
        """Train what compares states, where that is learned; figures (P,)."""
        return {}

    def add(self, member: int, outcome: int, states: Tensor, *, sign: int = 1) -> None:
        """Count one seed's states (n, k) towards an outcome; `sign` −1 takes back states that were added before."""
        for chunk in torch.split(states, CHUNK):
            self._add_chunk(member, outcome, chunk, sign)
            self.size[member, outcome].add_(sign * len(chunk))  # a third of what `+=` costs

    def clear(self, member: int) -> None:
        """Forget everything of one seed."""
        self.size[member] = 0
        self._clear(member)

    @abstractmethod
    def _add_chunk(self, member: int, outcome: int, states: Tensor, sign: int) -> None: ...

    @abstractmethod
    def _clear(self, member: int) -> None: ...


class LinearCounts(Counts):
    """Σⱼ z(s)·z(sⱼ) from one feature vector per seed and outcome."""

    total: Tensor  # (P, 2, M) float64: large terms of both signs nearly cancel where a state has no neighbour

    def __init__(self, features: Features) -> None:
        members, device = len(features.bandwidth), features.bandwidth.device
        super().__init__(members, device)
        self.features = features
        total = torch.zeros((members, 2, features.count), dtype=torch.float64, device=device)
        self.register_buffer("total", total)

    @property
    def h(self) -> Tensor:
        """The features' bandwidths, (P,)."""
        return self.features.bandwidth

    def raw(self, states: Tensor) -> Tensor:
        """z(s)·Z for both outcomes, (P, B, 2)."""
        return torch.stack([self._raw_of_member(p, rows) for p, rows in enumerate(states)])

    def _raw_of_member(self, member: int, states: Tensor) -> Tensor:
        Z_M2 = self.total[member].T
        # In blocks: the features of a whole batch would not stay in a CPU's cache.
        blocks = [self.features.of_member(member, rows).double() @ Z_M2 for rows in states.split(BLOCK)]
        return torch.cat(blocks).float()

    def _add_chunk(self, member: int, outcome: int, states: Tensor, sign: int) -> None:
        z_DM = self.features.of_member(member, states).double()
        self.total[member, outcome].add_(z_DM.sum(0), alpha=sign)

    def _clear(self, member: int) -> None:
        self.total[member] = 0.0
