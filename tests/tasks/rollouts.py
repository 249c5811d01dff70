"""Episodes under scripted policies, shared by the task tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Policy = Callable[[gym.Env[Any, Any], Any, int], Any]


class Episodes(NamedTuple):
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    hits: NDArray[np.bool_]
    last_info: dict[str, Any]


def uniform(env: gym.Env[Any, Any], observation: Any, step: int) -> Any:
    return env.action_space.sample()


def play(env: gym.Env[Any, Any], episodes: int, policy: Policy = uniform, seed: int = 0) -> Episodes:
    env.action_space.seed(seed)
    told: list[tuple[float, int, bool, bool]] = []
    info: dict[str, Any] = {}
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        total, length, hit, ended = 0.0, 0, False, False
        while not ended:
            observation, reward, terminated, truncated, info = env.step(policy(env, observation, length))
            total, length, ended = total + float(reward), length + 1, terminated or truncated
            hit |= info["is_success"]
        told.append((total, length, terminated, hit))
    returns, lengths, over, hits = (np.array(column) for column in zip(*told, strict=True))
    return Episodes(returns, lengths, over, hits, info)


def constant_vectors(bound: float, seed: int) -> Policy:
    """A corner of the action box for each episode, held throughout."""
    rng = np.random.default_rng(seed)
    held: list[Any] = [None]

    def policy(env: gym.Env[Any, Any], observation: Any, step: int) -> Any:
        if step == 0:
            held[0] = rng.choice([-bound, bound], env.action_space.shape).astype(np.float32)
        return held[0]

    return policy
