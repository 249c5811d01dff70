"""MountainCar: Gymnasium's continuous car with its return divided by 100, or a reward of 1 at the top alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv
from numpy.typing import NDArray

from sasr.tasks.catalogue import Profile, check_profile


class MountainCar(Continuous_MountainCarEnv):
    """`reward_scale=1.0` gives the released maker's reward; Table 1 shows 0.01 of it."""

    def __init__(
        self, *, profile: Profile = "code", reward_scale: float = 0.01, render_mode: str | None = None, **kwargs: Any
    ) -> None:
        check_profile(profile)
        super().__init__(render_mode=render_mode, **kwargs)
        self.profile = profile
        self.reward_scale = reward_scale

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """One push; reaching the top is the only success and ends the episode."""
        observation, cost, terminated, truncated, _ = super().step(action)
        reward = float(terminated) if self.profile == "paper" else float(cost) * self.reward_scale
        info = {"position": float(observation[0]), "is_success": terminated, "success_ever": terminated}
        return observation, reward, terminated, truncated, info
