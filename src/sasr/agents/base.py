"""What agents that learn from a replay buffer share, and what the training step asks of them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sasr.experience.checked_module import CheckedModule
from sasr.experience.types import Batch, Host, check_batch
from sasr.networks.layers import NormName, PopulationMLP, check_norm
from sasr.randomness import MemberStreams

MOST_N_STEP = 1_000
"""Rewards that one target may sum."""


class OffPolicyAgent(CheckedModule, ABC):
    """P independent agents, one for each seed of the host; everything learned is in `state_dict`."""

    config: Any
    """The agent's settings; `batch_size`, `burn_in` and `n_step` are the training step's too."""

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
        check_batch(batch, bonus)
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


def check_settings(config: Any) -> None:
    """Raise a ValueError that names the setting where one that agents share makes no sense."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if (field.name.endswith("_lr") or "noise" in field.name) and not value >= 0.0:
            raise ValueError(f"{field.name}={value} must not be negative; the usual one is {field.default}")
        if field.name in ("policy_frequency", "batch_size", "n_step", "features") and value < 1:
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
