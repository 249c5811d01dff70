"""Proximal policy optimisation (Schulman et al., 2017), a population of P independent agents.

A clipped surrogate objective on generalised advantage estimates (GAE). A shaper's bonus is part of the reward, or a
stream of its own with a value head of its own, as in random network distillation (Burda et al., 2019). Losses are
summed over P, gradients are shortened per seed and all else is elementwise, so seeds never touch each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sasr.agents.actor_critic import actor_critic_for
from sasr.agents.policies import policy_for
from sasr.experience.checked_module import CheckedModule
from sasr.experience.types import Host
from sasr.networks.adam import Adam
from sasr.randomness import MemberStreams

# -------------------------------------------------------------------- config


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """Settings of PPO; the defaults are those usual for continuous control. The discount is the host's."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the actor and of the critic, for vector observations."""
    activation: str = "tanh"
    """Activation function: tanh or relu."""
    standardise: bool = True
    """Standardise vector observations."""
    features: int = 512
    """Width of the layer after the convolutions, for image observations."""
    rollout: int = 2_048
    """Steps of each seed per rollout, over all its environments."""
    epochs: int = 10
    """Epochs per rollout."""
    minibatches: int = 32
    """Minibatches per epoch."""
    lr: float = 3e-4
    """Adam's step size."""
    lr_decay: int | None = None
    """Steps of each seed over which the step size falls linearly to 0; None keeps it constant."""
    clip: float = 0.2
    """Clipping range of the likelihood ratio."""
    value_clip: float | None = None
    """Clipping range of the values around those before the rollout's first update; None does not clip."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation, in [0, 1]."""
    entropy_weight: float = 0.0
    """Coefficient of the entropy bonus."""
    value_weight: float = 0.5
    """Coefficient of the value loss, half the squared error."""
    max_grad_norm: float | None = 0.5
    """Maximum gradient norm of a seed; None does not clip."""
    value_heads: int | None = None
    """1: a shaper's bonus is added to the reward. 2: it has a value head of its own, and its return continues across
    episodes. None leaves the choice to the shaper."""
    intrinsic_discount: float = 0.99
    """γ of the bonus with two value heads, in [0, 1)."""
    extrinsic_weight: float = 2.0
    """Weight of the advantages of the environment's reward; only with two value heads."""
    intrinsic_weight: float = 1.0
    """Weight of the advantages of the bonus; only with two value heads."""

    def __post_init__(self) -> None:
        for name in ("features", "rollout", "epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("lr", "entropy_weight", "value_weight", "extrinsic_weight", "intrinsic_weight"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        for name in ("clip", "value_clip", "max_grad_norm", "lr_decay"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value} must be above 0{'' if name == 'clip' else ', or None for none'}")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden} has a layer without units; the usual ones are (64, 64)")
        if not 0.0 <= self.gae_lambda <= 1.0:
            raise ValueError(f"gae_lambda={self.gae_lambda} must be in [0, 1]; 0.95 is the usual one")
        if not 0.0 <= self.intrinsic_discount < 1.0:
            raise ValueError(f"intrinsic_discount={self.intrinsic_discount} must be in [0, 1); 0.99 is the usual one")
        if self.value_heads not in (None, 1, 2):
            raise ValueError(f"value_heads={self.value_heads} must be 1, 2 (the bonus has its own), or None")


class Minibatch(NamedTuple):
    """B steps of each of P seeds and what is to be learned from them; H value heads."""

    obs: Tensor  # (P, B, *obs_shape)
    action: Tensor  # (P, B, *action_shape) as drawn, before clipping to the space
    log_prob: Tensor  # (P, B) of the action, by the policy that drew it
    advantage: Tensor  # (P, B)
    value: Tensor  # (P, B, H) before the rollout's first update
    target: Tensor  # (P, B, H) what the values should be


class Estimates(NamedTuple):
    """How good the actions of a rollout were: n steps of each of E environments."""

    advantage: Tensor  # (P, n, E) weighted over the reward streams
    value: Tensor  # (P, n, E, H)
    target: Tensor  # (P, n, E, H)


# ----------------------------------------------------------------- the agent


class Ppo(CheckedModule):
    """P agents of proximal policy optimisation, one for each seed of the host.

    >>> import gymnasium as gym
    >>> box = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> agent = Ppo(Host(observation_space=box, action_space=gym.spaces.Discrete(4), seeds=(0, 1)))
    >>> agent.act(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    compilable = ("loss",)

    def __init__(self, host: Host, config: PpoConfig | None = None) -> None:
        super().__init__()
        config = config or PpoConfig()
        self.heads = config.value_heads or (2 if host.separate_stream else 1)
        self.config = config = replace(config, value_heads=self.heads)
        self.members, self.device, self.discount = host.members, host.device, host.discount
        self.obs_shape = tuple(host.policy_space.shape or ())
        self.rows = config.rollout // host.envs
        self.batch_size = self.rows * host.envs // config.minibatches
        if self.batch_size < 2:
            raise ValueError(
                f"rollout={config.rollout} of {host.envs} environments gives {config.minibatches} minibatches of "
                f"{self.batch_size} steps, and advantages are compared within one; take a longer rollout or fewer"
            )
        init = MemberStreams(host.seeds, "agent", torch.device("cpu"))
        self.policy = policy_for(host.action_space, host.members, host.device)
        self.net = actor_critic_for(
            host.policy_space,
            self.policy.outputs,
            self.heads,
            hidden=config.hidden,
            activation=config.activation,
            standardise=config.standardise,
            features=config.features,
            generators=init.generators,
            device=host.device,
        )
        self.adam = Adam(
            [*self.net.parameters(), *self.policy.parameters()],
            lr=torch.tensor(config.lr, device=host.device),
            epsilon=1e-5,
            max_norm=config.max_grad_norm,
        )
        self.act_streams = MemberStreams(host.seeds, "agent/act", host.device)
        self.update_streams = MemberStreams(host.seeds, "agent/update", host.device)
        self.steps_per_rollout = self.rows * host.envs
        self.rollouts = 0  # learned from; an int and not a tensor: the schedule is decided without the device

    # ------------------------------------------------------------ advantages

    @torch.no_grad()
    def estimate(
        self,
        obs: Tensor,
        next_obs: Tensor,
        following: Tensor,
        reward: Tensor,
        bonus: Tensor,
        terminated: Tensor,
        cut: Tensor,
    ) -> Estimates:
        """Advantages and value targets of a rollout, its tensors (P, n, E, …).

        Args:
            obs: Where the steps began.
            next_obs: Where they led.
            following: Where the environments stand now, (P, E, …): behind the last row, in a new episode if one ended.
            reward: The environment's.
            bonus: The shaper's.
            terminated: Where the task ended; a time limit is not in here.
            cut: Where the next row is not the step's own continuation; where the task ended too.
        """
        # All from the network as it is now: the first row was acted on before the last round of learning.
        config, trace = self.config, self.config.gae_lambda
        value, next_value = self._values(obs), self._values(next_obs)
        # Only a true termination ends the return; a time limit cuts the episode, not the task.
        next_extrinsic = next_value[..., 0].masked_fill(terminated, 0.0)
        if self.heads == 1:
            advantage = gae(reward + bonus, value[..., 0], next_extrinsic, cut, discount=self.discount, trace=trace)
            return Estimates(advantage, value, advantage[..., None] + value)

        extrinsic = gae(reward, value[..., 0], next_extrinsic, cut, discount=self.discount, trace=trace)
        # What is new stays new when an episode ends: this return goes on into the next one, or exploring would earn
        # less where it may be fatal.
        next_intrinsic = torch.cat([value[:, 1:, :, 1], self.net.value(following)[:, None, :, 1]], dim=1)
        never_cut = torch.zeros_like(cut)
        intrinsic = gae(
            bonus, value[..., 1], next_intrinsic, never_cut, discount=config.intrinsic_discount, trace=trace
        )
        advantage = config.extrinsic_weight * extrinsic + config.intrinsic_weight * intrinsic
        return Estimates(advantage, value, torch.stack([extrinsic, intrinsic], dim=-1) + value)

    def _values(self, obs: Tensor) -> Tensor:
        """Values (P, n, E, H) of observations (P, n, E, …), no more at a time than an update has."""
        parts = torch.split(obs.flatten(1, 2), self.batch_size, dim=1)
        return torch.cat([self.net.value(part) for part in parts], dim=1).view(*obs.shape[:3], self.heads)

    # ---------------------------------------------------------------- update

    def draw_order(self) -> Tensor:
        """A random order of a rollout's steps, (minibatches, P, batch_size), each seed's from its own stream.

        Steps that do not fill a minibatch sit out; the next order leaves others out.
        """
        P, N = self.members, self.steps_per_rollout
        keys = self.update_streams.uniform(torch.empty((P, N), device=self.device))
        order = keys.argsort(dim=1)[:, : self.config.minibatches * self.batch_size]
        return order.view(P, self.config.minibatches, self.batch_size).transpose(0, 1)

    def learn(self, minibatch: Minibatch) -> dict[str, Tensor]:
        """One update, nothing but tensor work, so that it can be compiled or captured; figures to log, each (P,)."""
        loss, figures = self.loss(minibatch)
        self.adam.minimise(loss.sum())
        return figures

    def loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """What is minimised (P,), and figures to log."""
        config = self.config
        outputs, value = self.net(batch.obs)
        log_ratio = self.policy.log_prob(outputs, batch.action) - batch.log_prob
        ratio = log_ratio.exp()
        spread = batch.advantage.std(1, keepdim=True)
        advantage = (batch.advantage - batch.advantage.mean(1, keepdim=True)) / (spread + 1e-8)
        clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean(1)
        error = (value - batch.target).square()
        if config.value_clip is not None:
            near = batch.value + (value - batch.value).clamp(-config.value_clip, config.value_clip)
            error = torch.maximum(error, (near - batch.target).square())
        value_loss = 0.5 * error.mean(1).sum(-1)
        entropy = self.policy.entropy(outputs).mean(1)
        loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        figures = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "clip_fraction": ((ratio - 1.0).abs() > config.clip).to(ratio.dtype).mean(1),
            "approx_kl": (ratio - 1.0 - log_ratio).mean(1),
        }
        return loss, {name: value.detach() for name, value in figures.items()}

    def finish(self) -> None:
        """Count a rollout as learned from, and lower the step size if it is to fall."""
        self.rollouts += 1
        if self.config.lr_decay is not None:
            done = self.rollouts * self.steps_per_rollout / self.config.lr_decay
            self.adam.get_buffer("lr").fill_(self.config.lr * max(0.0, 1.0 - done))

    # ------------------------------------------------------------------- act

    @torch.no_grad()
    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Exploring actions (P, E, *action_shape), not clipped to the space yet, and log-probabilities (P, E)."""
        self._check(obs)
        outputs = self.net.policy(obs)
        action = self.policy.draw(outputs, self.act_streams)
        return action, self.policy.log_prob(outputs, action)

    def explore(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Exploring actions (P, E, *action_shape) in the space and as drawn, and their log-probabilities (P, E)."""
        action, log_prob = self.sample(obs)
        return self.policy.in_space(action), action, log_prob

    @torch.no_grad()
    def act(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """Actions (P, E, *action_shape) for obs (P, E, *obs_shape): exploring, or the likeliest ones."""
        self._check(obs)
        action = self.policy.best(self.net.policy(obs)) if deterministic else self.sample(obs)[0]
        return self.policy.in_space(action)

    @torch.no_grad()
    def act_randomly(self, envs: int = 1) -> Tensor:
        """Actions (P, E, *action_shape) uniform over the space."""
        return self.policy.uniform(envs, self.act_streams)

    def _check(self, obs: Tensor) -> None:
        if obs.shape[0] != self.members or tuple(obs.shape[2:]) != self.obs_shape:
            raise ValueError(
                f"obs has shape {tuple(obs.shape)}, expected (seeds, environments, *observation shape) = "
                f"({self.members}, environments, {', '.join(map(str, self.obs_shape))})"
            )

    # ----------------------------------------------------------- checkpoints

    def get_extra_state(self) -> Tensor:
        """The number of rollouts learned from; a tensor, so that a checkpoint needs no pickle."""
        return torch.tensor(self.rollouts)

    def set_extra_state(self, state: Any) -> None:
        """Continue the schedule where it stood."""
        self.rollouts = int(state)


# ---------------------------------------------------------------- small parts


def gae(reward: Tensor, value: Tensor, next_value: Tensor, cut: Tensor, *, discount: float, trace: float) -> Tensor:
    """Generalised advantage estimates (P, n, E) of n steps in order (Schulman et al., 2016).

    Args:
        reward: Of each step.
        value: Of where the step began.
        next_value: Of where it led; 0 where nothing comes after.
        cut: Where the next row is not the step's continuation, so that nothing flows back from there.
        discount: γ.
        trace: λ.
    """
    error = reward + discount * next_value - value
    advantage, after = torch.empty_like(error), torch.zeros_like(error[:, 0])
    for t in reversed(range(error.shape[1])):
        after = error[:, t] + (discount * trace) * after.masked_fill(cut[:, t], 0.0)
        advantage[:, t] = after
    return advantage
