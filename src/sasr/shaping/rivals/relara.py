"""ReLara: a second agent proposes the reward of the first, and is itself rewarded by the environment (Ma et al., 2024).

The reward agent sees state and action, its action is a number in [−1, 1] that is added to the reward, and it learns by
SAC to propose what leads to a large return of the environment.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from sasr.experience.flatten import action_width
from sasr.experience.types import Batch, Host, Transition, to_device
from sasr.networks.adam import Adam
from sasr.networks.layers import PopulationLinear
from sasr.randomness import MemberStreams
from sasr.shaping.base import CPU, Shaper
from sasr.shaping.rivals.encoder import EncodedNetwork, ObservationEncoder
from sasr.shaping.rivals.ranges import check_at_least_one, check_not_negative, check_share, check_weight
from sasr.shaping.settings import settings_from

UNKNOWN = 2.0  # no proposal: they are in [−1, 1]
_LOG_STD_MIN, _LOG_STD_MAX = -5.0, 2.0


@dataclass(frozen=True, kw_only=True)
class RelaraConfig:
    """Settings of ReLara; the defaults are those of the authors' run script."""

    weight: float = 0.2
    """Weight β of the proposed reward; 0 is the plain agent."""
    width: int = 256
    """Width of the reward agent's residual networks."""
    blocks: int = 3
    """Residual blocks of each of them."""
    actor_lr: float = 3e-4
    """Adam's step size for the reward agent's actor."""
    critic_lr: float = 1e-3
    """Adam's step size for its critics."""
    temperature_lr: float = 1e-4
    """Adam's step size for its log α; α starts at 1."""
    target_entropy: float = -1.0
    """Target entropy of its policy."""
    tau: float = 0.005
    """Soft-update rate of its target critics, in (0, 1]."""
    compat: bool = False
    """Give every step the mean proposal of its batch, as a broadcasting error in the released code does."""

    def __post_init__(self) -> None:
        check_weight(self.weight)
        check_at_least_one(self, "width", "blocks")
        check_not_negative(self, "actor_lr", "critic_lr", "temperature_lr")
        check_share(self, "tau")


class PopulationResidual(nn.Module):
    """N residual perceptrons side by side: a linear map, blocks of two layers with a skip, a narrow layer, the output.

    >>> net = PopulationResidual(3, 2, width=8, generators=[torch.Generator()] * 2, device=torch.device("cpu"))
    >>> net(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 256,
        blocks: int = 3,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int) -> PopulationLinear:
            return PopulationLinear(inputs, outputs, generators=generators, device=device)

        narrow = max(1, width // 2)
        self.first = layer(inputs, width)
        self.blocks = nn.ModuleList(layer(width, width) for _ in range(2 * blocks))
        self.narrow, self.last = layer(width, narrow), layer(narrow, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, B, outputs) for inputs (N, B, inputs)."""
        x = self.first(x)
        for one, two in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = (x + two(one(x).relu())).relu()
        outputs: Tensor = self.last(self.narrow(x).relu())
        return outputs


class Relara(Shaper):
    """Adds what a reward agent proposes for a state and action, drawn anew whenever a step is sampled.

    >>> Relara(weight=0.5).config.blocks
    3
    """

    log_alpha: Tensor  # (P,)
    proposed: Tensor  # (P, slots) what was proposed when a step was taken
    updates: Tensor  # () int64, on the device
    member: Tensor  # (P, 1) int64, 0 … P − 1, to index by seed and slot
    capturable = True
    compilable = ("absorb", "shape", "critic_loss", "actor_loss", "soft_update")
    checked = ("obs", "action", "next_obs", "reward")

    def __init__(self, *, config: RelaraConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(RelaraConfig, config, options)

    def make(self, host: Host) -> None:
        """Draw the reward agent's networks."""
        config, device = self.config, host.device
        self.policy_of(host)
        self.discount = host.discount
        init = MemberStreams(host.seeds, "relara", CPU).generators

        def network(beside: int, outputs: int, generators: list[torch.Generator]) -> EncodedNetwork:
            options: dict[str, Any] = {"generators": generators, "device": device}
            encoder = ObservationEncoder(host.observation_space, **options)
            width = encoder.width + beside
            body = PopulationResidual(width, outputs, width=config.width, blocks=config.blocks, **options)
            return EncodedNetwork(encoder, body)

        action = action_width(host.action_space)
        self.actor = network(beside=action, outputs=2, generators=init)
        # Network p is seed p's first critic, network P + p its second: one population, half the kernels.
        self.critic = network(beside=action + 1, outputs=1, generators=[*init] * 2)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(host.members, device=device))
        self.actor_adam = Adam(list(self.actor.parameters()), lr=config.actor_lr)
        self.critic_adam = Adam(list(self.critic.parameters()), lr=config.critic_lr)
        self.temperature_adam = Adam([self.log_alpha], lr=config.temperature_lr)
        slots = host.replay.capacity if host.replay is not None else 0
        self.register_buffer("proposed", torch.full((host.members, slots), UNKNOWN, device=device))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("member", torch.arange(host.members, device=device)[:, None], persistent=False)
        # Apart, so that how often a bonus is asked for does not change what is learned.
        self.shape_streams = MemberStreams(host.seeds, "relara/shape", device)
        self.update_streams = MemberStreams(host.seeds, "relara/update", device)
        self.observe_streams = MemberStreams(host.seeds, "relara/observe", device)

    # -------------------------------------------------------------- proposals

    def propose(self, obs: Tensor, beside: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Proposals in [−1, 1], their log densities and the middles of their distributions, each (P, B)."""
        mean, raw = self.actor(obs, beside).unbind(-1)
        log_std = _LOG_STD_MIN + 0.5 * (_LOG_STD_MAX - _LOG_STD_MIN) * (raw.tanh() + 1.0)
        u = mean + log_std.exp() * noise
        log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        # log(1 − tanh²u), exact where 1 − tanh²u underflows.
        log_slope = 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))
        return u.tanh(), log_normal - log_slope, mean.tanh()

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Store what the reward agent proposes for a step; one with a NaN or a wrong width is refused."""
        self.check(step)
        if step.slot is not None and self.proposed.shape[1]:
            self.absorb(step.obs, step.action, step.slot)

    def absorb(self, obs: Tensor, action: Tensor, slot: Tensor) -> None:
        """Keep the proposals for a step (P, E, …) by its slots: they are the actions that are learned from later."""
        device = self.bound.device
        obs, action, slot = (part.to(device) for part in (obs, action, slot))
        like = torch.empty(slot.shape, device=device)
        at_random = 2.0 * self.observe_streams.uniform(like) - 1.0
        chosen, _, _ = self.propose(obs, self.flat_actions(action), self.observe_streams.normal(like))
        # Uniform until it has learned something, like any SAC agent's actions.
        self.proposed[self.member, slot] = torch.where(self.updates > 0, chosen, at_random)

    @torch.no_grad()
    def release(self, slots: Tensor) -> None:
        """Forget the proposals of steps that are about to be overwritten."""
        if self.proposed.shape[1]:
            self.proposed[self.member, to_device(slots, self.bound.device)] = UNKNOWN

    @torch.no_grad()
    def lose_replay(self) -> None:
        """Forget all proposals that were kept for replay slots."""
        self.proposed.fill_(UNKNOWN)

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """β times a proposal of the reward agent as it is now for every sampled state and action, (P, B)."""
        self.check_batch(batch)
        noise = self.shape_streams.normal(batch.reward)
        proposal, _, _ = self.propose(batch.obs, self.flat_actions(batch.action), noise)
        if self.config.compat:
            proposal = proposal.mean(1, keepdim=True).expand_as(proposal)
        return self.config.weight * proposal

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One step of the reward agent's critics, actor and temperature; how it does and what it proposes."""
        self.check_batch(batch)
        beside = self.flat_actions(batch.action)
        drawn = self.update_streams.normal(batch.reward.unsqueeze(-1).expand(-1, -1, 3))
        for_target, for_actor, for_unknown = drawn.unbind(-1)
        # What the policy would do at s′ now. The authors store what it did then, which grows stale, and which does not
        # exist where a time limit cut the episode.
        next_action = self.flat_actions(self.policy_of(self.bound).propose(batch.next_obs, self.update_streams))
        loss, of_critics = self.critic_loss(batch, beside, next_action, for_target, for_unknown)
        self.critic_adam.minimise(loss)
        self.soft_update()
        # Every update and once, where the authors' script has two steps at every second: as many, and none is skipped.
        actor_loss, slope, of_proposals, of_temperature = self.actor_loss(batch, beside, for_actor)
        self.actor_adam.minimise(actor_loss)
        self.temperature_adam.step([slope])
        self.updates.add_(1)
        return of_proposals | of_critics | of_temperature

    @torch.no_grad()
    def stored_proposal(self, batch: Batch, beside: Tensor, noise: Tensor) -> Tensor:
        """What was proposed when the sampled steps were taken, (P, B); a new proposal where that is not known."""
        fresh, _, _ = self.propose(batch.obs, beside, noise)
        if batch.slot is None or not self.proposed.shape[1]:
            return fresh
        stored = self.proposed[self.member, batch.slot]
        return torch.where(stored == UNKNOWN, fresh, stored)

    @torch.no_grad()
    def target(self, batch: Batch, next_action: Tensor, noise: Tensor) -> Tensor:
        """R + γ·(1 − terminated)·(min Q′ − α·log π)(s′, a′, r′), (P, B), with the environment's reward alone."""
        proposal, log_prob, _ = self.propose(batch.next_obs, next_action, noise)
        value = self._minimum(self.target_critic, batch.next_obs, next_action, proposal)
        value = value - self.log_alpha.exp()[:, None] * log_prob
        return batch.reward + self.discount * value.masked_fill(batch.terminated.bool(), 0.0)

    def critic_loss(
        self, batch: Batch, beside: Tensor, next_action: Tensor, for_target: Tensor, for_unknown: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of both critics, summed over P, and figures (P,); noise (P, B) for both kinds of proposals."""
        proposal = self.stored_proposal(batch, beside, for_unknown)
        target = self.target(batch, next_action, for_target)
        values = self._values(self.critic, batch.obs, beside, proposal)
        loss = (values - target).square().mean(-1).sum(0)
        figures = {
            "reward_agent_critic_loss": loss.detach(),
            "reward_agent_q_mean": values.detach().mean((0, 2)),
        }
        return loss.sum(), figures

    def actor_loss(
        self, batch: Batch, beside: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The actor's loss, summed over P; the gradient of α·(entropy − target) by log α; figures (P,) of both."""
        proposal, log_prob, middle = self.propose(batch.obs, beside, noise)
        middle = middle.detach()
        alpha = self.log_alpha.detach().exp()
        loss = (alpha[:, None] * log_prob - self._minimum(self.critic, batch.obs, beside, proposal)).mean(1)
        entropy = -log_prob.detach().mean(1)
        slope = alpha * (entropy - self.config.target_entropy)
        of_proposals = {"proposal_mean": middle.mean(1), "proposal_spread": middle.std(1, correction=0)}
        return loss.sum(), slope, of_proposals, {"reward_agent_entropy": entropy, "reward_agent_alpha": alpha}

    @torch.no_grad()
    def soft_update(self) -> None:
        """Move the target critics a little towards the critics."""
        torch._foreach_lerp_(list(self.target_critic.parameters()), list(self.critic.parameters()), self.config.tau)

    def _values(self, critic: EncodedNetwork, obs: Tensor, beside: Tensor, proposal: Tensor) -> Tensor:
        """Both critics' values (2, P, B)."""
        inputs = torch.cat([beside, proposal.unsqueeze(-1)], dim=-1).repeat(2, 1, 1)
        values: Tensor = critic(obs.repeat(2, *(1,) * (obs.dim() - 1)), inputs)
        return values.view(2, *proposal.shape)

    def _minimum(self, critic: EncodedNetwork, obs: Tensor, beside: Tensor, proposal: Tensor) -> Tensor:
        return self._values(critic, obs, beside, proposal).amin(0)
