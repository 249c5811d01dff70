"""Soft actor-critic for discrete actions (Christodoulou, 2019), a population of P independent agents.

Critics and actor say something of every action at once, so expectations over actions are sums and no action is drawn
to learn from. Losses are summed over P and everything else is elementwise or per seed, so seeds never touch each
other.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sasr.agents.base import OffPolicyAgent, check_settings, discrete_actions
from sasr.experience.types import Batch, Host
from sasr.networks.adam import Adam
from sasr.networks.encoder import PopulationNet
from sasr.networks.layers import NormName
from sasr.randomness import MemberStreams

# -------------------------------------------------------------------- config


@dataclass(frozen=True, kw_only=True)
class SacDiscreteConfig:
    """Settings of discrete SAC. The discount is the host's."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic, for vector observations."""
    features: int = 512
    """Width of the layer after the convolutions, for image observations."""
    actor_lr: float = 3e-4
    """Adam's step size for the actor."""
    critic_lr: float = 3e-4
    """Adam's step size for the critics."""
    temperature_lr: float = 3e-4
    """Adam's step size for log α; α starts at 1."""
    entropy_share: float = 0.5
    """Target entropy as a share of the maximum, log |A|, in [0, 1)."""
    critic_norm: NormName = "layer"
    """Layer normalisation before each ReLU of the critics; with none, values may diverge on sparse rewards."""
    n_step: int = 1
    """n of the n-step returns: rewards that a target adds up before it bootstraps."""
    tau: float = 0.005
    """Soft-update rate of the target critics, in (0, 1]."""
    batch_size: int = 256
    """Transitions of each seed in an update; 64 is usual on images."""
    update_every: int = 1
    """Environment steps of each seed per update; 4 is usual on games."""
    burn_in: int = 5_000
    """Steps of each seed with uniformly random actions before the first update."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not 0.0 <= self.entropy_share < 1.0:
            raise ValueError(
                f"entropy_share={self.entropy_share} must be in [0, 1): no policy but the uniform one reaches 1, and "
                "the temperature would rise for ever"
            )


# ------------------------------------------------------------------ networks


class TwinValues(nn.Module):
    """Two functions for each seed that value every action; network P + p is seed p's second one."""

    def __init__(
        self, space: gym.Space[Any], actions: int, config: SacDiscreteConfig, init: MemberStreams, device: torch.device
    ) -> None:
        super().__init__()
        self.net = _network(space, actions, config, [*init.generators] * 2, device, norm=config.critic_norm)

    def forward(self, obs: Tensor) -> Tensor:
        """Values (2, P, B, A)."""
        values: Tensor = self.net(obs.repeat(2, *(1,) * (obs.dim() - 1)))
        return values.view(2, *obs.shape[:2], -1)


def _network(
    space: gym.Space[Any],
    actions: int,
    config: SacDiscreteConfig,
    generators: Sequence[torch.Generator],
    device: torch.device,
    norm: NormName = "none",
) -> PopulationNet:
    # Actor and critics each have an encoder of their own: a shared one would be moved under the actor by the critics'
    # errors, or, held to the critics alone, leave the actor with what serves them.
    return PopulationNet(
        space,
        actions,
        hidden=config.hidden,
        features=config.features,
        generators=generators,
        device=device,
        norm=norm,
    )


# ----------------------------------------------------------------- the agent


class SacDiscrete(OffPolicyAgent):
    """P soft actor-critics for discrete actions, one for each seed of the host.

    >>> space = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> agent = SacDiscrete(Host(observation_space=space, action_space=gym.spaces.Discrete(4), seeds=(0, 1)))
    >>> agent.act(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    log_alpha: Tensor  # (P,)
    compilable: tuple[str, ...] = ("bootstrap", "critic_loss", "actor_loss", "update_targets")

    def __init__(self, host: Host, config: SacDiscreteConfig | None = None) -> None:
        super().__init__(host)
        self.config = config = config or SacDiscreteConfig()
        space = discrete_actions(host.action_space, "discrete SAC")
        self.actions, self.start = int(space.n), int(space.start)
        self.target_entropy = config.entropy_share * math.log(self.actions)

        init = MemberStreams(host.seeds, "agent", torch.device("cpu"))
        self.actor = _network(host.policy_space, self.actions, config, init.generators, host.device)
        self.critic = TwinValues(host.policy_space, self.actions, config, init, host.device)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(host.members, device=host.device))

        self.actor_adam = Adam(list(self.actor.parameters()), lr=config.actor_lr)
        self.critic_adam = Adam(list(self.critic.parameters()), lr=config.critic_lr)
        self.temperature_adam = Adam([self.log_alpha], lr=config.temperature_lr)
        self.act_streams = MemberStreams(host.seeds, "agent/act", host.device)

    # ---------------------------------------------------------------- update

    def draw_noise(self, batch_size: int) -> None:
        """Nothing: expectations over actions are exact."""

    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: None, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update, nothing but tensor work, so that it can be captured."""
        loss, figures = self.critic_loss(batch, bonus, bootstrap)
        self.critic_adam.minimise(loss)
        self.update_targets()
        return figures | self.update_actor(batch)

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move the target critics a little towards the critics."""
        torch._foreach_lerp_(list(self.target_critic.parameters()), list(self.critic.parameters()), self.config.tau)

    def critic_loss(self, batch: Batch, bonus: Tensor, bootstrap: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of both critics, summed over P, and figures (P,)."""
        values = self.of_taken(self.critic(batch.obs), batch)
        target = batch.reward + bonus + bootstrap
        loss = (values - target).square().mean(-1).sum(0)
        return loss.sum(), {"critic_loss": loss.detach(), "q_mean": values.detach().mean((0, 2))}

    def of_taken(self, values: Tensor, batch: Batch) -> Tensor:
        """Values (2, P, B) of the actions that were taken, out of those of all actions (2, P, B, A)."""
        taken = (batch.action.long() - self.start).expand(2, -1, -1).unsqueeze(-1)
        return values.gather(-1, taken).squeeze(-1)

    @torch.no_grad()
    def bootstrap(self, batch: Batch, noise: None = None) -> Tensor:
        """γⁿ·(1 − terminated)·E[min Q′ − α·log π](s′), (P, B)."""
        log_prob = self.log_policy(batch.next_obs)
        alpha = self.log_alpha.exp()[:, None, None]
        value: Tensor = (log_prob.exp() * (self.target_critic(batch.next_obs).amin(0) - alpha * log_prob)).sum(-1)
        discount = self.discount if batch.discount is None else batch.discount
        # Only a true termination ends the return; a time limit cuts the episode, not the task.
        return discount * value.masked_fill(batch.terminated.bool(), 0.0)

    def update_actor(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the actor and of the temperature."""
        loss, slope, figures = self.actor_loss(batch)
        self.actor_adam.minimise(loss)
        # With the entropy from before the actor's step, as in SAC.
        self.temperature_adam.step([slope])
        return figures

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The actor's loss, summed over P; the gradient of α·(entropy − target) by log α; figures (P,)."""
        log_prob = self.log_policy(batch.obs)
        with torch.no_grad():
            values = self.maximised_values(batch.obs)
        alpha = self.log_alpha.detach().exp()
        prob = log_prob.exp()
        # Summed over actions: a mean over them, as some have it, would divide the step by |A| for nothing.
        loss = (prob * (alpha[:, None, None] * log_prob - values)).sum(-1).mean(-1)
        entropy = -(prob * log_prob).detach().sum(-1).mean(-1)
        slope = alpha * (entropy - self.target_entropy)
        return loss.sum(), slope, {"actor_loss": loss.detach(), "entropy": entropy, "alpha": alpha}

    def maximised_values(self, obs: Tensor) -> Tensor:
        """What the actor maximises, for every action, (P, B, A)."""
        values: Tensor = self.critic(obs).amin(0)
        return values

    def log_policy(self, obs: Tensor) -> Tensor:
        """Log probabilities (P, B, A) of all actions."""
        logits: Tensor = self.actor(obs)
        return logits.log_softmax(-1)

    # ------------------------------------------------------------------- act

    @torch.no_grad()
    def act(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """Actions (P, E) int64 for obs (P, E, *obs_shape); `deterministic` takes the likeliest ones."""
        self.actor.check(obs, self.members)
        scores: Tensor = self.actor(obs)
        if not deterministic:
            # The largest of log π plus Gumbel noise is a draw from π.
            scores = scores - self.act_streams.uniform(scores).log().neg().log()
        return scores.argmax(-1) + self.start

    @torch.no_grad()
    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        """Exploring actions (P, B) int64 drawn from the asker's streams; nothing of the agent moves."""
        scores: Tensor = self.actor(obs)
        return (scores - streams.uniform(scores).log().neg().log()).argmax(-1) + self.start

    @torch.no_grad()
    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        """Probabilities of actions (P, B) over those of the likeliest ones, (P, B)."""
        scores: Tensor = self.actor(obs)
        chosen = scores.gather(-1, (action - self.start).unsqueeze(-1)).squeeze(-1)
        return (chosen - scores.amax(-1)).exp()

    @torch.no_grad()
    def act_randomly(self, envs: int = 1) -> Tensor:
        """Actions (P, E) int64 uniform over the space, for the burn-in."""
        share = self.act_streams.uniform(torch.empty((self.members, envs), device=self.device))
        # A share just below 1 may round up to the number of actions.
        return (share * self.actions).long().clamp(max=self.actions - 1) + self.start
