"""A small task in every space that Stable-Baselines3 has, and models of it that are quick to train."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import QRDQN, TQC, CrossQ
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm

from sasr.integrations.sb3 import ShapedReplayBuffer, ShapedRolloutBuffer

ALGORITHMS = {a.__name__: a for a in (SAC, TD3, DDPG, DQN, TQC, CrossQ, QRDQN, PPO, A2C)}
BOX = gym.spaces.Box(-30, 30, (2,), np.float32)
SPACES: dict[str, gym.Space[Any]] = {
    "box": BOX,
    "double": gym.spaces.Box(-30, 30, (2,), np.float64),
    "dict": gym.spaces.Dict(observation=BOX, room=gym.spaces.Discrete(3)),
    "image": gym.spaces.Box(0, 255, (1, 36, 36), np.uint8),
    "discrete": gym.spaces.Discrete(61),
    "multidiscrete": gym.spaces.MultiDiscrete([61, 21]),
    "multibinary": gym.spaces.MultiBinary(4),
}
POLICIES = {"dict": "MultiInputPolicy", "image": "CnnPolicy"}


class Corridor(gym.Env):
    """Walk right to be rewarded with 1 and end; give up after 20 steps, with `consolation`.

    With `costs`, rewards are −1 and 0 and the end is called a success.
    """

    def __init__(
        self,
        kind: str = "box",
        discrete: bool = False,
        length: float = 3.0,
        consolation: float = 0.0,
        costs: bool = False,
    ) -> None:
        self.kind, self.discrete, self.length, self.consolation = kind, discrete, length, consolation
        self.costs = costs
        self.observation_space = SPACES[kind]
        self.action_space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-1, 1)), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = float(np.asarray(action).item())
        self.x += move * 2 - 1 if self.discrete else move
        self.t += 1
        succeeded = self.x > self.length
        gave_up = not succeeded and self.t >= 20
        reward = float(succeeded) + self.consolation * gave_up
        if self.costs:
            return self._obs(), reward - 1.0, succeeded, gave_up, {"is_success": succeeded}
        return self._obs(), reward, succeeded, gave_up, {}

    def _obs(self) -> Any:
        state, place = np.array([self.x, self.t], np.float32), int(np.clip(self.x + 30, 0, 60))
        return {
            "box": state,
            "double": state.astype(np.float64),
            "dict": {"observation": state, "room": int(np.clip(self.x, 0, 2))},
            "image": np.full((1, 36, 36), np.clip(self.x * 10 + 128, 0, 255), np.uint8),
            "discrete": place,
            "multidiscrete": np.array([place, self.t]),
            "multibinary": np.array([self.x > edge for edge in (-1, 0, 1, 2)], np.int8),
        }[self.kind]


def weights(model: BaseAlgorithm) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten().float() for tensor in model.policy.state_dict().values()])


def shaped(shaper: Any = "sasr", **kwargs: Any) -> dict[str, Any]:
    return {"replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": {"shaper": shaper, **kwargs}}


def shaped_rollouts(shaper: Any = "sasr", **kwargs: Any) -> dict[str, Any]:
    return {"rollout_buffer_class": ShapedRolloutBuffer, "rollout_buffer_kwargs": {"shaper": shaper, **kwargs}}


def make_model(algorithm: str = "SAC", env: Any = None, **options: Any) -> Any:
    """A model with tiny networks; off-policy ones learn from step 20 on."""
    if algorithm in ("PPO", "A2C"):
        usual: dict[str, Any] = {"n_steps": 32} | ({"n_epochs": 2, "batch_size": 16} if algorithm == "PPO" else {})
    else:
        usual = {"learning_starts": 20, "batch_size": 16, "buffer_size": 2_000, "train_freq": 4}
    usual |= {"policy": "MlpPolicy", "policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}
    return ALGORITHMS[algorithm](env=env or Corridor(discrete=algorithm in ("DQN", "QRDQN")), **(usual | options))


def trained(algorithm: str = "SAC", env: Any = None, *, steps: int = 100, callback: Any = None, **options: Any) -> Any:
    return make_model(algorithm, env, **options).learn(steps, callback=callback)
