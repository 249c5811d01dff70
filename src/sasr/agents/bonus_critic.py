"""SAC whose bonus is a return of its own, which goes on over the ends of episodes (Burda et al., 2019).

Twin critics of its own learn it, and the actor climbs the sum of both values. The bonus comes with its weight, so that
is in its value too.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from sasr.agents.base import TwinCritic
from sasr.agents.sac import Sac, UpdateNoise
from sasr.agents.sac_config import SacConfig
from sasr.experience.types import Batch, Host
from sasr.networks.adam import Adam
from sasr.randomness import MemberStreams


def make_sac(host: Host, config: SacConfig | None = None) -> Sac:
    """SAC as the host wants it: with the bonus apart from the reward, or in it."""
    if host.separate_stream:
        return SacWithBonusCritic(host, config)
    return Sac(host, config)


class SacWithBonusCritic(Sac):
    """P soft actor-critics with second twin critics, for the bonus alone."""

    compilable = (*Sac.compilable, "next_bonus_value", "bonus_critic_loss")

    def __init__(self, host: Host, config: SacConfig | None = None) -> None:
        super().__init__(host, config)
        config = self.config
        init = MemberStreams(host.seeds, "agent/bonus", torch.device("cpu"))
        self.bonus_critic = TwinCritic(self.inputs, config.hidden, init, host.device, norm=config.critic_norm)
        # Worth nothing until a bonus was seen: then a weight of 0 is plain SAC.
        for tensor in self.bonus_critic.net.layers[-1].parameters():
            tensor.detach().zero_()
        self.target_bonus_critic = copy.deepcopy(self.bonus_critic).requires_grad_(False)
        self.bonus_critic_adam = Adam(list(self.bonus_critic.parameters()), lr=config.critic_lr)

    def bootstrap(self, batch: Batch, noise: UpdateNoise) -> Tensor:
        """The part of the critics' targets that needs no reward and no bonus, (2, P, B): the reward's, the bonus'."""
        return torch.stack([super().bootstrap(batch, noise), self.next_bonus_value(batch, noise.target)])

    @torch.no_grad()
    def next_bonus_value(self, batch: Batch, noise: Tensor) -> Tensor:
        """γⁿ·min Q′(s′, a′) of the bonus, (P, B); what is new stays new when an episode ends."""
        next_obs = self._observed(batch.next_obs if batch.following is None else batch.following)
        action, _ = self.actor.sample(next_obs, noise)
        value: Tensor = self.target_bonus_critic(next_obs, action).amin(0)
        discount = self.discount if batch.discount is None else batch.discount
        return discount * value

    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: UpdateNoise, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update of the bonus' critics, then one of plain SAC without the bonus."""
        of_reward, of_bonus = bootstrap.unbind(0)
        loss, figures = self.bonus_critic_loss(batch, bonus + of_bonus)
        self.bonus_critic_adam.minimise(loss)
        return figures | super().learn(batch, torch.zeros_like(bonus), of_reward, noise, update_actor)

    def bonus_critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of the bonus' critics, summed over P, and figures (P,)."""
        values = self.bonus_critic(self._observed(batch.obs), self._vectors(batch.action))
        loss = (values - target).square().mean(-1).sum(0)
        return loss.sum(), {"bonus_critic_loss": loss.detach(), "bonus_q_mean": values.detach().mean((0, 2))}

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move both kinds of target critics a little towards the critics."""
        super().update_targets()
        targets, critics = self.target_bonus_critic.parameters(), self.bonus_critic.parameters()
        torch._foreach_lerp_(list(targets), list(critics), self.config.tau)

    def climbed_value(self, obs: Tensor, action: Tensor) -> Tensor:
        """The sum of the reward's and the bonus' values, (P, B)."""
        of_bonus: Tensor = self.bonus_critic(obs, action, frozen=True).amin(0)
        return super().climbed_value(obs, action) + of_bonus
