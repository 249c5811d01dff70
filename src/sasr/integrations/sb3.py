"""SASR inside Stable-Baselines3: a replay buffer for SAC, TD3, DDPG and DQN, a rollout buffer for PPO and A2C.

Stored rewards are the environment's. The shaped reward is added to what is sampled (off-policy), or to what the
advantages are computed from (on-policy), with the evidence of that moment.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_normalize
from torch import Tensor

from sasr.experience.flatten import flatten_observations
from sasr.experience.types import Batch, Host, ReplayView, Transition
from sasr.shaping.sasr import SASR

Array = NDArray[Any]
Observations = Array | Mapping[str, Array]
ShaperLike = SASR | str | Mapping[str, Any]
"""A shaper, a preset's name, or SASR's options as a mapping: what a configuration file can say."""


def make_shaper(shaper: ShaperLike) -> SASR:
    """A new shaper with the settings given; a `SASR` stays unbound, because models keep it and save it.

    >>> make_shaper({"preset": "paper", "retention": 0.2}).config.retention
    0.2
    """
    if isinstance(shaper, SASR):
        return type(shaper)(config=shaper.config)
    return SASR(shaper) if isinstance(shaper, str) else SASR(**shaper)


class _Shaping:
    """What the buffers share: a bound shaper, and the way from Stable-Baselines3's arrays to its tensors.

    Stable-Baselines3 runs one agent, so P = 1.
    """

    shaper: SASR
    observation_space: Any
    action_space: Any
    n_envs: int
    last_batch: Batch | None = None
    last_bonus: Tensor | None = None
    for_dicts: type | None = None
    """The variant of this very class for Dict observations."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the variant for Dict observations where the space asks for it, so that users need one name only."""
        space = kwargs.get("observation_space", args[1] if len(args) > 1 else None)
        variant = cls.__dict__.get("for_dicts") if isinstance(space, gym.spaces.Dict) else None
        return super().__new__(variant or cls)

    @property
    def device(self) -> torch.device:
        """Where batches go; Stable-Baselines3 sets it anew when a saved buffer is loaded, and the evidence follows."""
        return self._device

    @device.setter
    def device(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        if "shaper" in self.__dict__ and self.shaper.bound.device != self._device:
            self._continue(self.shaper, self.shaper.bound, self.shaper.state_dict())

    def _bind(self, shaper: ShaperLike, *, seed: int, discount: float) -> None:
        host = Host(
            observation_space=self.observation_space,
            action_space=self.action_space,
            seeds=(seed,),
            envs=self.n_envs,
            device=self.device,
            discount=discount,
            replay=self._replay_view(),
        )
        shaper = make_shaper(shaper)
        shaper.bind(host)
        self.shaper = shaper

    def _continue(self, shaper: ShaperLike, host: Host, evidence: Mapping[str, Any]) -> None:
        """A shaper of the same settings on this buffer's device, which goes on from `evidence`."""
        self._bind(shaper, seed=host.seeds[0], discount=host.discount)
        self.shaper.load_state_dict(evidence)
        self.last_batch = self.last_bonus = None

    def _replay_view(self) -> ReplayView | None:
        return None

    def __getstate__(self) -> dict[str, Any]:
        # What is pickled must be readable where there is no such device.
        evidence = {name: tensor.cpu() for name, tensor in self.shaper.state_dict().items()}
        kept = {name: value for name, value in self.__dict__.items() if name not in ("last_batch", "last_bonus")}
        return kept | {"shaper": (make_shaper(self.shaper), replace(self.shaper.bound, replay=None), evidence)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("shaper")
        self.__dict__.update(state)
        self.device = get_device(self.device)
        self._continue(*saved)

    def _tensor(self, array: Any, dtype: torch.dtype | None = None) -> Tensor:
        """An array with a leading population axis, on the shaper's device."""
        return torch.as_tensor(np.asarray(array), dtype=dtype, device=self.device)[None]

    def _states(self, obs: Observations) -> Tensor:
        flat = flatten_observations(self.observation_space, obs)
        return self._tensor(flat, torch.uint8 if flat.dtype == np.uint8 else torch.float32)

    def _transition(
        self, obs: Observations, next_obs: Observations, action: Array, reward: Array, done: Array, infos: list[Any]
    ) -> Transition:
        timeout = np.array([info.get("TimeLimit.truncated", False) for info in infos], dtype=bool)
        done = np.asarray(done, dtype=bool)
        return Transition(
            obs=self._states(obs),
            action=self._tensor(action),
            reward=self._tensor(reward, torch.float32),
            next_obs=self._states(next_obs),
            terminated=self._tensor(done & ~timeout),
            truncated=self._tensor(done & timeout),
            success=self._tensor([bool(info.get("is_success", False)) for info in infos]),
        )

    def _bonus(self, batch: Batch) -> Tensor:
        """The shaped rewards (B,) of a batch, remembered for the log."""
        bonus = self.shaper.shape(batch)
        self.shaper.update(batch)
        self.last_batch, self.last_bonus = batch, bonus
        return bonus[0]


class _StoredStates:
    """A view of the replay buffer's own arrays, for storage='flags'."""

    def __init__(self, buffer: SASRReplayBuffer) -> None:
        self.buffer = buffer
        self.capacity = buffer.buffer_size * buffer.n_envs

    def read(self, member: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Observations and actions stored in `slots`; slot = position · n_envs + environment."""
        at = np.divmod(slots.cpu().numpy(), self.buffer.n_envs)
        stored: Any = self.buffer.observations
        obs = {key: part[at] for key, part in stored.items()} if isinstance(stored, dict) else stored[at]
        return self.buffer._states(obs)[0], self.buffer._tensor(self.buffer.actions[at])[0]


class SASRReplayBuffer(_Shaping, ReplayBuffer):
    """A replay buffer whose samples carry the shaped reward; give it as `replay_buffer_class`.

    Args (in `replay_buffer_kwargs`, beside Stable-Baselines3's own):
        shaper: a `SASR`, a preset's name, or a mapping of SASR's options.
        seed: seed of the shaper's own random streams.
        discount: the agent's γ, needed where the absorbing rule is on.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        shaper: ShaperLike = "auto",
        seed: int = 0,
        discount: float = 0.99,
    ) -> None:
        shaper = make_shaper(shaper)
        handle_timeout_termination = handle_timeout_termination and not shaper.config.truncation_is_terminal
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs=n_envs,
            optimize_memory_usage=optimize_memory_usage,
            handle_timeout_termination=handle_timeout_termination,
        )
        self.flagged = shaper.config.storage == "flags"
        if self.flagged and optimize_memory_usage:
            raise ValueError(
                "storage='flags' needs optimize_memory_usage=False: that variant overwrites states too early"
            )
        if shaper.config.absorbing and not self.handle_timeout_termination:
            raise ValueError(
                "absorbing=True must tell a time limit from an end, but handle_timeout_termination is False here; "
                "keep it True, or give SASR(..., absorbing=False)"
            )
        self._bind(shaper, seed=seed, discount=discount)

    def _replay_view(self) -> ReplayView:
        return _StoredStates(self)

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: Array,
        reward: Array,
        done: Array,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store one step as the environment gave it, and let the shaper see it; a step it refuses is not stored."""
        step = self._transition(obs, next_obs, action.reshape(self.n_envs, -1), reward, done, infos)
        slots = torch.arange(self.n_envs, device=self.device)[None] + self.pos * self.n_envs
        if self.flagged:
            step = step._replace(slot=slots)
            self.shaper.check(step)
            self.shaper.release(slots)
            super().add(obs, next_obs, action, reward, done, infos)
            self.shaper.observe(step)
        else:
            self.shaper.observe(step)
            super().add(obs, next_obs, action, reward, done, infos)

    def _get_samples(self, batch_inds: Array, env: VecNormalize | None = None) -> Any:
        # Sampled without normalisation first: evidence is made of states as the environment gave them.
        raw: Any = super()._get_samples(batch_inds, env=None)
        batch = Batch(
            obs=self._raw_states(raw.observations),
            action=raw.actions[None],
            reward=raw.rewards[None, :, 0],
            next_obs=self._raw_states(raw.next_observations),
            terminated=raw.dones[None, :, 0].bool(),
        )
        bonus = self._bonus(batch)[:, None]
        if env is not None:
            raw = raw._replace(
                observations=self._normalised(raw.observations, env),
                next_observations=self._normalised(raw.next_observations, env),
                rewards=self.to_torch(self._normalize_reward(raw.rewards.cpu().numpy(), env).astype(np.float32)),
            )
        return raw._replace(rewards=raw.rewards + bonus)

    def _raw_states(self, obs: Any) -> Tensor:
        if isinstance(obs, dict):
            return self._states({key: part.cpu().numpy() for key, part in obs.items()})
        flat: Tensor = obs.flatten(1)[None]
        return flat if flat.dtype == torch.uint8 else flat.float()

    def _normalised(self, obs: Any, env: VecNormalize) -> Any:
        if isinstance(obs, dict):
            arrays: Any = self._normalize_obs({key: part.cpu().numpy() for key, part in obs.items()}, env)
            return {key: self.to_torch(part) for key, part in arrays.items()}
        array: Any = self._normalize_obs(obs.cpu().numpy(), env)
        return self.to_torch(array)


class SASRDictReplayBuffer(SASRReplayBuffer, DictReplayBuffer):
    """`SASRReplayBuffer` for Dict observations; chosen by itself."""


SASRReplayBuffer.for_dicts = SASRDictReplayBuffer


class SASRRolloutBuffer(_Shaping, RolloutBuffer):
    """A rollout buffer that adds the shaped reward before advantages are computed; for PPO and A2C.

    Give it as `rollout_buffer_class`, and pass `SASRCallback()` to `learn`: Stable-Baselines3 does not tell a rollout
    buffer how a step ended, and mixes value estimates into the reward at a time limit, so the callback reports steps.
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
        shaper: ShaperLike = "auto",
        seed: int = 0,
    ) -> None:
        self.seen: list[Transition] = []
        super().__init__(buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs)
        self._bind(shaper, seed=seed, discount=gamma)

    def reset(self) -> None:
        """Start a new rollout; evidence stays."""
        super().reset()
        self.seen = []

    def report(self, step: Transition) -> None:
        """Let the shaper see one step as the environment gave it."""
        self.shaper.observe(step)
        self.seen.append(step)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: Array) -> None:
        """Advantages of the shaped rewards; the stored rewards come out as they went in."""
        if len(self.seen) != self.buffer_size:
            raise RuntimeError(
                f"the shaper saw {len(self.seen)} of {self.buffer_size} steps of this rollout; "
                "pass callback=SASRCallback() to learn()"
            )
        columns = zip(*(step[:5] for step in self.seen), strict=True)  # from obs to terminated
        batch = Batch(*(torch.stack(column, 1).flatten(1, 2) for column in columns))  # (1, steps · envs, …)
        stored = self.rewards
        self.rewards = stored + self._bonus(batch).reshape(stored.shape).cpu().numpy()
        super().compute_returns_and_advantage(last_values, dones)
        self.rewards = stored


class SASRDictRolloutBuffer(SASRRolloutBuffer, DictRolloutBuffer):
    """`SASRRolloutBuffer` for Dict observations; chosen by itself."""


SASRRolloutBuffer.for_dicts = SASRDictRolloutBuffer


class SASRCallback(BaseCallback):
    """Logs `shaping/…` figures, and reports steps to a `SASRRolloutBuffer`; `rollout/ep_rew_mean` is not touched."""

    def _on_training_start(self) -> None:
        self.buffer = self._find_buffer()
        host = self.buffer.shaper.bound
        gamma = self.model.gamma  # type: ignore[attr-defined]
        config = self.buffer.shaper.config
        if config.absorbing and host.discount != gamma:
            warnings.warn(
                f"the shaper assumes discount={host.discount}, but the agent's gamma is {gamma}; "
                f"put discount={gamma} into replay_buffer_kwargs"
            )
        self.previous_obs = self._original_obs(self.model._last_obs)

    def _on_step(self) -> bool:
        if isinstance(self.buffer, SASRRolloutBuffer):
            self._report(self.buffer)
        elif np.any(self.locals["dones"]):
            # Stable-Baselines3 writes its log when an episode ends, right after this.
            self._log()
        return True

    def _on_rollout_end(self) -> None:
        if isinstance(self.buffer, SASRRolloutBuffer):
            self._log()

    def _report(self, buffer: SASRRolloutBuffer) -> None:
        local = self.locals
        dones, infos = local["dones"], local["infos"]
        normaliser = unwrap_vec_normalize(self.training_env)
        reward = local["rewards"] if normaliser is None else normaliser.get_original_reward()
        obs = self._original_obs(local["new_obs"])
        step = buffer._transition(
            self.previous_obs, self._last_obs_of_episodes(obs, dones, infos), local["actions"], reward, dones, infos
        )
        buffer.report(step)
        self.previous_obs = obs

    def _original_obs(self, obs: Any) -> Any:
        normaliser = unwrap_vec_normalize(self.training_env)
        return obs if normaliser is None else normaliser.get_original_obs()

    def _last_obs_of_episodes(self, obs: Any, dones: Array, infos: list[dict[str, Any]]) -> Any:
        """Observations after the step, with an ended episode's own last one instead of the next episode's first."""
        normaliser = unwrap_vec_normalize(self.training_env)
        after = {key: part.copy() for key, part in obs.items()} if isinstance(obs, dict) else obs.copy()
        for index in np.flatnonzero(dones):
            last = infos[index]["terminal_observation"]
            last = last if normaliser is None else normaliser.unnormalize_obs(last)
            if isinstance(after, dict):
                for key, part in after.items():
                    part[index] = last[key]
            else:
                after[index] = last
        return after

    def _log(self) -> None:
        buffer = self.buffer
        if buffer.last_batch is None or buffer.last_bonus is None:
            return
        figures = {
            "bonus_mean": buffer.last_bonus.mean(),
            "bonus_std": buffer.last_bonus.std(correction=0),
            **buffer.shaper.update(buffer.last_batch),
            **buffer.shaper.inspect(buffer.last_batch),
        }
        for name, figure in figures.items():
            self.logger.record(f"shaping/{name}", float(figure.float().mean()))

    def _find_buffer(self) -> Any:
        for name in ("replay_buffer", "rollout_buffer"):
            buffer = getattr(self.model, name, None)
            if isinstance(buffer, SASRReplayBuffer | SASRRolloutBuffer):
                return buffer
        raise TypeError(
            f"{type(self.model).__name__} has no SASR buffer; pass replay_buffer_class=SASRReplayBuffer "
            "(or rollout_buffer_class=SASRRolloutBuffer for PPO and A2C)"
        )
