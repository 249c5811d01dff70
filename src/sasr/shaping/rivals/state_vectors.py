"""Observations as the vectors that novelty is measured on: of a picture, its newest frame."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from sasr.experience.flatten import state_width
from sasr.experience.frames import picture_axes


class StateVectors:
    """Observations (P, n, …) as float vectors (P, n, width) on a device; of a picture the newest frame, in grey."""

    def __init__(self, space: gym.Space[Any], device: torch.device) -> None:
        self.device, self.axes = device, picture_axes(space)
        self.picture: tuple[int, int] | None = None
        self.width = state_width(space)
        if self.axes is not None:
            shape = space.shape or ()
            self.picture = (shape[self.axes[1]], shape[self.axes[2]])
            self.width = math.prod(self.picture)

    def __call__(self, obs: Tensor) -> Tensor:
        """The vectors."""
        if self.axes is not None and self.axes[0] == 0:
            obs = obs[:, :, -1]  # one frame and not the stack: the published networks see one
        elif self.axes is not None and self.axes[0] == 2:
            obs = obs.float().mean(-1)  # colours become grey
        return obs.to(self.device).flatten(2).float()
