"""What agents share where they meet the outside: spaces, the range of actions, observations as vectors, noise."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sasr.errors import ActionSpaceError

# -------------------------------------------------------------------- spaces


def continuous_actions(space: gym.Space[Any], agent: str) -> gym.spaces.Box:
    """The space as one that an agent for continuous actions can scale its actions to, or an error with the fix."""
    if isinstance(space, gym.spaces.Discrete):
        raise ActionSpaceError(f"action space {space} is discrete, but {agent} needs a Box; use agent='sac_discrete'")
    if not isinstance(space, gym.spaces.Box):
        raise no_agent_for(space)
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low < space.high).all()):
        raise ValueError(
            f"action space {space} must have finite bounds, low below high, in every dimension: {agent} scales its "
            "actions to them; give the environment such bounds with gymnasium.wrappers.TransformAction"
        )
    return space


def discrete_actions(space: gym.Space[Any], agent: str) -> gym.spaces.Discrete:
    """The space as one that an agent for discrete actions can choose from, or an error with the fix."""
    if isinstance(space, gym.spaces.Box):
        raise ActionSpaceError(
            f"action space {space} is continuous, but {agent} needs a Discrete; use agent='sac' or 'td3'"
        )
    if not isinstance(space, gym.spaces.Discrete):
        raise no_agent_for(space)
    return space


def no_agent_for(space: gym.Space[Any]) -> ActionSpaceError:
    """The error for a space of actions that nothing here can choose from."""
    return ActionSpaceError(
        f"action space {space} suits no agent here: they take Box or Discrete; number its combinations with "
        "gymnasium.wrappers.TransformAction to make it a Discrete"
    )


class Bounded(nn.Module):
    """The range of a Box, for policies that squash what they say into it."""

    scale: Tensor  # (A,) half the width of the action range
    middle: Tensor  # (A,)

    def __init__(self, space: gym.spaces.Box, device: torch.device) -> None:
        super().__init__()
        low, high = (torch.as_tensor(bound, dtype=torch.float64).flatten() for bound in (space.low, space.high))
        self.register_buffer("scale", ((high - low) / 2).float().to(device))
        self.register_buffer("middle", ((high + low) / 2).float().to(device))
        self.register_buffer("low", low.float().to(device), persistent=False)
        self.register_buffer("high", high.float().to(device), persistent=False)

    def clip(self, action: Tensor) -> Tensor:
        """The nearest action in the range."""
        return action.clamp(self.get_buffer("low"), self.get_buffer("high"))

    def squash(self, u: Tensor) -> Tensor:
        """An action of the space for an unbounded u; clipped, as tanh(u)·scale + middle may round past a bound."""
        return self.clip(u.tanh() * self.scale + self.middle)

    def at(self, share: Tensor) -> Tensor:
        """The action that lies `share` of the way from the lower bounds to the upper ones."""
        low, high = self.get_buffer("low"), self.get_buffer("high")
        return self.clip(low + share * (high - low))


# -------------------------------------------------------------- observations


def as_vectors(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Observations or actions (P, B, …) as the vectors (P, B, k) that perceptrons take."""
    return (x.flatten(2) if x.dim() > 2 else x.unsqueeze(-1)).to(dtype)


def check_vectors(obs: Tensor, members: int, width: int) -> None:
    """Raise unless vectors (P, B, k) are of this many members and features."""
    if obs.shape[0] != members or obs.shape[-1] != width:
        raise ValueError(
            f"obs has {obs.shape[0]} members of {obs.shape[-1]} features, but this agent has {members} of {width}: "
            "give (members, environments, *observation shape)"
        )
