"""ROSA: a second player decides where to shape the reward and by how much, and has a cost for switching on.

After Mguni et al. (2023), who released no code. The shaper here is one discrete SAC that merges the published switch
and its choice of a value: action 0 is off, action i adds component i of a frozen random network of the state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sasr.experience.types import Batch, Host, Transition
from sasr.networks.adam import Adam
from sasr.randomness import MemberStreams
from sasr.shaping.base import Shaper
from sasr.shaping.rivals.encoder import EncodedMLP
from sasr.shaping.rivals.moments import RunningMoments
from sasr.shaping.rivals.random_network import RandomNetwork
from sasr.shaping.rivals.ranges import check_not_negative, check_share, check_weight
from sasr.shaping.rivals.rnd import RND
from sasr.shaping.settings import settings_from

CPU = torch.device("cpu")
UNKNOWN = -1  # nothing was decided: decisions are 0, 1, …
_NEVER = -1e9  # a logit whose probability is 0, and whose product with that is 0 and not NaN


@dataclass(frozen=True, kw_only=True)
class RosaConfig:
    """Settings of ROSA beside an agent that learns from replay."""

    weight: float = 0.3
    """Weight of the shaping reward F, whose size is about 1; 0 is the plain agent."""
    components: int = 8
    """Values m that the shaper can choose from; 0 leaves it nothing to do."""
    switch_cost: float = 0.1
    """Cost of switching on, in the shaper's reward."""
    stop_probability: float = 0.1
    """Chance of being switched off again at each step, in (0, 1]."""
    novelty_weight: float = 0.1
    """Weight of the novelty of a state, whose recent mean is 1, in the shaper's reward."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the shaper's actor and critics."""
    feature_hidden: tuple[int, ...] = (512, 512, 512)
    """Widths of the hidden layers of the frozen network that values come from."""
    actor_lr: float = 3e-4
    """Adam's step size for the shaper's actor."""
    critic_lr: float = 3e-4
    """Adam's step size for its critics."""
    temperature_lr: float = 3e-4
    """Adam's step size for its log α."""
    first_temperature: float = 0.1
    """α at the start: 1 would outweigh costs and novelties of about 0.1 for a long time."""
    entropy_share: float = 0.5
    """Share of the largest possible entropy that its temperature is tuned towards, in (0, 1]."""
    tau: float = 0.005
    """Share of its critics that moves into the target critics at each update, in (0, 1]."""
    clip: float = 5.0
    """Standardised states are clipped to ± this many standard deviations."""

    def __post_init__(self) -> None:
        check_weight(self.weight)
        check_not_negative(self, "switch_cost", "novelty_weight", "actor_lr", "critic_lr", "temperature_lr")
        check_share(self, "stop_probability", "entropy_share", "tau")
        if not 0 <= self.components <= 127:
            raise ValueError(f"components={self.components} must be between 0 and 127; 0 leaves the shaper idle")
        if any(width < 1 for width in (*self.hidden, *self.feature_hidden)):
            raise ValueError(f"hidden={self.hidden} or feature_hidden={self.feature_hidden} has a layer without units")
        if not self.first_temperature > 0.0:
            raise ValueError(f"first_temperature={self.first_temperature} must be above 0; 0.1 is the default")
        if not self.clip > 0.0:
            raise ValueError(f"clip={self.clip} must be above 0 standard deviations; 5 is the default")


class Rosa(Shaper):
    """Adds F_t = φ_t − φ_{t−1}/γ, where φ is what the shaper chose, 0 while it is off: it sums to 0 over each interval.

    >>> Rosa(components=4).config.switch_cost
    0.1
    """

    log_alpha: Tensor  # (P,)
    on: Tensor  # (P, E) bool, whether shaping is on in each environment
    potential: Tensor  # (P, E) φ of the last step
    stored_bonus: Tensor  # (P, slots) F of each stored step
    decision: Tensor  # (P, slots) int8, what was decided there
    was_on: Tensor  # (P, slots) bool, whether shaping was on before
    member: Tensor  # (P, 1) int64, 0 … P − 1, to index by seed and slot
    capturable = True
    compilable = ("critic_loss", "actor_loss", "soft_update")
    checked = ("obs", "action", "next_obs", "reward")

    def __init__(self, *, config: RosaConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(RosaConfig, config, options)

    def make(self, host: Host) -> None:
        """Draw the shaper's networks and the frozen one, and make room for what it decides."""
        config, device, shape = self.config, host.device, (host.members, host.envs)
        if host.replay is None:
            raise ValueError("ROSA keeps what it decided for each step in a replay buffer, but this host has none")
        if not host.discount > 0.0:
            raise ValueError(f"discount={host.discount} must be above 0: ROSA divides by it; 0.99 is the usual one")
        self.discount, self.outputs = host.discount, config.components + 1
        self.novelty = RND(clip=config.clip, normaliser="replay", horizon_discount=0.0, trained_share=1.0)
        self.novelty.bind(host)
        init = MemberStreams(host.seeds, "rosa", CPU).generators
        self.features = RandomNetwork(
            self.novelty.states.width,
            () if self.novelty.states.picture else config.feature_hidden,
            max(1, config.components),
            picture=self.novelty.states.picture,
            generators=init,
            device=device,
        ).requires_grad_(False)
        self.feature_moments = RunningMoments(host.members, max(1, config.components), device)
        space = host.observation_space
        self.actor = EncodedMLP(space, 1, config.hidden, self.outputs, init, device)
        self.on_pictures = self.actor.encoder.axes is not None
        # Network p is seed p's first critic, network P + p its second: one population, half the kernels.
        self.critic = EncodedMLP(space, 1, config.hidden, self.outputs, [*init] * 2, device)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.full((host.members,), math.log(config.first_temperature), device=device))
        self.actor_adam = Adam(list(self.actor.parameters()), lr=config.actor_lr)
        self.critic_adam = Adam(list(self.critic.parameters()), lr=config.critic_lr)
        self.temperature_adam = Adam([self.log_alpha], lr=config.temperature_lr)
        slots = (host.members, host.replay.capacity)
        self.register_buffer("on", torch.zeros(shape, dtype=torch.bool, device=device))
        self.register_buffer("potential", torch.zeros(shape, device=device))
        self.register_buffer("stored_bonus", torch.zeros(slots, device=device))
        self.register_buffer("decision", torch.full(slots, UNKNOWN, dtype=torch.int8, device=device))
        self.register_buffer("was_on", torch.zeros(slots, dtype=torch.bool, device=device))
        self.register_buffer("member", torch.arange(host.members, device=device)[:, None], persistent=False)
        self.streams = MemberStreams(host.seeds, "rosa/observe", device)

    # --------------------------------------------------------------- decisions

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Decide for a step; one with a NaN or a wrong width is refused and nothing changes."""
        self.check(step)
        if step.slot is None:
            raise ValueError("ROSA needs the replay slot of every step; set Transition.slot")
        self.absorb(step.obs, step.next_obs, step.terminated | step.truncated, step.slot)

    def absorb(self, obs: Tensor, next_obs: Tensor, ends: Tensor, slot: Tensor) -> None:
        """Decide for a step (P, E, …) and keep what is paid for it by its slots."""
        device = self.bound.device
        obs, next_obs, ends, slot = (part.to(device) for part in (obs, next_obs, ends, slot))
        everyone = torch.ones_like(ends)
        self.novelty.absorb(next_obs, everyone)
        values = self._values_of(obs, everyone)
        decision = self._decide(obs)
        chosen = values.gather(-1, (decision - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
        # An episode that ends while shaping is on closes the interval at once: φ of its last step counts as 0.
        potential = torch.where((decision > 0) & ~ends, chosen, 0.0)
        self.stored_bonus[self.member, slot] = potential - self.potential / self.discount
        self.decision[self.member, slot] = decision.to(torch.int8)
        self.was_on[self.member, slot] = self.on
        self.potential.copy_(potential)
        self.on.copy_((decision > 0) & ~ends)

    def _values_of(self, obs: Tensor, valid: Tensor) -> Tensor:
        """What each component would pay in states (P, E, …), (P, E, m), over its running root mean square."""
        raw: Tensor = self.features(self._standardised(obs))
        self.feature_moments.merge(raw, valid)
        size = (self.feature_moments.var + self.feature_moments.mean.square() + 1e-8).sqrt().float()
        return raw / size[:, None]

    def _decide(self, obs: Tensor) -> Tensor:
        """Decisions (P, E) int64: drawn from the actor, or 0 where an interval comes to its random end."""
        logits = self.logits(self.inputs(obs), self.on)
        drawn = self.streams.uniform(torch.empty((*self.on.shape, self.outputs + 1), device=logits.device))
        # The largest logit plus Gumbel noise is a draw from their distribution, without asking the device anything.
        gumbel = -(-(drawn[..., 1:].clamp(min=1e-12)).log()).log()
        decision = (logits + gumbel).argmax(-1)
        return torch.where(self.on & (drawn[..., 0] < self.config.stop_probability), 0, decision)

    @torch.no_grad()
    def release(self, slots: Tensor) -> None:
        """Forget the decisions of steps that are about to be overwritten."""
        slots = slots.to(self.bound.device)
        self.decision[self.member, slots] = UNKNOWN
        self.stored_bonus[self.member, slots] = 0.0

    @torch.no_grad()
    def lose_replay(self) -> None:
        """Forget all decisions that were kept for replay slots."""
        self.decision.fill_(UNKNOWN)
        self.stored_bonus.zero_()

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """Weight · F of every sampled step, (P, B)."""
        self.check_batch(batch)
        return self.config.weight * self.stored_bonus[self.member, self._slots(batch)]

    def _slots(self, batch: Batch) -> Tensor:
        if batch.slot is None:
            raise ValueError("ROSA needs the replay slots of sampled steps; set Batch.slot")
        return batch.slot

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One step of the shaper's critics, actor and temperature and of what knows new states; how often it is on."""
        self.check_batch(batch)
        slot = self._slots(batch)
        decision, on_before = self.decision[self.member, slot].long(), self.was_on[self.member, slot]
        known, bonus = decision != UNKNOWN, self.config.weight * self.stored_bonus[self.member, slot]
        on, share = decision > 0, known.sum(1).clamp(min=1)
        figures = {
            "on_share": on.sum(1) / share,
            "switch_on_share": (on & ~on_before).sum(1) / share,
            "shaping_size": bonus.abs().mean(1),
        }
        if not self.config.components:
            return figures
        novelty = self._novelty_of(batch.obs)
        reward = self.shaper_reward(batch.reward, bonus, switched_on=on & ~on_before, novelty=novelty)
        target = reward + self.discount * self.value(batch.next_obs, on).masked_fill(batch.terminated.bool(), 0.0)
        inputs = self.inputs(batch.obs)
        loss = self.critic_loss(inputs, on_before, decision, known, target)
        self.critic_adam.minimise(loss.sum())
        self.soft_update()
        actor_loss, entropy, excess = self.actor_loss(inputs, on_before)
        alpha = self.log_alpha.exp()
        self.actor_adam.minimise(actor_loss.sum())
        self.temperature_adam.minimise((alpha * excess.detach()).sum())
        self.novelty.update(batch)
        return figures | {
            "shaper_critic_loss": loss.detach(),
            "shaper_entropy": entropy.detach(),
            "shaper_alpha": alpha.detach(),
            "novelty": novelty.mean(1),
        }

    def shaper_reward(self, reward: Tensor, bonus: Tensor, *, switched_on: Tensor, novelty: Tensor) -> Tensor:
        """The reward (P, B) of the shaper: the agent's with its bonus, novelty, less the cost of switching."""
        return reward + bonus - self.config.switch_cost * switched_on + self.config.novelty_weight * novelty

    def critic_loss(self, inputs: Tensor, on: Tensor, decision: Tensor, known: Tensor, target: Tensor) -> Tensor:
        """Squared errors of both critics over the steps that something was decided for, (P,)."""
        index = decision.clamp(min=0).unsqueeze(-1).expand(2, *decision.shape, 1)
        error = self._critics(self.critic, inputs, on).gather(-1, index).squeeze(-1) - target
        return ((error.square() * known).sum(-1) / known.sum(-1).clamp(min=1)).sum(0)

    def actor_loss(self, inputs: Tensor, on: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the actor lowers, its entropy, and by how much that is above its target, each (P,)."""
        log_prob = self.logits(inputs, on).log_softmax(-1)
        prob, alpha = log_prob.exp(), self.log_alpha.detach().exp()[:, None, None]
        value = self._critics(self.critic, inputs, on).amin(0).detach()
        loss = (prob * (alpha * log_prob - value)).sum(-1).mean(1)
        entropy = -(prob * log_prob).sum(-1)
        most = torch.where(on, math.log(max(1, self.outputs - 1)), math.log(self.outputs))
        return loss, entropy.mean(1), (entropy - self.config.entropy_share * most).mean(1)

    @torch.no_grad()
    def value(self, obs: Tensor, on: Tensor) -> Tensor:
        """Value (P, B) of a state in which shaping is on or off: while on, chance ends it before the actor chooses."""
        inputs = self.inputs(obs)
        log_prob = self.logits(inputs, on).log_softmax(-1)
        critics = self._critics(self.target_critic, inputs, on).amin(0)
        chosen = (log_prob.exp() * (critics - self.log_alpha.exp()[:, None, None] * log_prob)).sum(-1)
        return torch.where(on, chosen.lerp(critics[..., 0], self.config.stop_probability), chosen)

    @torch.no_grad()
    def soft_update(self) -> None:
        """Move the target critics a little towards the critics."""
        torch._foreach_lerp_(list(self.target_critic.parameters()), list(self.critic.parameters()), self.config.tau)

    # -------------------------------------------------------------- small parts

    def logits(self, inputs: Tensor, on: Tensor) -> Tensor:
        """The actor's logits (P, B, m + 1); while shaping is on, only chance can switch it off."""
        logits: Tensor = self.actor(inputs, on.unsqueeze(-1).float())
        off = torch.arange(self.outputs, device=logits.device) == 0
        return logits.masked_fill(on.unsqueeze(-1) & off, _NEVER)

    def _critics(self, critic: EncodedMLP, inputs: Tensor, on: Tensor) -> Tensor:
        """Both critics' values (2, P, B, m + 1)."""
        values: Tensor = critic(inputs.repeat(2, *(1,) * (inputs.dim() - 1)), on.repeat(2, 1).unsqueeze(-1).float())
        return values.view(2, *on.shape, self.outputs)

    def _standardised(self, obs: Tensor) -> Tensor:
        """States (P, B, …) as float vectors that have been standardised; of pictures, the newest frame."""
        return self.novelty.moments.standardise(self.novelty.states(obs), self.config.clip)

    def inputs(self, obs: Tensor) -> Tensor:
        """Inputs of the actor and the critics: pictures as they are, all else standardised."""
        return obs if self.on_pictures else self._standardised(obs)

    @torch.no_grad()
    def _novelty_of(self, obs: Tensor) -> Tensor:
        return self.novelty.novelty(self.novelty.states(obs))
