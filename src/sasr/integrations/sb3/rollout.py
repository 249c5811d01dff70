"""Rollout buffers that add the shaped reward before advantages are computed."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from sasr.experience.types import Batch, Transition
from sasr.integrations.sb3.model import calling
from sasr.integrations.sb3.observations import Array, Observations, of_parts
from sasr.integrations.sb3.shaped import ShapedBuffer, ShaperLike, make_shaper
from sasr.shaping.rivals.explors import ExploRS
from sasr.shaping.rivals.gfa_rfe import GfaRfe
from sasr.shaping.rivals.relara import Relara

OFF_POLICY = (ExploRS, GfaRfe, Relara)
"""Shapers that learn from a replay buffer."""

_SHAPED = ("obs", "action", "reward", "next_obs", "terminated", "success")
ROUNDING = 1e-6
"""Relative size of what is left of a reward of 0 when a value was added to it and taken off again."""


class ShapedRolloutBuffer(ShapedBuffer, RolloutBuffer):
    """A rollout buffer that adds the shaped reward before advantages are computed; for PPO and A2C.

    Give it as `rollout_buffer_class`. The shaper learns from the minibatches that the agent learns from.

    Args (in `rollout_buffer_kwargs`):
        shaper: a shaper's name, a mapping with a name and options, or a `RewardShaper` of your own.
        seed: seed of the shaper's own random streams; None is the model's.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        shaper: ShaperLike = "sasr",
        seed: int | None = None,
    ) -> None:
        self.steps: list[Transition] = []
        self.rollout: Batch | None = None
        self.settings = make_shaper(shaper)
        if isinstance(self.settings, OFF_POLICY):
            raise ValueError(
                f"{type(self.settings).__name__} learns from a replay buffer, which PPO and A2C have not; take sasr, "
                "rnd, drnd or explo, or another agent with ShapedReplayBuffer"
            )
        super().__init__(buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs)
        self.bind(seed=seed, discount=gamma)

    def reset(self) -> None:
        """Start a new rollout; what the shaper has learned stays."""
        super().reset()
        self.steps, self.rollout = [], None
        caller = self._collecting()
        if caller is not None:
            model = caller["self"]
            self.obs: Observations = _original(model, model._last_obs)

    # -------------------------------------------------------------------- add

    def add(self, *arguments: Any, **options: Any) -> None:
        """Store one step, and let the shaper observe it as the environment gave it."""
        caller = self._collecting()
        if caller is not None:
            step = self._step(caller)
            self.observe(step)
            self.steps.append(step)
        super().add(*arguments, **options)

    def _collecting(self) -> dict[str, Any] | None:
        """The variables of the `collect_rollouts` that fills this buffer; None for any other caller."""
        caller = calling("collect_rollouts")
        if caller is None or caller.get("rollout_buffer") is not self:
            return None
        return caller

    def _step(self, caller: dict[str, Any]) -> Transition:
        """The step that `collect_rollouts` has just taken, from its variables."""
        model, dones, infos = caller["self"], caller["dones"], caller["infos"]
        before, self.obs = self.obs, _original(model, caller["new_obs"])
        after = _last_of_episodes(model, self.obs, dones, infos)
        return self.transition(before, after, caller["clipped_actions"], _reward(caller), dones, infos)

    # ------------------------------------------------------------------ learn

    def compute_returns_and_advantage(self, last_values: Tensor, dones: Array) -> None:
        """Advantages of the shaped rewards; the stored rewards come out as they went in."""
        if len(self.steps) != self.buffer_size:
            raise RuntimeError(
                f"the shaper observed {len(self.steps)} of {self.buffer_size} steps of this rollout; this buffer is "
                "for models that collect as Stable-Baselines3's PPO and A2C do"
            )
        self.rollout = Batch(**{name: self._column(name) for name in _SHAPED})
        stored = self.rewards
        self.rewards = stored + self.shape(self.rollout).reshape(stored.shape).cpu().numpy()
        super().compute_returns_and_advantage(last_values, dones)
        self.rewards = stored

    def _get_samples(self, batch_inds: Array, env: VecNormalize | None = None) -> Any:
        if self.rollout is not None:
            # Stable-Baselines3 numbers environment by environment, the rollout step by step.
            envs, steps = np.divmod(batch_inds, self.buffer_size)
            index = torch.as_tensor(steps * self.n_envs + envs, device=self.device)
            self.train_shaper(Batch(**{name: getattr(self.rollout, name)[:, index] for name in _SHAPED}))
        return super()._get_samples(batch_inds, env)

    def _column(self, name: str) -> Tensor:
        """An entry of all steps of the rollout, (1, steps · environments, …)."""
        return torch.stack([getattr(step, name) for step in self.steps], dim=1).flatten(1, 2).to(self.device)


class ShapedDictRolloutBuffer(ShapedRolloutBuffer, DictRolloutBuffer):
    """`ShapedRolloutBuffer` for Dict observations; chosen by itself."""


ShapedRolloutBuffer.for_dicts = ShapedDictRolloutBuffer


def _original(model: Any, obs: Any) -> Observations:
    """The newest observations as the environment gave them."""
    normaliser = model.get_vec_normalize_env()
    original: Observations = obs
    if normaliser is not None:
        original = normaliser.get_original_obs()
    return original


def _last_of_episodes(model: Any, obs: Any, dones: Array, infos: list[dict[str, Any]]) -> Any:
    """Observations after a step, with an ended episode's own last one instead of the next episode's first."""
    normaliser = model.get_vec_normalize_env()
    after = of_parts(np.copy, obs)
    for index in np.flatnonzero(dones):
        last = infos[index]["terminal_observation"]
        if normaliser is not None:
            last = normaliser.unnormalize_obs(last)
        if isinstance(after, dict):
            for key, part in after.items():
                part[index] = last[key]
        else:
            after[index] = last
    return after


def _reward(caller: dict[str, Any]) -> Array:
    """The environment's rewards, without the value that `collect_rollouts` adds at a time limit."""
    model, infos = caller["self"], caller["infos"]
    normaliser = model.get_vec_normalize_env()
    if normaliser is not None and normaliser.norm_reward:
        original: Array = normaliser.get_original_reward()
        return original
    reward: Array = caller["rewards"].copy()
    for index in np.flatnonzero(caller["dones"]):
        last = infos[index].get("terminal_observation")
        if last is None or not infos[index].get("TimeLimit.truncated", False):
            continue
        with torch.no_grad():
            value = model.policy.predict_values(model.policy.obs_to_tensor(last)[0])[0]
        added = float(model.gamma * value)
        reward[index] -= added
        if abs(reward[index]) <= ROUNDING * abs(added):
            reward[index] = 0.0
    return reward
