"""What agents share: the base class for learning from replay, twin critics, ranges of actions, checks of settings."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from sasr.errors import ActionSpaceError
from sasr.experience.checked_module import CheckedModule
from sasr.experience.types import Batch, Host
from sasr.networks.layers import NormName, PopulationMLP, check_norm
from sasr.randomness import MemberStreams
from sasr.shaping.base import check_bonus

MOST_N_STEP = 1_000
"""Rewards that one target may sum."""


class OffPolicyAgent(CheckedModule, ABC):
    """P independent agents, one for each seed of the host; everything learned is in `state_dict`."""

    config: Any
    """The agent's settings; `batch_size`, `burn_in` and `n_step` are the training step's too."""
    compilable: tuple[str, ...] = ()
    """Names of methods that torch.compile may replace."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.members, self.device, self.discount = host.members, host.device, host.discount
        self.updates = 0  # an int and not a tensor: the schedule is decided without waiting for the device

    @abstractmethod
    def act(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """Actions (P, E, *action_shape) for obs (P, E, *obs_shape): exploring, or the best ones known."""

    @abstractmethod
    def act_randomly(self, envs: int = 1) -> Tensor:
        """Actions (P, E, *action_shape) uniform over the space, for the burn-in."""

    @abstractmethod
    def draw_noise(self, batch_size: int) -> Any:
        """The random numbers that one update uses; passed in, so that an update is a function of its arguments."""

    @abstractmethod
    def bootstrap(self, batch: Batch, noise: Any) -> Tensor:
        """The next state's value, discounted, and 0 after a true termination, (P, B).

        Nothing but tensor work that needs no bonus, so that it can run while a shaper works out bonuses.
        """

    @abstractmethod
    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: Any, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update towards reward + bonus + bootstrap, nothing but tensor work; figures to log, each (P,)."""

    def count_update(self) -> bool:
        """Count an update; True where the actor learns in it too."""
        self.updates += 1
        return self.updates % getattr(self.config, "policy_frequency", 1) == 0

    def update(self, batch: Batch, bonus: Tensor, noise: Any = None) -> dict[str, Tensor]:
        """A whole update at once, for loops without a replay buffer of ours."""
        check_bonus(batch, bonus)
        return self.learn(batch, bonus, self.bootstrap(batch, noise), noise, self.count_update())

    def get_extra_state(self) -> Tensor:
        """The number of updates so far; a tensor, so that a checkpoint needs no pickle."""
        return torch.tensor(self.updates)

    def set_extra_state(self, state: Any) -> None:
        """Continue the schedule where it stood."""
        self.updates = int(state)


class TwinCritic(nn.Module):
    """Two action-value functions for each seed: network p is seed p's first one, network P + p its second."""

    def __init__(
        self, width: int, hidden: Sequence[int], init: MemberStreams, device: torch.device, *, norm: NormName = "none"
    ) -> None:
        """Draw the first weights, for observations and actions of `width` entries together."""
        super().__init__()
        self.net = PopulationMLP((width, *hidden, 1), generators=[*init.generators] * 2, device=device, norm=norm)

    def forward(self, obs: Tensor, action: Tensor, *, frozen: bool = False) -> Tensor:
        """Values (2, P, B); `frozen` passes gradients to the actions, and none to the weights."""
        # One population of 2·P networks, so that an accelerator launches half the kernels.
        values: Tensor = self.net(obs, action, frozen=frozen)
        return values.view(2, *obs.shape[:2])

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values (P, B) of the first critics alone; their weights have no gradient here, the actions have."""
        weights = {name: parameter.detach()[: len(obs)] for name, parameter in self.net.named_parameters()}
        values: Tensor = functional_call(self.net, weights, (obs, action))
        return values.squeeze(-1)


class Bounded(nn.Module):
    """The range of a Box, for policies that squash what they say into it."""

    scale: Tensor  # (A,) half the width of the action range
    middle: Tensor  # (A,)

    def __init__(self, space: gym.spaces.Box, device: torch.device) -> None:
        super().__init__()
        low, high = (torch.as_tensor(bound, dtype=torch.float64).flatten() for bound in (space.low, space.high))
        self.register_buffer("scale", ((high - low) / 2).float().to(device))
        self.register_buffer("middle", ((high + low) / 2).float().to(device))
        self.register_buffer("low", low.float().to(device), persistent=False)
        self.register_buffer("high", high.float().to(device), persistent=False)

    def clip(self, action: Tensor) -> Tensor:
        """The nearest action in the range."""
        return action.clamp(self.get_buffer("low"), self.get_buffer("high"))

    def squash(self, u: Tensor) -> Tensor:
        """An action of the space for an unbounded u; clipped, as tanh(u)·scale + middle may round past a bound."""
        return self.clip(u.tanh() * self.scale + self.middle)

    def at(self, share: Tensor) -> Tensor:
        """The action that lies `share` of the way from the lower bounds to the upper ones."""
        low, high = self.get_buffer("low"), self.get_buffer("high")
        return self.clip(low + share * (high - low))


def as_vectors(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Observations or actions (P, B, …) as the vectors (P, B, k) that perceptrons take."""
    return (x.flatten(2) if x.dim() > 2 else x.unsqueeze(-1)).to(dtype)


def check_vectors(obs: Tensor, members: int, width: int) -> None:
    """Raise unless vectors (P, B, k) are of this many seeds and features."""
    if obs.shape[0] != members or obs.shape[-1] != width:
        raise ValueError(
            f"obs has {obs.shape[0]} seeds of {obs.shape[-1]} features, but this agent has {members} of {width}: "
            "give (seeds, environments, *observation shape)"
        )


def check_settings(config: Any) -> None:
    """Raise a ValueError that names the setting where one that agents share makes no sense."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if (field.name.endswith("_lr") or "noise" in field.name) and not value >= 0.0:
            raise ValueError(f"{field.name}={value} must not be negative; the usual one is {field.default}")
        if field.name in ("policy_frequency", "batch_size", "update_every", "n_step", "features") and value < 1:
            raise ValueError(f"{field.name}={value} must be at least 1")
        if field.name == "n_step" and value > MOST_N_STEP:
            raise ValueError(f"n_step={value} must be at most {MOST_N_STEP:,}; the usual ones are 1 to 10")
    if any(width < 1 for width in config.hidden):
        raise ValueError(f"hidden={config.hidden} has a layer without units; the usual ones are (256, 256)")
    if not 0.0 < config.tau <= 1.0:
        raise ValueError(f"tau={config.tau} must be in (0, 1]; 0.005 is the usual one")
    if config.burn_in < 0:
        raise ValueError(f"burn_in={config.burn_in} must not be negative; 0 learns from the first step")
    check_norm(config.critic_norm)


def continuous_actions(space: gym.Space[Any], agent: str) -> gym.spaces.Box:
    """The space as one that an agent for continuous actions can scale its actions to, or an error with the fix."""
    if isinstance(space, gym.spaces.Discrete):
        raise ActionSpaceError(f"action space {space} is discrete, but {agent} needs a Box; use agent='sac_discrete'")
    if not isinstance(space, gym.spaces.Box):
        raise no_agent_for(space)
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low < space.high).all()):
        raise ValueError(
            f"action space {space} must have finite bounds, low below high, in every dimension: {agent} scales its "
            "actions to them; give the environment such bounds with gymnasium.wrappers.TransformAction"
        )
    return space


def discrete_actions(space: gym.Space[Any], agent: str) -> gym.spaces.Discrete:
    """The space as one that an agent for discrete actions can choose from, or an error with the fix."""
    if isinstance(space, gym.spaces.Box):
        raise ActionSpaceError(
            f"action space {space} is continuous, but {agent} needs a Discrete; use agent='sac' or 'td3'"
        )
    if not isinstance(space, gym.spaces.Discrete):
        raise no_agent_for(space)
    return space


def no_agent_for(space: gym.Space[Any]) -> ActionSpaceError:
    """The error for a space of actions that nothing here can choose from."""
    return ActionSpaceError(
        f"action space {space} suits no agent here: they take Box or Discrete; number its combinations with "
        "gymnasium.wrappers.TransformAction to make it a Discrete"
    )
