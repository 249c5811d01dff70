"""A grid world drawn as images: the agent is a small cross, and other things move as much as it does."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from sasr import Batch

SIDE, CELL = 36, 4
PLACES = SIDE // CELL
IMAGE = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
MOVES = np.array([(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1)])  # stay, up, right, down, left


def drawn(place: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The agent as a cross, and others as full squares that move whatever the agent does."""
    image = np.zeros((SIDE, SIDE), np.uint8)
    for row, column in others * CELL:
        image[row : row + CELL, column : column + CELL] = 150
    row, column = place * CELL
    image[row : row + CELL, column : column + CELL] = 0
    image[row + 1 : row + 3, column : column + CELL] = 255
    image[row : row + CELL, column + 1 : column + 3] = 255
    return image


class World:
    """Steps of a random walk that starts in the upper left corner again and again."""

    def __init__(self, steps: int, *, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        frames, next_frames, places = [], [], []
        self.actions = rng.integers(len(MOVES), size=steps)
        others = rng.integers(PLACES, size=(3, 2))
        for t, action in enumerate(self.actions):
            if t % 40 == 0:
                place = np.zeros(2, np.int64)
            frames.append(drawn(place, others))
            places.append(place[0] * PLACES + place[1])
            place = np.clip(place + MOVES[action], 0, PLACES - 1)
            others = (others + MOVES[rng.integers(len(MOVES), size=3)]) % PLACES
            next_frames.append(drawn(place, others))
        self.frames, self.next_frames = torch.from_numpy(np.stack(frames)), torch.from_numpy(np.stack(next_frames))
        self.places = np.array(places)

    def batch(self, index: Tensor) -> Batch:
        """Steps (P, B) of the walk."""
        nothing = torch.zeros(index.shape)
        actions = torch.from_numpy(self.actions)[index]
        return Batch(self.frames[index], actions, nothing, self.next_frames[index], nothing.bool())


class SmallWorld(gym.Env[Any, Any]):
    """The same as an environment; the lower right quarter rewards."""

    observation_space = IMAGE
    action_space = gym.spaces.Discrete(5)

    def __init__(self, *, visible: bool = True, tells_place: bool = True, rewards: bool = False) -> None:
        """Whether the agent is drawn, whether info has its place, and whether there is anything to win."""
        self.visible, self.tells_place, self.rewards = visible, tells_place, rewards

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.others = np.zeros(2, np.int64), self.np_random.integers(PLACES, size=(3, 2))
        self.steps = 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place = np.clip(self.place + MOVES[action], 0, PLACES - 1)
        self.others = (self.others + MOVES[self.np_random.integers(len(MOVES), size=3)]) % PLACES
        image, told = self._seen()
        won = self.rewards and self.place.sum() >= 6
        return image, float(won), False, self.steps >= 40, told

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        told = {"place": int(self.place[0] * PLACES + self.place[1])} if self.tells_place else {}
        return drawn(self.place if self.visible else np.array([PLACES, PLACES]), self.others), told


def make() -> gym.Env[Any, Any]:
    return SmallWorld()
