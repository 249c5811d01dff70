"""Twin delayed deep deterministic policy gradient (Fujimoto et al., 2018), a population of P independent agents.

A deterministic actor that maximises the first of twin critics, seldom; targets that are smoothed over nearby actions.
Losses are summed over P and everything else is elementwise or per seed, so seeds never touch each other.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import gymnasium as gym
import torch
from torch import Tensor

from sasr.agents.base import (
    Bounded,
    OffPolicyAgent,
    TwinCritic,
    as_vectors,
    check_settings,
    check_vectors,
    continuous_actions,
)
from sasr.experience.flatten import action_width, state_width
from sasr.experience.types import Batch, Host
from sasr.networks.adam import Adam
from sasr.networks.layers import NormName, PopulationMLP
from sasr.randomness import MemberStreams

# -------------------------------------------------------------------- config


@dataclass(frozen=True, kw_only=True)
class Td3Config:
    """Settings of TD3; the defaults are its authors', but for SAC's burn-in and critics. γ is the host's.

    Noise is in units of half the action range, each dimension's own.
    """

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic."""
    actor_lr: float = 3e-4
    """Adam's step size for the actor."""
    critic_lr: float = 3e-4
    """Adam's step size for the critics."""
    tau: float = 0.005
    """Soft-update rate of the target networks, which follow each actor update, in (0, 1]."""
    critic_norm: NormName = "layer"
    """Layer normalisation before each ReLU of the critics; with none, values may diverge on sparse rewards."""
    n_step: int = 1
    """n of the n-step returns: rewards that a target adds up before it bootstraps."""
    policy_frequency: int = 2
    """Critic updates per update of the actor and of the target networks."""
    exploration_noise: float = 0.1
    """Standard deviation of the exploration noise."""
    smoothing_noise: float = 0.2
    """Standard deviation of the noise on the target actor's actions (target policy smoothing)."""
    smoothing_clip: float = 0.5
    """That noise is clipped to this size."""
    batch_size: int = 256
    """Transitions of each seed in an update."""
    burn_in: int = 5_000
    """Steps of each seed with uniformly random actions before the first update."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.smoothing_clip >= 0.0:
            raise ValueError(f"smoothing_clip={self.smoothing_clip} must not be negative; the usual one is 0.5")


# ------------------------------------------------------------------ networks


class Actor(Bounded):
    """The deterministic policy: a = tanh(u(s))·scale + middle."""

    def __init__(
        self, obs_width: int, space: gym.spaces.Box, config: Td3Config, init: MemberStreams, device: torch.device
    ) -> None:
        super().__init__(space, device)
        widths = (obs_width, *config.hidden, len(self.scale))
        self.net = PopulationMLP(widths, generators=init.generators, device=device)

    def forward(self, obs: Tensor) -> Tensor:
        """Actions (P, B, A) for obs (P, B, k), differentiable; rounding may put them a last bit past a bound."""
        u: Tensor = self.net(obs)
        return u.tanh() * self.scale + self.middle


# ----------------------------------------------------------------- the agent


class Td3(OffPolicyAgent):
    """P twin delayed actor-critics, one for each seed of the host.

    >>> box = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> agent = Td3(Host(observation_space=box, action_space=box, seeds=(0, 1)))
    >>> agent.act(torch.zeros(2, 1, 3)).shape
    torch.Size([2, 1, 3])
    """

    compilable = ("bootstrap", "critic_loss", "actor_loss", "update_targets")

    def __init__(self, host: Host, config: Td3Config | None = None) -> None:
        super().__init__(host)
        self.config = config = config or Td3Config()
        self.action_space = space = continuous_actions(host.action_space, "TD3")
        self.obs_width, self.action_width = state_width(host.policy_space), action_width(space)

        init = MemberStreams(host.seeds, "agent", torch.device("cpu"))
        self.actor = Actor(self.obs_width, space, config, init, host.device)
        self.critic = TwinCritic(
            self.obs_width + self.action_width, config.hidden, init, host.device, norm=config.critic_norm
        )
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

        self.actor_adam = Adam(list(self.actor.parameters()), lr=config.actor_lr)
        self.critic_adam = Adam(list(self.critic.parameters()), lr=config.critic_lr)

        # Apart, so that how often one acts does not change what one learns with.
        self.act_streams = MemberStreams(host.seeds, "agent/act", host.device)
        self.update_streams = MemberStreams(host.seeds, "agent/update", host.device)

    # ---------------------------------------------------------------- update

    def draw_noise(self, batch_size: int) -> Tensor:
        """Standard normal numbers (P, B, A) that smooth one update's targets, each seed's from its own stream."""
        shape = (self.members, batch_size, self.action_width)
        return self.update_streams.normal(torch.empty(shape, device=self.device))

    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: Tensor, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update, nothing but tensor work, so that it can be captured."""
        loss, figures = self.critic_loss(batch, bonus, bootstrap)
        self.critic_adam.minimise(loss)
        if update_actor:
            figures |= self.update_actor(batch)
            self.update_targets()
        return figures

    def critic_loss(self, batch: Batch, bonus: Tensor, bootstrap: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of both critics, summed over P, and figures (P,)."""
        values = self.critic(self._vectors(batch.obs), self._vectors(batch.action))
        target = batch.reward + bonus + bootstrap
        loss = (values - target).square().mean(-1).sum(0)
        return loss.sum(), {"critic_loss": loss.detach(), "q_mean": values.detach().mean((0, 2))}

    @torch.no_grad()
    def bootstrap(self, batch: Batch, noise: Tensor) -> Tensor:
        """γⁿ·(1 − terminated)·min Q′(s′, a′), a′ near π′(s′), (P, B)."""
        next_obs = self._vectors(batch.next_obs)
        nearby = (noise * self.config.smoothing_noise).clamp(-self.config.smoothing_clip, self.config.smoothing_clip)
        action = self.actor.clip(self.target_actor(next_obs) + nearby * self.actor.scale)
        value: Tensor = self.target_critic(next_obs, action).amin(0)
        discount = self.discount if batch.discount is None else batch.discount
        # Only a true termination ends the return; a time limit cuts the episode, not the task.
        return discount * value.masked_fill(batch.terminated.bool(), 0.0)

    def update_actor(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the actor up the first critic."""
        loss = self.actor_loss(batch)
        self.actor_adam.minimise(loss.sum())
        return {"actor_loss": loss.detach()}

    def actor_loss(self, batch: Batch) -> Tensor:
        """What the actor lowers, (P,)."""
        obs = self._vectors(batch.obs)
        return -self.critic.first(obs, self.actor(obs)).mean(-1)

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move the target networks a little towards the networks."""
        for slow, fast in ((self.target_actor, self.actor), (self.target_critic, self.critic)):
            torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), self.config.tau)

    # ------------------------------------------------------------------- act

    @torch.no_grad()
    def act(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """Actions (P, E, *action_shape) for obs (P, E, *obs_shape), with noise unless `deterministic`."""
        flat = self._vectors(obs)
        check_vectors(flat, self.members, self.obs_width)
        action = self.actor(flat)
        if not deterministic:
            noise = self.act_streams.normal(action)
            action = action + noise * self.config.exploration_noise * self.actor.scale
        return self._in_space(self.actor.clip(action))

    @torch.no_grad()
    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        """Exploring actions (P, B, *action_shape) drawn from the asker's streams; nothing of the agent moves."""
        action = self.actor(self._vectors(obs))
        noise = streams.normal(action) * self.config.exploration_noise * self.actor.scale
        return self._in_space(self.actor.clip(action + noise))

    @torch.no_grad()
    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        """exp(−½·Σ((a − π(s))/σ)²), (P, B): the density of the noise that leads to an action over its largest one."""
        width = max(self.config.exploration_noise, 1e-3) * self.actor.scale
        off: Tensor = (self._vectors(action) - self.actor(self._vectors(obs))) / width
        return (-0.5 * off.square().sum(-1)).exp()

    @torch.no_grad()
    def act_randomly(self, envs: int = 1) -> Tensor:
        """Actions (P, E, *action_shape) uniform over the space, for the burn-in."""
        shape = (self.members, envs, self.action_width)
        return self._in_space(self.actor.at(self.act_streams.uniform(torch.empty(shape, device=self.device))))

    def _vectors(self, x: Tensor) -> Tensor:
        return as_vectors(x, self.actor.scale.dtype)

    def _in_space(self, action: Tensor) -> Tensor:
        return action.reshape(*action.shape[:2], *self.action_space.shape)
