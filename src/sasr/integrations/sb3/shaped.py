"""What the buffers share: a bound shaper, and Stable-Baselines3's arrays as its tensors."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.utils import get_device
from torch import Tensor

from sasr.experience.types import Batch, Host, ReplayView, Transition
from sasr.integrations.sb3.model import ModelPolicy, calling_model
from sasr.integrations.sb3.observations import Array, Observations, StateEncoder
from sasr.shaping.base import RewardShaper, Shaper, check_bonus
from sasr.shaping.presets import PRESETS
from sasr.shaping.registry import SHAPERS, unknown_shaper
from sasr.shaping.reward_watch import SuccessWatch
from sasr.shaping.sasr import SASR

ShaperLike = RewardShaper | str | Mapping[str, Any]
"""A shaper, a name, or a mapping with a name and options: what a configuration file can say."""


def make_shaper(shaper: ShaperLike) -> RewardShaper:
    """A new, unbound shaper; one that is given stays as it is, because models keep it and save it.

    >>> make_shaper({"name": "sasr", "preset": "paper", "retention": 0.2}).config.retention
    0.2
    >>> make_shaper("rnd")
    RND()

    A name is a shaper's, or one of SASR's presets; a mapping without a name is of SASR's options.
    """
    if isinstance(shaper, str) and shaper in PRESETS:
        return SASR(shaper)
    if isinstance(shaper, str):
        return _shaper_named(shaper, {})
    if isinstance(shaper, Mapping):
        options = dict(shaper)
        return _shaper_named(options.pop("name", "sasr"), options)
    if isinstance(shaper, type) or not isinstance(shaper, RewardShaper):
        raise TypeError(
            f"shaper={shaper!r} must be a shaper's name, a mapping with a name and options, or an object with the "
            "methods of sasr.RewardShaper"
        )
    if not isinstance(shaper, Shaper) or shaper.host is None:
        return copy.deepcopy(shaper)
    if not hasattr(shaper, "config"):
        raise ValueError(f"this {type(shaper).__name__} is bound to a host already; give the buffer a new one")
    unbound: RewardShaper = type(shaper)(config=shaper.config)  # type: ignore[call-arg]
    return unbound


def _shaper_named(name: str, options: Mapping[str, Any]) -> RewardShaper:
    if name not in SHAPERS:
        raise unknown_shaper(name, [*SHAPERS, *PRESETS])
    return SHAPERS[name].make(**options)


class ShapedBuffer:
    """Mixed into a buffer of Stable-Baselines3, which runs one agent: P = 1."""

    settings: RewardShaper
    """The shaper as it was given, unbound."""
    _shaper: RewardShaper
    host: Host
    watch: SuccessWatch | None = None
    encoder: StateEncoder
    observation_space: Any
    action_space: Any
    n_envs: int
    device: torch.device
    last_batch: Batch | None = None
    last_bonus: Tensor | None = None
    last_figures: Mapping[str, Tensor] | None = None
    for_dicts: type | None = None
    """The variant of this very class for Dict observations."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the variant for Dict observations where the space is one, so that users need one name."""
        space = kwargs.get("observation_space", *args[1:2])
        variant = cls
        if isinstance(space, gym.spaces.Dict):
            variant = cls.__dict__.get("for_dicts") or cls
        return super().__new__(variant)

    # ---------------------------------------------------------------- binding

    @property
    def shaper(self) -> Any:
        """The bound shaper, with all that it has learned, on the device that the buffer is on now.

        Stable-Baselines3 changes `device` when a saved buffer is loaded.
        """
        if self.host.device != torch.device(self.device):
            self._continue(self.host, self._shaper.state_dict())
        return self._shaper

    def bind(self, *, seed: int | None, discount: float) -> None:
        """Bind a copy of `settings` to this buffer; without a seed, to the model's."""
        self.encoder = StateEncoder(self.observation_space)
        if isinstance(self.settings, SASR):
            self.watch = SuccessWatch(self.settings.config.reward_above)
        model = calling_model()
        if seed is None:
            seed = getattr(model, "seed", None)
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])  # a model without a seed differs at every start
        host = Host(
            observation_space=self.encoder.space,
            action_space=self._stored_actions(),
            seeds=(seed,),
            envs=self.n_envs,
            device=torch.device(self.device),
            discount=discount,
            replay=self._replay_view(),
        )
        if model is not None:
            host = self._with_policy(host, model)
        self._bind(host)

    def _with_policy(self, host: Host, model: Any) -> Host:
        """The host with the policy of its model, where it has a replay buffer."""
        if host.replay is None:
            return host
        return replace(host, policy=ModelPolicy(model, self.encoder))

    def _bind(self, host: Host) -> None:
        shaper = copy.deepcopy(self.settings)
        shaper.bind(host)
        self._shaper, self.host = shaper, host

    def _continue(self, host: Host, state: Mapping[str, Any]) -> None:
        """A shaper of the same settings on this buffer's device, which goes on from `state`."""
        self._bind(replace(host, device=torch.device(self.device)))
        self._shaper.load_state_dict(state)
        self.last_batch = self.last_bonus = self.last_figures = None

    def _stored_actions(self) -> gym.Space[Any]:
        space: gym.Space[Any] = self.action_space
        return space

    def _replay_view(self) -> ReplayView | None:
        return None

    # ---------------------------------------------------------------- pickling

    def __getstate__(self) -> dict[str, Any]:
        everything: Any = super().__getstate__()  # without the environment, where hindsight replay has one
        state: dict[str, Any] = dict(everything)
        for name in ("_shaper", "last_batch", "last_bonus", "last_figures"):
            state.pop(name, None)
        # What is pickled must be readable where there is no such device.
        learned: dict[str, Any] = dict(self._shaper.state_dict())
        for name, entry in learned.items():
            if isinstance(entry, Tensor):
                learned[name] = entry.cpu()
        return state | {"host": replace(self.host, replay=None, policy=None), "learned": learned}

    def __setstate__(self, state: dict[str, Any]) -> None:
        learned = state.pop("learned")
        self.__dict__.update(state)
        self.device = get_device(self.device)
        host = replace(self.host, replay=self._replay_view())
        self._continue(self._with_policy(host, calling_model()), learned)

    # ------------------------------------------------------- steps and batches

    def transition(
        self, obs: Observations, next_obs: Observations, action: Array, reward: Array, done: Array, infos: list[Any]
    ) -> Transition:
        """One step of all environments as shapers take it: on the CPU, with a leading axis of one seed."""
        timeout = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        done = np.asarray(done, dtype=bool)
        return Transition(
            obs=_tensor(self.encoder.encode(obs)),
            action=_tensor(action),
            reward=_tensor(np.asarray(reward, np.float32)),
            next_obs=_tensor(self.encoder.encode(next_obs)),
            terminated=_tensor(done & ~timeout),
            truncated=_tensor(done & timeout),
            success=_tensor(np.array([bool(info.get("is_success", False)) for info in infos])),
        )

    def observe(self, step: Transition) -> None:
        """Let the shaper observe a step; a warning, once, where SASR finds no success in a dozen episodes."""
        self._shaper.observe(step)  # wherever it is: steps come on the CPU
        if self.watch is None:
            return
        success = None if step.success is None else step.success.numpy()
        warning = self.watch.observe(step.reward.numpy(), step.terminated.numpy(), success)
        if warning:
            warnings.warn(warning, stacklevel=3)

    def shape(self, batch: Batch) -> Tensor:
        """The shaper's bonus (1, B) of a batch."""
        bonus: Tensor = self.shaper.shape(batch)
        check_bonus(batch, bonus)
        self.last_batch, self.last_bonus = batch, bonus
        return bonus

    def train_shaper(self, batch: Batch) -> None:
        """One update of the shaper; what it returns is kept for the log."""
        with torch.enable_grad():
            self.last_figures = self.shaper.update(batch)


def _tensor(array: Array) -> Tensor:
    """An array with a leading axis of one seed."""
    return torch.as_tensor(array)[None]
