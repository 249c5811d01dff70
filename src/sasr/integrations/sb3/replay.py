"""Replay buffers whose samples carry the shaped reward."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from torch import Tensor

from sasr.experience.replay import Window
from sasr.experience.types import Batch, ReplayView
from sasr.integrations.sb3.model import calling_model
from sasr.integrations.sb3.observations import Array, of_parts
from sasr.integrations.sb3.shaped import ShapedBuffer, ShaperLike, make_shaper
from sasr.shaping.base import Shaper
from sasr.shaping.presets import SasrConfig
from sasr.shaping.sasr import SASR

HINDSIGHT = ("n_sampled_goal", "goal_selection_strategy", "copy_info_dict")
"""Options of hindsight replay alone."""


class ShapedReplayBuffer(ShapedBuffer, ReplayBuffer):
    """A replay buffer whose samples carry the shaped reward; give it as `replay_buffer_class`.

    Each sample is shaped anew, and the shaper learns from it right away.

    Args (in `replay_buffer_kwargs`, beside Stable-Baselines3's own):
        shaper: a shaper's name, a mapping with a name and options, or a `RewardShaper` of your own.
        n_steps: steps whose rewards and bonuses are added up before the critic estimates the rest.
        gamma: γ of the shaper and of n-step returns; None is the model's.
        seed: seed of the shaper's own random streams; None is the model's.
    """

    def __init__(
        self,
        *arguments: Any,
        shaper: ShaperLike = "sasr",
        n_steps: int = 1,
        gamma: float | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        _check_options(options, type(self))
        super().__init__(*arguments, **options)
        if n_steps < 1:
            raise ValueError(f"n_steps={n_steps} must be at least 1")
        if n_steps > 1 and self.optimize_memory_usage:
            raise NotImplementedError(
                f"n_steps={n_steps} needs optimize_memory_usage=False, as in Stable-Baselines3's NStepReplayBuffer"
            )
        self.settings, self.n_steps, self.gamma = make_shaper(shaper), n_steps, _discount(gamma)
        if getattr(self.settings, "truncation_is_terminal", False):
            self.handle_timeout_termination = False
        if isinstance(self.settings, SASR):
            self._check_sasr(self.settings)
        self.successes = np.zeros((self.buffer_size, self.n_envs), np.bool_)
        self.bind(seed=seed, discount=self.gamma)

    def _check_sasr(self, shaper: SASR) -> None:
        if shaper.config.storage == "flags" and self.optimize_memory_usage:
            raise ValueError(
                "storage='flags' needs optimize_memory_usage=False: that variant overwrites states too early"
            )
        if shaper.config.absorbing and not self.handle_timeout_termination:
            raise ValueError(
                "absorbing=True must tell a time limit from an end, but handle_timeout_termination is False here; "
                "keep it True, or give SASR(..., absorbing=False)"
            )

    def _stored_actions(self) -> gym.Space[Any]:
        space: gym.Space[Any] = self.action_space
        if isinstance(space, gym.spaces.Box):  # stored as policies have them, in [−1, 1]
            return gym.spaces.Box(-1.0, 1.0, space.shape, np.float32)
        return space

    def _replay_view(self) -> ReplayView:
        return _StoredStates(self)

    # -------------------------------------------------------------------- add

    def add(
        self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: list[dict[str, Any]]
    ) -> None:
        """Store one step as the environment gave it, and let the shaper observe it, which may refuse it."""
        step = self.transition(obs, next_obs, action.reshape(self.n_envs, -1), reward, done, infos)
        slots = torch.arange(self.n_envs)[None] + self.pos * self.n_envs
        step = step._replace(slot=slots)
        if isinstance(self._shaper, Shaper):
            self._shaper.check(step)
        self._shaper.release(slots)
        if step.success is not None:
            self.successes[self.pos] = step.success.numpy()
        super().add(obs, next_obs, action, reward, done, infos)
        self.observe(step)

    # ----------------------------------------------------------------- sample

    def _get_samples(self, batch_inds: Array, env: VecNormalize | None = None) -> Any:
        # Drawn as Stable-Baselines3 draws them, so that weight 0 is the plain agent bit for bit.
        envs = np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))
        rows, counts = self._rows(batch_inds, envs)
        window = self._window(rows, envs, counts)
        bonus = window.total(self.shape(window.steps), self.gamma)
        self.train_shaper(window.first())

        rewards = np.asarray(self._normalize_reward(self.rewards[rows, envs], env), np.float32)
        returns = window.total(self.to_torch(rewards.reshape(1, -1)), self.gamma) + bonus
        first, last = rows[0], rows[-1]
        discounts: Tensor | None = None
        if self.n_steps > 1:
            discounts = self.gamma ** window.counts[0].sum(0).float()[:, None]
        sample_type: Any = ReplayBufferSamples
        if isinstance(self.observations, dict):
            sample_type = DictReplayBufferSamples
        return sample_type(
            observations=self._sampled(_at(self.observations, first, envs), env),
            actions=self.to_torch(self.actions[first, envs]),
            next_observations=self._sampled(self._next_at(last, envs), env),
            dones=self.to_torch(self._terminated(last, envs).reshape(-1, 1)),
            rewards=returns[0, :, None],
            discounts=discounts,
        )

    def _rows(self, start: Array, envs: Array) -> tuple[Array, Array]:
        """Positions (n, B) of the steps that follow one another, and which of them count.

        Where an episode or the stored steps end, the last step is repeated and does not count.
        """
        step = np.arange(self.n_steps)[:, None]
        rows = (start + step) % self.buffer_size
        newest = (self.pos - 1) % self.buffer_size
        ends = (self.dones[rows, envs] > 0) | (self.timeouts[rows, envs] > 0) | (rows == newest)
        last = np.where(ends.any(0), ends.argmax(0), self.n_steps - 1)
        return (start + np.minimum(step, last)) % self.buffer_size, step <= last

    def _window(self, rows: Array, envs: Array, counts: Array) -> Window:
        """The steps at positions (n, B) as the environment gave them: states are not normalised."""
        at = (rows.reshape(-1), np.tile(envs, len(rows)))
        steps = Batch(
            obs=self._states(_at(self.observations, *at)),
            action=self._on_device(self.actions[at]),
            reward=self._on_device(self.rewards[at]),
            next_obs=self._states(self._next_at(*at)),
            terminated=self._on_device(self._terminated(*at) > 0),
            slot=self._on_device(at[0] * self.n_envs + at[1]),
            success=self._on_device(self.successes[at]),
        )
        return Window(steps, self._on_device(counts))

    def _next_at(self, rows: Array, envs: Array) -> Any:
        if self.optimize_memory_usage:
            return self.observations[(rows + 1) % self.buffer_size, envs]
        return _at(self.next_observations, rows, envs)

    def _terminated(self, rows: Array, envs: Array) -> Array:
        """1.0 where the task ended, and where a time limit did if those are not handled."""
        terminated: Array = self.dones[rows, envs] * (1 - self.timeouts[rows, envs])
        return terminated

    def _states(self, obs: Any) -> Tensor:
        return self._on_device(self.encoder.encode(obs))

    def _on_device(self, array: Array) -> Tensor:
        return torch.as_tensor(array, device=self.device)[None]

    def _sampled(self, obs: Any, env: VecNormalize | None) -> Any:
        """Observations as the agent learns from them."""
        return of_parts(self.to_torch, self._normalize_obs(obs, env))


class ShapedDictReplayBuffer(ShapedReplayBuffer, DictReplayBuffer):
    """`ShapedReplayBuffer` for Dict observations; chosen by itself."""


ShapedReplayBuffer.for_dicts = ShapedDictReplayBuffer


class ShapedHerReplayBuffer(ShapedDictReplayBuffer, HerReplayBuffer):
    """Hindsight experience replay: rewards and goals are relabelled first, then the shaper adds its bonus.

    The shaper observes steps with the goals they were taken for.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.n_steps > 1:
            raise NotImplementedError(f"n_steps={self.n_steps} does not go with hindsight replay; drop it")
        self._successes_drawn: list[Array] = []

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.env = None  # Stable-Baselines3 sets it right after loading

    def _get_real_samples(self, rows: Array, envs: Array, env: VecNormalize | None = None) -> DictReplayBufferSamples:
        self._successes_drawn = [self.successes[rows, envs]]
        return super()._get_real_samples(rows, envs, env)

    def _get_virtual_samples(
        self, rows: Array, envs: Array, env: VecNormalize | None = None
    ) -> DictReplayBufferSamples:
        samples = super()._get_virtual_samples(rows, envs, env)
        # A success stays one where the new goal is rewarded as the old one was.
        as_before = samples.rewards.numpy(force=True)[:, 0] == self.rewards[rows, envs]
        self._successes_drawn.append(self.successes[rows, envs] & as_before)
        return samples

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Real and relabelled steps, as the agent learns from them."""
        raw = super().sample(batch_size, env=None)
        obs, next_obs = (of_parts(_array, part) for part in (raw.observations, raw.next_observations))
        batch = Batch(
            obs=self._states(obs),
            action=raw.actions[None],
            reward=raw.rewards[None, :, 0],
            next_obs=self._states(next_obs),
            terminated=raw.dones[None, :, 0] > 0,
            success=self._on_device(np.concatenate(self._successes_drawn)),
        )
        bonus = self.shape(batch)
        self.train_shaper(batch)
        rewards = raw.rewards
        if env is not None:
            rewards = self.to_torch(np.asarray(self._normalize_reward(rewards.cpu().numpy(), env), np.float32))
        return raw._replace(
            observations=self._sampled(obs, env),
            next_observations=self._sampled(next_obs, env),
            rewards=rewards + bonus[0, :, None],
        )


class _StoredStates:
    """The replay buffer's arrays, for shapers that mark states there; slot = position · n_envs + env."""

    def __init__(self, buffer: ShapedReplayBuffer) -> None:
        self.buffer = buffer
        self.capacity = buffer.buffer_size * buffer.n_envs

    def read(self, member: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """States and actions stored in `slots`."""
        buffer = self.buffer
        rows, envs = np.divmod(slots.cpu().numpy(), buffer.n_envs)
        return buffer._states(_at(buffer.observations, rows, envs))[0], buffer._on_device(buffer.actions[rows, envs])[0]


def _check_options(options: Mapping[str, Any], buffer: type[ReplayBuffer]) -> None:
    """Name the right place of an option that Stable-Baselines3's buffer would only call unexpected."""
    for name, value in options.items():
        if name == "preset" or name in SasrConfig.__dataclass_fields__:
            raise TypeError(f"{name}={value!r} is an option of the shaper; write {{'shaper': {{{name!r}: {value!r}}}}}")
        if name in HINDSIGHT and not issubclass(buffer, HerReplayBuffer):
            raise TypeError(f"{name}={value!r} is for hindsight replay; take ShapedHerReplayBuffer")


def _discount(gamma: float | None) -> float:
    """γ as given, or the model's; a warning where they differ."""
    model: Any = calling_model()
    if gamma is None:
        return float(getattr(model, "gamma", 0.99))
    if model is not None and gamma != model.gamma:
        warnings.warn(
            f"gamma={gamma} is given to the replay buffer, but the model's gamma is {model.gamma}; leave gamma out of "
            "replay_buffer_kwargs to take the model's",
            stacklevel=3,
        )
    return gamma


def _at(stored: Any, rows: Array, envs: Array) -> Any:
    return of_parts(lambda part: part[rows, envs], stored)


def _array(part: Tensor) -> Array:
    array: Array = part.cpu().numpy()
    return array
