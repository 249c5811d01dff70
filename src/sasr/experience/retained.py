"""Where retained states live, and what they are kept apart by: the outcome of the segment they came from."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from sasr.experience.checked_module import GrowingModule

SUCCESS, FAILURE = 0, 1  # the order of the last axis of every pair of counts, as in Beta(N_S + 1, N_F + 1)
OUTCOMES = (SUCCESS, FAILURE)


class Retained(Protocol):
    """The states kept for each seed and outcome, as raw as the environment gave them.

    `StatePool` has copies of its own, `sasr.evidence.flagged.ReplayFlags` marks them in the host's replay buffer.
    """

    def append(self, member: int, outcome: int, items: Tensor) -> Tensor:
        """Keep the states that `items` stand for, and return them, (n, width)."""
        ...

    def select(self, member: int, outcome: int) -> Tensor:
        """All states kept for this seed and outcome, (n, width)."""
        ...


class StatePool(GrowingModule):
    """Copies of the retained states of all seeds in one growing tensor, in order of arrival."""

    states: Tensor  # (capacity, width)
    owner: Tensor  # (capacity,) int32, 2 · seed + outcome
    size: Tensor  # () int64

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.register_growing("states", torch.zeros((64, width), dtype=dtype, device=device), axis=0)
        self.register_growing("owner", torch.zeros(64, dtype=torch.int32, device=device), axis=0)
        self.register_buffer("size", torch.zeros((), dtype=torch.int64))

    def append(self, member: int, outcome: int, items: Tensor) -> Tensor:
        """Copy `items` (n, width) into the pool."""
        start, end = int(self.size), int(self.size) + len(items)
        if end > len(self.states):
            for name in self.growing:
                self.grow(name, end)
        self.states[start:end] = items
        self.owner[start:end].fill_(2 * member + outcome)
        self.size.fill_(end)
        return items

    def select(self, member: int, outcome: int) -> Tensor:
        """All states kept for this seed and outcome, (n, width)."""
        size = int(self.size)
        return self.states[:size][self.owner[:size] == 2 * member + outcome]

    def clear(self, member: int) -> None:
        """Drop everything of one seed; the others keep their order."""
        size = int(self.size)
        keep = torch.div(self.owner[:size], 2, rounding_mode="floor") != member
        left = int(keep.sum())
        for name in self.growing:
            column: Tensor = getattr(self, name)
            column[:left] = column[:size][keep]
        self.size.fill_(left)
