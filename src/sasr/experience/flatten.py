"""How observations and actions become the flat vectors a kernel can compare."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

_WORKS = "a kernel compares vectors: use Box, MultiBinary, or a Dict of those (flattened key by key)"


def state_width(space: gym.Space[Any]) -> int:
    """Number of entries k of a flattened observation.

    >>> state_width(gym.spaces.Dict(goal=gym.spaces.Box(-1, 1, (3,)), observation=gym.spaces.Box(-1, 1, (10,))))
    13
    """
    if isinstance(space, gym.spaces.Dict):
        return sum(state_width(part) for part in space.spaces.values())
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return int(np.prod(space.shape))
    hint = "; wrap the environment with gymnasium.wrappers.FlattenObservation to one-hot it"
    takes_hint = isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete)
    raise TypeError(f"observation space {space} is not supported: {_WORKS}{hint if takes_hint else ''}")


def state_dtype(space: gym.Space[Any]) -> torch.dtype:
    """The type states are kept in: bytes stay bytes, all else is float32."""
    return torch.uint8 if space.dtype == np.uint8 else torch.float32


def array_shape(space: gym.Space[Any]) -> tuple[int, ...]:
    """The shape that observations or actions of a space are stored in."""
    if space.shape is None:
        raise TypeError(f"space {space} has no array shape to store; flatten it first, as sasr.tasks does")
    return tuple(space.shape)


def action_dtype(space: gym.Space[Any]) -> torch.dtype:
    """The type actions are kept in."""
    return torch.float32 if isinstance(space, gym.spaces.Box) else torch.int64


def action_width(space: gym.Space[Any]) -> int:
    """Number of entries of a flattened action; a discrete action is one-hot."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.Box):
        return int(np.prod(space.shape))
    raise TypeError(f"action space {space} is not supported by R(s, a): use Box or Discrete, or shape by state alone")


def flatten_actions(space: gym.Space[Any], action: Tensor, leading: int) -> Tensor:
    """Actions with `leading` leading axes as float vectors."""
    if isinstance(space, gym.spaces.Discrete):
        index = action.reshape(action.shape[:leading]).long() - int(space.start)
        return one_hot(index, int(space.n)).float()
    return action.flatten(leading).float() if action.dim() > leading else action.unsqueeze(-1).float()
