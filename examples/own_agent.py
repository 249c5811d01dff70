"""Soft actor-critic with SASR in one file, in CleanRL's style: copy it and change what you like.

The lines marked with "SASR" are all it takes to put the shaper into an agent of your own. The task is MountainCar:
a reward at the top of the hill alone, and a small cost for every push.

    python examples/own_agent.py
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.spaces.utils import flatdim
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import mse_loss, softplus

from sasr import SASR, Batch, Host, Transition

Array = NDArray[Any]


@dataclass
class Args:
    """Settings; each is a flag."""

    task: str = "SASR/MountainCar-v0"
    shaping: bool = True
    steps: int = 12_000
    seed: int = 0
    gamma: float = 0.99
    tau: float = 0.005
    batch_size: int = 256
    learning_starts: int = 2_000
    learning_rate: float = 3e-4
    hidden: int = 128


def mlp(inputs: int, outputs: int, hidden: int, *, norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inputs, hidden):
        layers.append(nn.Linear(width, hidden))
        if norm:  # without it values run away where rewards are rare
            layers.append(nn.LayerNorm(hidden))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


class Actor(nn.Module):
    """A squashed Gaussian over actions in [-1, 1]."""

    def __init__(self, obs_width: int, action_width: int, hidden: int) -> None:
        super().__init__()
        self.net = mlp(obs_width, 2 * action_width, hidden, norm=False)

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5.0, 2.0).exp())
        u = normal.rsample()
        log_prob = normal.log_prob(u) - 2.0 * (np.log(2.0) - u - softplus(-2.0 * u))
        return u.tanh(), log_prob.sum(-1)


class ReplayBuffer:
    """Everything that happened, in arrays."""

    def __init__(self, capacity: int, obs_width: int, action_width: int) -> None:
        self.size = 0
        self.obs, self.next_obs = torch.zeros(2, capacity, obs_width)
        self.action = torch.zeros(capacity, action_width)
        self.reward, self.terminated = torch.zeros(capacity), torch.zeros(capacity, dtype=torch.bool)

    def add(self, obs: Array, action: Array, reward: float, next_obs: Array, terminated: bool) -> None:
        for store, value in zip(self.fields(), (obs, action, reward, next_obs, terminated), strict=True):
            store[self.size] = torch.as_tensor(value)
        self.size += 1

    def sample(self, n: int) -> tuple[Tensor, ...]:
        rows = torch.randint(self.size, (n,))
        return tuple(store[rows] for store in self.fields())

    def fields(self) -> tuple[Tensor, ...]:
        return self.obs, self.action, self.reward, self.next_obs, self.terminated


def main(args: Args) -> list[float]:
    """Train, and return the returns of all episodes."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    env = gym.make(args.task)
    env.action_space.seed(args.seed)
    obs_width, action_width = flatdim(env.observation_space), flatdim(env.action_space)

    actor = Actor(obs_width, action_width, args.hidden)
    critics, targets = [[mlp(obs_width + action_width, 1, args.hidden, norm=True) for _ in range(2)] for _ in range(2)]
    for critic, target in zip(critics, targets, strict=True):
        target.load_state_dict(critic.state_dict())
    log_alpha = torch.zeros(1, requires_grad=True)
    actor_adam = torch.optim.Adam(actor.parameters(), lr=args.learning_rate)
    critic_adam = torch.optim.Adam([p for critic in critics for p in critic.parameters()], lr=args.learning_rate)
    alpha_adam = torch.optim.Adam([log_alpha], lr=1e-3)
    buffer = ReplayBuffer(args.steps, obs_width, action_width)

    shaper = SASR()  # SASR: 1. make it and bind it to what the agent is made for
    shaper.bind(Host(observation_space=env.observation_space, action_space=env.action_space, discount=args.gamma))

    def value(nets: list[nn.Sequential], obs: Tensor, action: Tensor) -> Tensor:
        return torch.stack([net(torch.cat([obs, action], -1)).squeeze(-1) for net in nets])

    returns, episode_return, start = [], 0.0, time.time()
    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        if step <= args.learning_starts:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = actor.sample(torch.as_tensor(obs))[0].numpy()
        next_obs, reward, terminated, truncated, info = env.step(action)
        buffer.add(obs, action, float(reward), next_obs, terminated)
        shaper.observe(transition(obs, action, reward, next_obs, terminated, truncated, info))  # SASR: 2. every step
        obs, episode_return = next_obs, episode_return + float(reward)
        if terminated or truncated:
            returns.append(episode_return)
            print(f"step {step:,}  return {episode_return:.2f}  {time.time() - start:.0f} s", flush=True)
            episode_return, (obs, _) = 0.0, env.reset()
        if step <= args.learning_starts:
            continue

        b_obs, b_action, b_reward, b_next_obs, b_terminated = sample = buffer.sample(args.batch_size)
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            if args.shaping:  # SASR: 3. the bonus is drawn anew for each batch, and stored nowhere
                b_reward = b_reward + shaper.shape(Batch(*(part[None] for part in sample)))[0]
            next_action, next_log_prob = actor.sample(b_next_obs)
            next_value = value(targets, b_next_obs, next_action).amin(0) - alpha * next_log_prob
            # A time limit cuts the episode, not the task: only true termination ends the return.
            target_value = b_reward + args.gamma * next_value.masked_fill(b_terminated, 0.0)
        critic_loss = mse_loss(value(critics, b_obs, b_action), target_value.expand(2, -1))
        optimise(critic_adam, critic_loss)

        new_action, log_prob = actor.sample(b_obs)
        optimise(actor_adam, (alpha * log_prob - value(critics, b_obs, new_action).amin(0)).mean())
        optimise(alpha_adam, -(log_alpha.exp() * (log_prob.detach() - action_width)).mean())
        with torch.no_grad():
            for critic, target in zip(critics, targets, strict=True):
                torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), args.tau)
    env.close()
    return returns


def transition(
    obs: Array,
    action: Array,
    reward: SupportsFloat,
    next_obs: Array,
    terminated: bool,
    truncated: bool,
    info: dict[str, Any],
) -> Transition:
    """One step as the shaper takes it: (seeds, environments, …), here one of each."""
    parts = (obs, action, np.float32(reward), next_obs, terminated, truncated)
    success = torch.tensor([[bool(info.get("is_success", False))]])
    return Transition(*(torch.as_tensor(part)[None, None] for part in parts))._replace(success=success)


def optimise(adam: torch.optim.Adam, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()


if __name__ == "__main__":
    main(tyro.cli(Args))
