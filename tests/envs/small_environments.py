"""Environments for the population tests, in a module that a worker imports quickly."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[Any]


class Count(gym.Env):
    """Observation (episode, step, last action); odd episodes terminate at `end`, even ones are truncated there."""

    def __init__(self, end: int = 4, action_space: spaces.Space[Any] | None = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = action_space or spaces.Box(-1, 1, (1,), np.float32)
        self.end, self.episode = end, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.count = self.episode + 1, 0
        return self.told(0), {}

    def told(self, action: Any) -> Array:
        return np.array([self.episode, self.count, np.sum(action)], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        over = self.count == self.end
        odd = self.episode % 2 == 1
        info = {"is_success": self.count == 2, "count": self.count} if self.count < 4 else {}
        return self.told(action), float(self.count), over and odd, over and not odd, info


class Fragile(gym.Env):
    """Does what `harm` says in the environment that was started with `seed`, at its third step (or its reset)."""

    def __init__(self, harm: str, seed: int) -> None:
        self.observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.harm, self.seed = harm, seed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.chosen = 0, seed == self.seed
        if self.chosen and self.harm == "reset":
            raise ZeroDivisionError("no start today")
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        if self.chosen and self.count == 3:
            if self.harm == "raise":
                raise ZeroDivisionError("the pole broke")
            if self.harm == "sleep":
                time.sleep(1.5)
            if self.harm == "exit":
                os._exit(7)
            if self.harm == "crash":
                ctypes.string_at(0)
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Shy(Fragile):
    """Can be made in the parent only."""

    def __init__(self, parent: int) -> None:
        if os.getpid() != parent:
            raise PermissionError("not in this process")
        super().__init__("", 0)


class Drawing(gym.Env):
    """Draws at every reset and step from `generator`: numpy's of any kind, one of its own, or none that can be read."""

    source: Any

    def __init__(self, kind: str = "PCG64") -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.kind = kind

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None and self.kind == "own":
            self.own = np.random.default_rng(seed)
        elif seed is not None and self.kind == "RandomState":
            self.__dict__["_np_random"] = np.random.RandomState(seed % 2**32)  # what old environments did
        elif seed is not None:
            self._np_random = np.random.Generator(getattr(np.random, self.kind)(seed))
        self.source = self.own if self.kind == "own" else self._np_random
        self.count, self.place = 0, self.source.normal()
        return np.array([self.place], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.place = 0.9 * self.place + float(action[0]) + self.source.normal()
        return np.array([self.place], np.float32), 0.0, False, self.count == 11, {}
