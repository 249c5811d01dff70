"""Soft actor-critic for continuous actions (Haarnoja et al., 2018), a population of P independent agents.

Twin critics, a squashed Gaussian actor and a tuned temperature. Losses are summed over P and everything else is
elementwise or per member, so members never touch each other.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from sasr.agents.action_spaces import Bounded, as_vectors, check_vectors, continuous_actions
from sasr.agents.base import OffPolicyAgent, TwinCritic, check_settings
from sasr.errors import unknown_name
from sasr.experience.flatten import action_width, state_width
from sasr.experience.types import Batch, Host
from sasr.networks.adam import Adam
from sasr.networks.layers import NormName, PopulationMLP, RunningNormaliser
from sasr.networks.noisy import NoisyMLP
from sasr.randomness import MemberStreams

# -------------------------------------------------------------------- config


@dataclass(frozen=True, kw_only=True)
class SacConfig:
    """Settings of SAC, chosen for rare rewards; `SacConfig.paper()` has those of the SASR paper. γ is the host's."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic."""
    actor_lr: float = 3e-4
    """Adam's step size for the actor."""
    critic_lr: float = 3e-4
    """Adam's step size for the critics."""
    temperature_lr: float = 1e-3
    """Adam's step size for log α; α starts at 1."""
    target_entropy: float | None = None
    """Entropy that the temperature is tuned towards; None is minus the number of action dimensions."""
    critic_norm: NormName = "layer"
    """Layer normalisation before each ReLU of the critics, or none: then values run away where rewards are rare."""
    normalise_observations: bool = True
    """Bring every feature of the observations to mean 0 and variance 1, by the batches so far."""
    n_step: int = 3
    """Steps whose rewards a target adds up before the critics estimate the rest."""
    tau: float = 0.005
    """Share of the critics that moves into the target critics at each update, in (0, 1]."""
    policy_frequency: int = 2
    """The actor and the temperature learn at every this many updates, this many times on the same batch."""
    batch_size: int = 256
    """Transitions of each member in an update."""
    burn_in: int = 5_000
    """Steps of each member with uniformly random actions before the first update."""
    log_std_min: float = -5.0
    """Lower end of the actor's log standard deviation, before squashing."""
    log_std_max: float = 2.0
    """Upper end of the actor's log standard deviation, before squashing."""
    exploration: Literal["gaussian", "noisy"] = "gaussian"
    """Where variety of actions comes from: the actor's Gaussian alone, or noise in its hidden layers too (NoisyNet)."""
    noise_scale: float = 0.5
    """σ₀, the first size of the noise under exploration=noisy; the SASR authors' code has 10."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.exploration not in ("gaussian", "noisy"):
            raise unknown_name("exploration", self.exploration, ("gaussian", "noisy"))
        if not self.log_std_min < self.log_std_max:
            raise ValueError(f"log_std_min={self.log_std_min} must be below log_std_max={self.log_std_max}")

    @classmethod
    def paper(cls, **changes: Any) -> SacConfig:
        """The hyperparameter table of the SASR paper, with some of its values replaced.

        >>> SacConfig.paper(hidden=(64, 64)).critic_lr
        0.001
        """
        table: dict[str, Any] = {
            "critic_lr": 1e-3,
            "temperature_lr": 1e-4,
            "critic_norm": "none",
            "normalise_observations": False,
            "n_step": 1,
        }
        return cls(**{**table, **changes})


class UpdateNoise(NamedTuple):
    """The standard normal numbers one update uses; passed in, so that an update is a function of its arguments."""

    target: Tensor  # (P, B, A) for the actions at next_obs
    actor: Tensor  # (policy_frequency, P, B, A) for each of the actor's inner updates


# ------------------------------------------------------------------ networks


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

    def resample(self, streams: MemberStreams) -> None:
        """New noise for the weights, if there is any in them."""
        if isinstance(self.net, NoisyMLP):
            self.net.resample(streams)

    def distribution(self, obs: Tensor, still: bool = False) -> tuple[Tensor, Tensor]:
        """μ and log σ, each (P, B, A), for obs (P, B, k); `still` leaves noise in the weights out."""
        out = self.net(obs, still) if isinstance(self.net, NoisyMLP) else self.net(obs)
        mean, raw = out.chunk(2, dim=-1)
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
    compilable = ("next_value", "critic_loss", "actor_loss", "update_targets", "explore")

    def __init__(self, host: Host, config: SacConfig | None = None) -> None:
        super().__init__(host)
        self.config = config = config or SacConfig()
        self.action_space = space = continuous_actions(host.action_space, "SAC")
        self.obs_width, self.action_width = state_width(host.observation_space), action_width(space)
        self.target_entropy = -float(self.action_width) if config.target_entropy is None else config.target_entropy

        init = MemberStreams(host.seeds, "agent", torch.device("cpu"))
        self.actor = Actor(self.obs_width, space, config, init, host.device)
        self.critic = TwinCritic(
            self.obs_width + self.action_width, config.hidden, init, host.device, norm=config.critic_norm
        )
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
        """Fresh noise for one update, each member's from its own stream."""
        shape = (self.members, 1 + self.config.policy_frequency, batch_size, self.action_width)
        target, *actor = self.update_streams.normal(torch.empty(shape, device=self.device)).unbind(1)
        return UpdateNoise(target, torch.stack(actor))

    def bootstrap(self, batch: Batch, noise: UpdateNoise) -> Tensor:
        """The part of the critics' target that needs no reward, (P, B)."""
        self.actor.resample(self.update_streams)
        return self.next_value(batch, noise.target)

    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: UpdateNoise, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update, nothing but tensor work, so that it can be captured."""
        figures = self.update_critic(batch, bonus, bootstrap)
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

    def update_critic(self, batch: Batch, bonus: Tensor, bootstrap: Tensor) -> dict[str, Tensor]:
        """One step of both critics."""
        loss, figures = self.critic_loss(batch, bonus, bootstrap)
        self.critic_adam.minimise(loss)
        return figures

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
        self.actor.resample(self.update_streams)
        loss, slope, figures = self.actor_loss(batch, noise)
        self.actor_adam.minimise(loss)
        # With the log densities from before the actor's step: another pass would move α by less than its own noise.
        self.temperature_adam.step([slope])
        if isinstance(self.actor.net, NoisyMLP):
            figures["weight_noise"] = self.actor.net.noise_size().detach()
        return figures

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The actor's loss, summed over P; the gradient of α·(entropy − target) by log α (P,); figures (P,)."""
        obs = self._observed(batch.obs)
        action, log_prob = self.actor.sample(obs, noise)
        value = self.critic(obs, action, frozen=True).amin(0)
        alpha = self.log_alpha.detach().exp()
        loss = (alpha[:, None] * log_prob - value).mean(-1)
        entropy = -log_prob.detach().mean(-1)
        slope = alpha * (entropy - self.target_entropy)
        return loss.sum(), slope, {"actor_loss": loss.detach(), "entropy": entropy, "alpha": alpha}

    def _observed(self, obs: Tensor) -> Tensor:
        """Observations (P, B, *obs_shape) as the networks take them, (P, B, k)."""
        vectors = self._vectors(obs)
        return vectors if self.normaliser is None else self.normaliser(vectors)

    def _vectors(self, x: Tensor) -> Tensor:
        return as_vectors(x, self.log_alpha.dtype)

    # ------------------------------------------------------------------- act

    @torch.no_grad()
    def act(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """Actions (P, E, *action_shape) for obs (P, E, *obs_shape); `deterministic` takes the middle, tanh(μ)."""
        check_vectors(self._vectors(obs), self.members, self.obs_width)
        if deterministic:
            mean, _ = self.actor.distribution(self._observed(obs), still=True)
            return self._in_space(self.actor.squash(mean))
        self.actor.resample(self.act_streams)
        return self._explored(obs, self.act_streams)

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Actions (P, B, A) drawn for obs (P, B, *obs_shape) with standard normal noise (P, B, A)."""
        u, log_std = self.actor.distribution(self._observed(obs))
        return self.actor.squash(u + log_std.exp() * noise)

    @torch.no_grad()
    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        """Exploring actions (P, B, *action_shape) drawn from the asker's streams; nothing of the agent moves."""
        return self._explored(obs, streams)

    def _explored(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        noise = streams.normal(self.log_alpha.new_empty(*obs.shape[:2], self.action_width))
        return self._in_space(self.explore(obs, noise))

    @torch.no_grad()
    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        """exp(−½·Σ((u − μ)/σ)²), (P, B): the density of actions before squashing over the largest one there is."""
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
