"""SAC whose bonus is a return of its own, which goes on over the ends of episodes (Burda et al., 2019).

Twin critics of its own learn it, and the actor maximises the sum of both values. The bonus comes with its weight, so
that is in its value too.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from sasr.agents.base import OffPolicyAgent, TwinCritic
from sasr.agents.sac import Sac
from sasr.agents.sac_config import SacConfig
from sasr.agents.sac_discrete import SacDiscrete, SacDiscreteConfig, TwinValues
from sasr.experience.types import Batch, Host
from sasr.networks.adam import Adam
from sasr.networks.layers import PopulationLinear
from sasr.randomness import MemberStreams


def make_sac(host: Host, config: SacConfig | None = None) -> Sac:
    """SAC as the host wants it: with the bonus apart from the reward, or in it."""
    if host.separate_stream:
        return SacWithBonusCritic(host, config)
    return Sac(host, config)


def make_sac_discrete(host: Host, config: SacDiscreteConfig | None = None) -> SacDiscrete:
    """The same for discrete actions."""
    if host.separate_stream:
        return SacDiscreteWithBonusCritic(host, config)
    return SacDiscrete(host, config)


class _WithBonusCritic(OffPolicyAgent):
    """What both forms of SAC do with the bonus's critics."""

    bonus_critic: nn.Module
    target_bonus_critic: nn.Module
    bonus_critic_adam: Adam

    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: Any, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update of the bonus's critics, then one of the plain agent without the bonus."""
        of_reward, of_bonus = bootstrap.unbind(0)
        loss, figures = self.bonus_critic_loss(batch, bonus, of_bonus)
        self.bonus_critic_adam.minimise(loss)
        return figures | super().learn(batch, torch.zeros_like(bonus), of_reward, noise, update_actor)  # type: ignore[safe-super]

    @abstractmethod
    def bonus_critic_loss(self, batch: Batch, bonus: Tensor, bootstrap: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of the bonus's critics, summed over P, and figures (P,)."""

    def _add_critic(self, critic: nn.Module) -> None:
        """Let all be worth nothing until a bonus was seen: a weight of 0 is the plain agent, bit for bit."""
        last = [layer for layer in critic.modules() if isinstance(layer, PopulationLinear)][-1]
        with torch.no_grad():
            last.weight.zero_()
            last.bias.zero_()
        self.bonus_critic = critic
        self.target_bonus_critic = copy.deepcopy(critic).requires_grad_(False)
        self.bonus_critic_adam = Adam(list(critic.parameters()), lr=self.config.critic_lr)

    def _update_bonus_target(self) -> None:
        target, critic = self.target_bonus_critic, self.bonus_critic
        torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), self.config.tau)


class SacWithBonusCritic(_WithBonusCritic, Sac):
    """P soft actor-critics with second twin critics, for the bonus alone."""

    compilable = (*Sac.compilable, "bonus_critic_loss")

    def __init__(self, host: Host, config: SacConfig | None = None) -> None:
        super().__init__(host, config)
        hidden, norm = self.config.hidden, self.config.critic_norm
        self._add_critic(TwinCritic(self.inputs, hidden, _init(host), host.device, norm=norm))

    def next_value(self, batch: Batch, noise: Tensor) -> Tensor:
        """The parts of the targets that need no reward and no bonus, (2, P, B): the reward's and the bonus's."""
        return torch.stack([super().next_value(batch, noise), self.next_bonus_value(batch, noise)])

    @torch.no_grad()
    def next_bonus_value(self, batch: Batch, noise: Tensor) -> Tensor:
        """γⁿ·min Q′(s′, a′) of the bonus, (P, B); s′ is the next episode's first state where one ended."""
        next_obs = self._observed(_following(batch))
        action, _ = self.actor.sample(next_obs, noise)
        value: Tensor = self.target_bonus_critic(next_obs, action).amin(0)
        return (self.discount if batch.discount is None else batch.discount) * value

    def bonus_critic_loss(self, batch: Batch, bonus: Tensor, bootstrap: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of the bonus's critics, summed over P, and figures (P,)."""
        values = self.bonus_critic(self._observed(batch.obs), self._vectors(batch.action))
        return _loss(values, bonus + bootstrap)

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move both kinds of target critics a little towards the critics."""
        super().update_targets()
        self._update_bonus_target()

    def maximised_value(self, obs: Tensor, action: Tensor) -> Tensor:
        """The sum of the reward's and the bonus's values, (P, B)."""
        of_bonus: Tensor = self.bonus_critic(obs, action, frozen=True).amin(0)
        return super().maximised_value(obs, action) + of_bonus


class SacDiscreteWithBonusCritic(_WithBonusCritic, SacDiscrete):
    """The same for discrete actions, whose values are expectations."""

    compilable = (*SacDiscrete.compilable, "bonus_critic_loss")

    def __init__(self, host: Host, config: SacDiscreteConfig | None = None) -> None:
        super().__init__(host, config)
        self._add_critic(TwinValues(host.policy_space, self.actions, self.config, _init(host), host.device))

    def bootstrap(self, batch: Batch, noise: None = None) -> Tensor:
        """The parts of the targets that need no reward and no bonus, (2, P, B): the reward's and the bonus's."""
        return torch.stack([super().bootstrap(batch, noise), self.next_bonus_value(batch)])

    @torch.no_grad()
    def next_bonus_value(self, batch: Batch) -> Tensor:
        """γⁿ·E[min Q′](s′) of the bonus, (P, B); s′ is the next episode's first state where one ended."""
        next_obs = _following(batch)
        value: Tensor = (self.log_policy(next_obs).exp() * self.target_bonus_critic(next_obs).amin(0)).sum(-1)
        return (self.discount if batch.discount is None else batch.discount) * value

    def bonus_critic_loss(self, batch: Batch, bonus: Tensor, bootstrap: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of the bonus's critics, summed over P, and figures (P,)."""
        return _loss(self.of_taken(self.bonus_critic(batch.obs), batch), bonus + bootstrap)

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move both kinds of target critics a little towards the critics."""
        super().update_targets()
        self._update_bonus_target()

    def maximised_values(self, obs: Tensor) -> Tensor:
        """The sums of the reward's and the bonus's values, (P, B, A)."""
        of_bonus: Tensor = self.bonus_critic(obs).amin(0)
        return super().maximised_values(obs) + of_bonus


# ---------------------------------------------------------------- small parts


def _init(host: Host) -> MemberStreams:
    return MemberStreams(host.seeds, "agent/bonus", torch.device("cpu"))


def _following(batch: Batch) -> Tensor:
    return batch.next_obs if batch.following is None else batch.following


def _loss(values: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    loss = (values - target).square().mean(-1).sum(0)
    return loss.sum(), {"bonus_critic_loss": loss.detach(), "bonus_q_mean": values.detach().mean((0, 2))}
