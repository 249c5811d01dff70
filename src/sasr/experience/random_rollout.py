"""States that a random policy visits, in the order it visits them, and what happened there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

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
        progress: Called with the number of steps done now and then.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps={steps} must be at least 1 and at most {MOST_STEPS:,}")
    if seed < 0:
        raise ValueError(f"seed={seed} must not be negative")
    env.action_space.seed(seed)
    states, actions = [], []
    rewards, place = np.zeros(steps), np.zeros(steps)
    terminated, truncated, success = np.zeros((3, steps), np.bool_)
    numbers = {name: np.zeros(steps) for name in info}
    keys: set[str] = set()
    episodes, rewarded_episodes = 0, 0
    rewarded = False
    obs, step_info = env.reset(seed=seed)
    for step in range(steps):
        states.append(obs)
        actions.append(env.action_space.sample())
        place[step] = _number(step_info.get("place"))
        obs, rewards[step], terminated[step], truncated[step], step_info = env.step(actions[-1])
        success[step] = step_info.get("is_success", False)
        keys |= step_info.keys()
        for name, values in numbers.items():
            values[step] = _number(step_info.get(name))
        rewarded = rewarded or rewards[step] > 0.0 or success[step]
        if terminated[step] or truncated[step]:
            episodes += 1
            rewarded_episodes += int(rewarded)
            rewarded = False
            obs, step_info = env.reset()
        if progress and ((step + 1) % 100 == 0 or step + 1 == steps):
            progress(step + 1)
    for name, values in numbers.items():
        if np.isnan(values).all():
            raise ValueError(f"info has no number called {name!r}; it has {', '.join(sorted(keys)) or 'nothing'}")
    return RandomRollout(
        states=np.stack(states).reshape(steps, -1),
        actions=np.stack(actions),
        observation_space=env.observation_space,
        action_space=env.action_space,
        episodes=episodes,
        rewarded=rewarded_episodes,
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        success=success,
        tells_success="is_success" in keys,
        info=numbers,
        place=place,
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, Real | np.bool_) else math.nan
