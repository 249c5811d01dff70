"""Stable-Baselines3's observations as the states that shapers take, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
Observations = Array | Mapping[str, Array]


def of_parts(function: Callable[[Any], Any], obs: Any) -> Any:
    """What a function makes of an observation, or of each part of a Dict observation."""
    if isinstance(obs, Mapping):
        return {key: function(part) for key, part in obs.items()}
    return function(obs)


class StateEncoder:
    """A Box stays as it is, discrete observations become one-hot, and the parts of a Dict one vector.

    >>> encoder = StateEncoder(gym.spaces.Dict(room=gym.spaces.Discrete(3), place=gym.spaces.Box(-1, 1, (2,))))
    >>> encoder.space.shape
    (5,)
    >>> encoder.encode({"room": np.array([2]), "place": np.array([[0.5, -0.5]])}).tolist()
    [[0.0, 0.0, 1.0, 0.5, -0.5]]
    """

    def __init__(self, observation_space: gym.Space[Any]) -> None:
        self.observation_space = observation_space
        self.space = observation_space
        """The Box of the states, which shapers are bound to."""
        if not isinstance(observation_space, gym.spaces.Box):
            self.space = gym.spaces.Box(-np.inf, np.inf, (_width(observation_space),), np.float32)

    def encode(self, obs: Observations) -> Array:
        """States (n, *space.shape) of n observations: bytes stay bytes, all else is float32."""
        space = self.observation_space
        if isinstance(space, gym.spaces.Dict):
            parts = [_vectors(part, obs[key]) for key, part in space.spaces.items()]
            return np.concatenate(parts, axis=1)
        if isinstance(space, gym.spaces.Box):
            array = np.asarray(obs)
            if array.dtype == np.uint8:
                return array
            return array.astype(np.float32, copy=False)
        return _vectors(space, np.asarray(obs))

    def decode(self, states: Tensor) -> Tensor | dict[str, Tensor]:
        """The observations, as policies take them, that states (n, *space.shape) came from."""
        space = self.observation_space
        if not isinstance(space, gym.spaces.Dict):
            return _observations(space, states)
        widths = [_width(part) for part in space.spaces.values()]
        parts = zip(space.spaces.items(), torch.split(states, widths, dim=1), strict=True)
        return {key: _observations(part, vectors) for (key, part), vectors in parts}


def _width(space: gym.Space[Any]) -> int:
    if isinstance(space, gym.spaces.Dict):
        return sum(_width(part) for part in space.spaces.values())
    sizes = _choices(space)
    if sizes is None:
        return math.prod(space.shape or ())
    return int(sizes.sum())


def _choices(space: gym.Space[Any]) -> Array | None:
    """How many values each entry of a discrete observation has; None for other spaces."""
    if isinstance(space, gym.spaces.Discrete):
        return np.array([space.n])
    if isinstance(space, gym.spaces.MultiDiscrete):
        return np.asarray(space.nvec).reshape(-1)
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return None
    raise TypeError(
        f"observation space {space} is not supported; Stable-Baselines3's are Box, Discrete, MultiDiscrete, "
        "MultiBinary and a Dict of those"
    )


def _vectors(space: gym.Space[Any], obs: Array) -> Array:
    """Vectors (n, k) of observations of a space that is no Dict."""
    rows = obs.reshape(len(obs), math.prod(space.shape or ()))
    sizes = _choices(space)
    if sizes is None:
        return rows.astype(np.float32, copy=False)
    one_hot = np.zeros((len(rows), int(sizes.sum())), np.float32)
    first = np.cumsum(sizes) - sizes
    np.put_along_axis(one_hot, rows.astype(np.int64) + first, 1.0, axis=1)
    return one_hot


def _observations(space: gym.Space[Any], vectors: Tensor) -> Tensor:
    sizes = _choices(space)
    if sizes is None:
        return vectors.reshape(len(vectors), *(space.shape or ()))
    return torch.stack([part.argmax(1) for part in torch.split(vectors, sizes.tolist(), dim=1)], dim=1)
