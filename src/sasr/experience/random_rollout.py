"""States that a random policy visits, in the order it visits them, and what happened there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sasr.experience.flatten import flatten_observations

MOST_STEPS = 10_000_000


class RandomRollout(NamedTuple):
    """What a random policy saw in n steps."""

    states: NDArray[Any]  # (n, k)
    actions: NDArray[Any]  # (n, …)
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    episodes: int
    """Episodes that ended."""
    rewarded: int
    """Episodes that had a positive reward or info["is_success"]."""
    rewards: NDArray[np.float64]  # (n,)
    terminated: NDArray[np.bool_]  # (n,) the task ended with this step
    truncated: NDArray[np.bool_]  # (n,) the episode was cut off
    success: NDArray[np.bool_]  # (n,) info["is_success"]
    tells_success: bool
    """Whether info["is_success"] is ever there."""
    info: dict[str, NDArray[np.float64]]
    """Numbers of info that were asked for, each (n,); NaN where a step had none."""
    place: NDArray[np.float64]
    """info["place"] (n,), where in the image the agent is when it acts; NaN where the environment does not say."""


def random_rollout(
    env: gym.Env[Any, Any],
    steps: int,
    *,
    seed: int = 0,
    info: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> RandomRollout:
    """Act at random for `steps` steps.

    Args:
        env: The environment.
        steps: How many.
        seed: Of the environment and of the policy.
        info: Numbers of info to keep.
        progress: Told the number of steps done now and then.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps={steps} must be at least 1 and at most {MOST_STEPS:,}")
    if seed < 0:
        raise ValueError(f"seed={seed} must not be negative")
    env.action_space.seed(seed)
    states, actions, episodes, rewarded, hit = [], [], 0, 0, False
    rewards, flags = np.zeros(steps), np.zeros((3, steps), np.bool_)
    numbers = {name: np.full(steps, np.nan) for name in info}
    place = np.full(steps, np.nan)
    keys: set[str] = set()
    obs, told = env.reset(seed=seed)
    for step in range(steps):
        states.append(obs)
        actions.append(env.action_space.sample())
        place[step] = _number(told.get("place"))
        obs, reward, terminated, truncated, told = env.step(actions[-1])
        rewards[step], flags[:, step] = reward, (terminated, truncated, told.get("is_success", False))
        keys |= told.keys()
        for name, values in numbers.items():
            values[step] = _number(told.get(name))
        hit = hit or float(reward) > 0.0 or bool(flags[2, step])
        if terminated or truncated:
            episodes, rewarded, hit = episodes + 1, rewarded + hit, False
            obs, told = env.reset()
        if progress and ((step + 1) % 100 == 0 or step + 1 == steps):
            progress(step + 1)
    for name, values in numbers.items():
        if np.isnan(values).all():
            raise ValueError(f"info has no number called {name!r}; it has {', '.join(sorted(keys)) or 'nothing'}")
    stacked = (
        {key: np.stack([s[key] for s in states]) for key in states[0]} if isinstance(obs, dict) else np.stack(states)
    )
    terminations, truncations, successes = flags
    return RandomRollout(
        states=flatten_observations(env.observation_space, stacked),
        actions=np.stack(actions),
        observation_space=env.observation_space,
        action_space=env.action_space,
        episodes=episodes,
        rewarded=rewarded,
        rewards=rewards,
        terminated=terminations,
        truncated=truncations,
        success=successes,
        tells_success="is_success" in keys,
        info=numbers,
        place=place,
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, Real | np.bool_) else math.nan
