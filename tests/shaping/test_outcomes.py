from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from sasr import diagnose
from sasr.evidence.kernels import KERNELS
from sasr.experience.random_rollout import RandomRollout, random_rollout
from sasr.shaping.outcomes import explained, outcomes
from tests.conftest import box


def rollout(rewards: list[float], ends: list[int], **info: list[float]) -> RandomRollout:
    n = len(rewards)
    terminated = np.isin(np.arange(n), ends)
    none = np.zeros(n, np.bool_)
    numbers = {name: np.array(values) for name, values in info.items()}
    return RandomRollout(
        states=np.zeros((n, 1)),
        actions=np.zeros(n),
        observation_space=box(1),
        action_space=box(1),
        episodes=len(ends),
        rewarded=0,
        rewards=np.array(rewards),
        terminated=terminated,
        truncated=none,
        success=none,
        tells_success=False,
        info=numbers,
        place=np.full(n, math.nan),
    )


def test_an_outcome_is_what_the_episode_holds_in_the_next_steps() -> None:
    found = outcomes(rollout([0, 0, 1, 0, 0, 2], [2], speed=[1, 2, math.nan, 4, 5, 6]), horizon=2)
    reward, speed = found.values()
    # The second episode goes on when the rollout stops: what follows its last state is not known.
    np.testing.assert_array_equal(reward, [0, 1, 1, 0, 2, math.nan])
    np.testing.assert_array_equal(speed, [1.5, 2, math.nan, 4.5, 5.5, math.nan])


def test_neighbours_explain_what_depends_on_the_state_and_nothing_else() -> None:
    states = torch.rand(600, 2, generator=torch.Generator().manual_seed(0))
    stored, new = states[:500], states[500:]

    def alike(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return KERNELS["gaussian"].value(x, y, 0.1)

    smooth = torch.sin(3.0 * states[:, 0]).double().numpy()
    assert explained(alike, stored, new, smooth) > 0.9
    assert explained(alike, stored, new, np.random.default_rng(0).normal(size=600)) < 0.3
    assert math.isnan(explained(alike, stored, new, np.ones(600)))
    smooth[::2] = math.nan
    assert explained(alike, stored, new, smooth) > 0.8


class Costly(gym.Wrapper):
    """CartPole that pays −1 and 0, and may tell what a success is."""

    def __init__(self, tells: bool) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.tells = tells

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        info = {"is_success": False} if self.tells else {"angle": float(observation[2])}
        return observation, float(terminated) - 1.0, terminated, truncated, info


def test_a_task_that_pays_minus_one_and_zero_is_warned_about_unless_it_tells_its_successes() -> None:
    found = diagnose(Costly(tells=False), steps=600, info=("angle",))
    assert "-1 to 0" in found.warning
    assert set(found.explained) == {"reward of the next 200 steps", "angle in the next 200 steps"}
    assert diagnose(lambda: Costly(tells=True), steps=600).warning == ""
    assert diagnose("CartPole-v1", steps=600).warning == ""


def test_an_unknown_number_of_info_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no number called 'angel'; it has angle"):
        random_rollout(Costly(tells=False), 10, info=("angel",))
