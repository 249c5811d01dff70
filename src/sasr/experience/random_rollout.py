"""States that a random policy visits, in the order it visits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sasr.experience.flatten import flatten_observations

MOST_STEPS = 10_000_000


class RandomRollout(NamedTuple):
    """What a random policy saw."""

    states: NDArray[Any]  # (n, k)
    episodes: int
    """Episodes that ended."""
    rewarded: int
    """Episodes that had a positive reward or info["is_success"]."""


def random_rollout(
    env: gym.Env[Any, Any], steps: int, *, seed: int = 0, progress: Callable[[int], None] | None = None
) -> RandomRollout:
    """Act at random for `steps` steps; `progress` is told the number of steps done now and then."""
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps={steps} must be at least 1 and at most {MOST_STEPS:,}")
    if seed < 0:
        raise ValueError(f"seed={seed} must not be negative")
    env.action_space.seed(seed)
    states, episodes, rewarded, hit = [], 0, 0, False
    obs, _ = env.reset(seed=seed)
    for step in range(1, steps + 1):
        states.append(obs)
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        hit = hit or float(reward) > 0.0 or bool(info.get("is_success", False))
        if terminated or truncated:
            episodes, rewarded, hit = episodes + 1, rewarded + hit, False
            obs, _ = env.reset()
        if progress and (step % 100 == 0 or step == steps):
            progress(step)
    if isinstance(obs, dict):
        stacked: Any = {key: np.stack([state[key] for state in states]) for key in states[0]}
    else:
        stacked = np.stack(states)
    return RandomRollout(flatten_observations(env.observation_space, stacked), episodes, rewarded)
