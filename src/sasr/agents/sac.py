"""Soft actor-critic for continuous actions (Haarnoja et al., 2018), a population of P independent agents.

Twin critics, a squashed Gaussian actor and a tuned temperature. Losses are summed over P and everything else is
elementwise or per seed, so seeds never touch each other.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from sasr.agents.base import Bounded, OffPolicyAgent, TwinCritic, as_vectors, check_vectors, continuous_actions
from sasr.agents.sac_config import SacConfig
from sasr.experience.flatten import action_width, state_width
from sasr.experience.types import Batch, Host
from sasr.networks.adam import Adam
from sasr.networks.layers import PopulationMLP, RunningNormaliser
from sasr.networks.noisy import NoisyMLP
from sasr.randomness import MemberStreams


class UpdateNoise(NamedTuple):
    """The standard normal numbers of one update; passed in, so that it is a function of its arguments."""

    target: Tensor  # (P, B, A) for the actions at next_obs
    actor: Tensor  # (policy_frequency, P, B, A) for each of the actor's inner updates


class Actor(Bounded):
    """The squashed Gaussian policy: a = tanh(u)·scale + middle, u ~ N(μ(s), σ(s)²)."""

    def __init__(
        self, obs_width: int, space: gym.spaces.Box, config: SacConfig, init: MemberStreams, device: torch.device
    ) -> None:
        super().__init__(space, device)
        widths = (obs_width, *config.hidden, 2 * len(self.scale))
        self.net: PopulationMLP | NoisyMLP
        if config.exploration == "noisy":
            self.net = NoisyMLP(widths, noise_scale=config.noise_scale, generators=init.generators, device=device)
        else:
            self.net = PopulationMLP(widths, generators=init.generators, device=device)
        self.log_std_min, self.log_std_max = config.log_std_min, config.log_std_max

    def distribution(self, obs: Tensor, still: bool = False) -> tuple[Tensor, Tensor]:
        """μ and log σ, each (P, B, A), for obs (P, B, k); `still` leaves noise in the weights out."""
        mean, raw = self.net(obs, still=still).chunk(2, dim=-1)
        # Squashed and not clamped: a clamp has no gradient once it is outside.
        return mean, self.log_std_min + 0.5 * (self.log_std_max - self.log_std_min) * (raw.tanh() + 1.0)

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (P, B, A) and their log densities (P, B), differentiable."""
        mean, log_std = self.distribution(obs)
        u = mean + log_std.exp() * noise
        log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        # log(1 − tanh²u) as 2·(log 2 − u − softplus(−2u)): exact where 1 − tanh²u underflows.
        log_slope = self.scale.log() + 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))
        return u.tanh() * self.scale + self.middle, (log_normal - log_slope).sum(-1)


# ----------------------------------------------------------------- the agent


class Sac(OffPolicyAgent):
    """P soft actor-critics, one for each seed of the host.

    >>> box = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> agent = Sac(Host(observation_space=box, action_space=box, seeds=(0, 1)))
    >>> agent.act(torch.zeros(2, 1, 3)).shape
    torch.Size([2, 1, 3])
    """

    log_alpha: Tensor  # (P,)
    compilable: tuple[str, ...] = ("next_value", "critic_loss", "actor_loss", "update_targets", "explore")

    def __init__(self, host: Host, config: SacConfig | None = None) -> None:
        super().__init__(host)
        self.config = config = config or SacConfig()
        self.action_space = space = continuous_actions(host.action_space, "SAC")
        self.obs_width, self.action_width = state_width(host.policy_space), action_width(space)
        self.target_entropy = -float(self.action_width) if config.target_entropy is None else config.target_entropy
        init = MemberStreams(host.seeds, "agent", torch.device("cpu"))
        self.actor = Actor(self.obs_width, space, config, init, host.device)
        self.inputs = self.obs_width + self.action_width
        self.critic = TwinCritic(self.inputs, config.hidden, init, host.device, norm=config.critic_norm)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(host.members, device=host.device))
        self.normaliser: RunningNormaliser | None = None
        if config.normalise_observations:
            self.normaliser = RunningNormaliser(host.members, self.obs_width, host.device)

        self.actor_adam = Adam(list(self.actor.parameters()), lr=config.actor_lr)
        self.critic_adam = Adam(list(self.critic.parameters()), lr=config.critic_lr)
        self.temperature_adam = Adam([self.log_alpha], lr=config.temperature_lr)

        # Apart, so that how often one acts does not change what one learns with.
        self.act_streams = MemberStreams(host.seeds, "agent/act", host.device)
        self.update_streams = MemberStreams(host.seeds, "agent/update", host.device)

    # ---------------------------------------------------------------- update

    def draw_noise(self, batch_size: int) -> UpdateNoise:
        """Fresh noise for one update, each seed's from its own stream."""
        shape = (self.members, 1 + self.config.policy_frequency, batch_size, self.action_width)
        noise = self.update_streams.normal(torch.empty(shape, device=self.device))
        return UpdateNoise(noise[:, 0], noise[:, 1:].transpose(0, 1))

    def bootstrap(self, batch: Batch, noise: UpdateNoise) -> Tensor:
        """The part of the critics' target that needs no reward, (P, B)."""
        self.actor.net.resample(self.update_streams)
        return self.next_value(batch, noise.target)

    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: UpdateNoise, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update, nothing but tensor work, so that it can be captured."""
        loss, figures = self.critic_loss(batch, bonus, bootstrap)
        self.critic_adam.minimise(loss)
        self.update_targets()
        if update_actor:
            for actor_noise in noise.actor:
                figures |= self.update_actor(batch, actor_noise)
        if self.normaliser is not None:
            self.normaliser.update(self._vectors(batch.obs))
        return figures

    @torch.no_grad()
    def next_value(self, batch: Batch, noise: Tensor) -> Tensor:
        """γⁿ·(1 − terminated)·(min Q′ − α·log π)(s′, a′), (P, B)."""
        next_obs = self._observed(batch.next_obs)
        action, log_prob = self.actor.sample(next_obs, noise)
        value: Tensor = self.target_critic(next_obs, action).amin(0) - self.log_alpha.exp()[:, None] * log_prob
        discount = self.discount if batch.discount is None else batch.discount
        # Only a true termination ends the return; a time limit cuts the episode, not the task.
        return discount * value.masked_fill(batch.terminated.bool(), 0.0)

    def critic_loss(self, batch: Batch, bonus: Tensor, bootstrap: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared errors of both critics, summed over P, and figures (P,)."""
        values = self.critic(self._observed(batch.obs), self._vectors(batch.action))
        target = batch.reward + bonus + bootstrap
        loss = (values - target).square().mean(-1).sum(0)
        return loss.sum(), {"critic_loss": loss.detach(), "q_mean": values.detach().mean((0, 2))}

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move the target critics a little towards the critics."""
        torch._foreach_lerp_(list(self.target_critic.parameters()), list(self.critic.parameters()), self.config.tau)

    def update_actor(self, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
        """One step of the actor and of the temperature."""
        self.actor.net.resample(self.update_streams)
        loss, slope, figures = self.actor_loss(batch, noise)
        self.actor_adam.minimise(loss)
        # With log densities from before the actor's step: another pass would move α by less than its noise.
        self.temperature_adam.step([slope])
        return figures | self.actor.net.noise_figures()

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The actor's loss, summed over P; the gradient of α·(entropy − target) by log α; figures (P,)."""
        obs = self._observed(batch.obs)
        action, log_prob = self.actor.sample(obs, noise)
        value = self.maximised_value(obs, action)
        alpha = self.log_alpha.detach().exp()
        loss = (alpha[:, None] * log_prob - value).mean(-1)
        entropy = -log_prob.detach().mean(-1)
        slope = alpha * (entropy - self.target_entropy)
        return loss.sum(), slope, {"actor_loss": loss.detach(), "entropy": entropy, "alpha": alpha}

    def maximised_value(self, obs: Tensor, action: Tensor) -> Tensor:
        """What the actor maximises, (P, B); the gradient goes to the actions alone."""
        value: Tensor = self.critic(obs, action, frozen=True).amin(0)
        return value

    def _observed(self, obs: Tensor) -> Tensor:
        """Observations (P, B, *obs_shape) as the networks take them, (P, B, k)."""
        vectors = self._vectors(obs)
        return vectors if self.normaliser is None else self.normaliser(vectors)

    def _vectors(self, x: Tensor) -> Tensor:
        return as_vectors(x, self.log_alpha.dtype)

    # ------------------------------------------------------------------- act

    @torch.no_grad()
    def act(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """Actions (P, E, *action_shape) for obs (P, E, *obs_shape); the middle, tanh(μ), if `deterministic`."""
        check_vectors(self._vectors(obs), self.members, self.obs_width)
        if deterministic:
            mean, _ = self.actor.distribution(self._observed(obs), still=True)
            return self._in_space(self.actor.squash(mean))
        self.actor.net.resample(self.act_streams)
        return self.propose(obs, self.act_streams)

    @torch.no_grad()
    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        """Exploring actions (P, B, *action_shape) drawn from these streams; nothing of the agent moves."""
        noise = streams.normal(self.log_alpha.new_empty(*obs.shape[:2], self.action_width))
        return self._in_space(self.explore(obs, noise))

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Actions (P, B, A) drawn for obs (P, B, *obs_shape) with standard normal noise (P, B, A)."""
        u, log_std = self.actor.distribution(self._observed(obs))
        return self.actor.squash(u + log_std.exp() * noise)

    @torch.no_grad()
    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        """exp(−½·Σ((u − μ)/σ)²), (P, B): the density of actions before squashing over the largest one."""
        mean, log_std = self.actor.distribution(self._observed(obs))
        inside = ((self._vectors(action) - self.actor.middle) / self.actor.scale).clamp(-1.0 + 1e-6, 1.0 - 1e-6)
        return (-0.5 * ((inside.atanh() - mean) / log_std.exp()).square().sum(-1)).exp()

    @torch.no_grad()
    def act_randomly(self, envs: int = 1) -> Tensor:
        """Actions (P, E, *action_shape) uniform over the space, for the burn-in."""
        shape = (self.members, envs, self.action_width)
        return self._in_space(self.actor.at(self.act_streams.uniform(torch.empty(shape, device=self.device))))

    def _in_space(self, action: Tensor) -> Tensor:
        return action.reshape(*action.shape[:2], *self.action_space.shape)
