"""What the loop turns: an agent, where its experience is kept, and a shaper, as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from sasr.experience.types import Transition

Saved = dict[str, dict[str, Tensor]]
"""Everything of a learner, by the part it belongs to: agent, replay, shaper."""


class Learner(Protocol):
    """P members that act in E environments each and learn from what happens. Steps come on the CPU."""

    burn_in: int
    """Steps of each member with random actions before the first update."""

    def act(self, obs: Tensor) -> Tensor:
        """Actions (P, E, *action_shape) to explore with, on the CPU, for observations (P, E, *obs_shape)."""
        ...

    def act_randomly(self) -> Tensor:
        """Actions (P, E, *action_shape) uniform over the space, on the CPU."""
        ...

    def act_best(self, obs: Tensor) -> Tensor:
        """The best actions known, (P, n, *action_shape), on the CPU; draws nothing."""
        ...

    def learn(self, updates: int) -> Mapping[str, Tensor]:
        """Learn while the environments step, by `updates` updates where that is the agent's to choose; figures (P,)."""
        ...

    def inspect(self) -> Mapping[str, Tensor]:
        """Figures of the shaper about stored steps, (P,), computed only for the log; draws nothing."""
        ...

    def store(self, step: Transition) -> None:
        """Take in what happened; called once per step of all environments."""
        ...

    def cut(self, broken: Tensor) -> None:
        """Episodes (P, E) under way ended without an end; the next steps there begin new ones."""
        ...

    def finite(self) -> Tensor:
        """Whether every number that the agent learned is finite, (P,), on the device."""
        ...

    def save(self, *, replay: bool = True) -> Saved:
        """Everything needed to go on bit for bit; `replay=False` leaves the stored steps out."""
        ...

    def load(self, saved: Saved) -> None:
        """Go on from a saved state; refused before anything changes if it does not fit."""
        ...


class DivergedError(ValueError):
    """Learning has led to numbers that are not finite; the message says when and for which seeds."""


def finite_members(state: Mapping[str, Any], members: int) -> Tensor:
    """Whether all numbers of a state that are a member's own are finite, (P,), where the state is."""
    # Networks and moments have P rows, or 2·P where a member has two critics: row n is of member n mod P.
    own = [tensor for tensor in state.values() if tensor.is_floating_point() and tensor.dim() > 0]
    rows = [tensor.reshape(-1, members, tensor[0].numel()) for tensor in own if len(tensor) % members == 0]
    return torch.stack([row.isfinite().all(-1).all(0) for row in rows]).all(0)


def share_of_bonus(reward: Tensor, bonus: Tensor) -> Tensor:
    """How much of what a batch pays is bonus, by size, (P,): 1 where the environment pays nothing."""
    size = bonus.abs().sum(1)
    return size / (size + reward.abs().sum(1)).clamp(min=1e-12)
