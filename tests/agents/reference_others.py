"""TD3 and discrete SAC of one member as a textbook has them: torch.nn, autograd, torch.optim.Adam, no population."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from sasr.agents import SacDiscrete, Td3
from sasr.networks.encoder import PopulationNet
from tests.networks.plain import plain_cnn, plain_linear, plain_mlp


def soft_update(targets: Sequence[nn.Module], networks: Sequence[nn.Module], tau: float) -> None:
    with torch.no_grad():
        for target, network in zip(targets, networks, strict=True):
            for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
                slow.mul_(1 - tau).add_(tau * fast)


def minimise(adam: torch.optim.Adam, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()


def adam_of(networks: Sequence[nn.Module], lr: float) -> torch.optim.Adam:
    return torch.optim.Adam([parameter for network in networks for parameter in network.parameters()], lr=lr)


class ReferenceTd3:
    """Starts from member p of an agent and learns from that member's rows of the same batches and noise."""

    def __init__(self, agent: Td3, member: int) -> None:
        P, self.config, self.discount = agent.members, agent.config, agent.discount
        self.actor = plain_mlp(agent.actor.net, member)
        self.critics = [plain_mlp(agent.critic.net, network) for network in (member, P + member)]
        self.target_actor, self.target_critics = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        dtype = agent.actor.scale.dtype
        self.low = torch.as_tensor(agent.action_space.low, dtype=dtype)
        self.high = torch.as_tensor(agent.action_space.high, dtype=dtype)
        self.actor_adam = adam_of([self.actor], self.config.actor_lr)
        self.critic_adam = adam_of(self.critics, self.config.critic_lr)
        self.updates = 0

    @property
    def networks(self) -> list[nn.Module]:
        return [self.actor, *self.critics, self.target_actor, *self.target_critics]

    def action(self, actor: nn.Module, obs: Tensor) -> Tensor:
        return self.low + (torch.tanh(actor(obs)) + 1) / 2 * (self.high - self.low)

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminated: Tensor, noise: Tensor
    ) -> None:
        self.updates += 1
        with torch.no_grad():
            half = (self.high - self.low) / 2
            smooth = torch.clamp(self.config.smoothing_noise * noise, -0.5, 0.5) * half
            next_action = torch.max(torch.min(self.action(self.target_actor, next_obs) + smooth, self.high), self.low)
            pair = torch.cat([next_obs, next_action], -1)
            value = torch.min(self.target_critics[0](pair)[:, 0], self.target_critics[1](pair)[:, 0])
            y = torch.where(terminated, reward, reward + self.discount * value)
        pair = torch.cat([obs, action], -1)
        losses = [nn.functional.mse_loss(critic(pair)[:, 0], y) for critic in self.critics]
        minimise(self.critic_adam, losses[0] + losses[1])
        if self.updates % self.config.policy_frequency == 0:
            pair = torch.cat([obs, self.action(self.actor, obs)], -1)
            minimise(self.actor_adam, -self.critics[0](pair).mean())
            soft_update([self.target_actor, *self.target_critics], [self.actor, *self.critics], self.config.tau)


def plain_net(net: PopulationNet, network: int) -> nn.Sequential:
    if net.axes is None:
        return plain_mlp(net.net, network)
    parts: Any = net.net
    encoder, head = parts
    return nn.Sequential(*plain_cnn(encoder, network), plain_linear(head, network))


class ReferenceSacDiscrete:
    """Starts from member p of an agent; expectations over actions are written as loops over them."""

    def __init__(self, agent: SacDiscrete, member: int) -> None:
        P, self.config, self.discount, self.start = agent.members, agent.config, agent.discount, agent.start
        self.actions = agent.actions
        self.actor = plain_net(agent.actor, member)
        self.critics = [plain_net(agent.critic.net, network) for network in (member, P + member)]
        self.target_critics = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros((), dtype=agent.log_alpha.dtype, requires_grad=True)
        self.actor_adam = adam_of([self.actor], self.config.actor_lr)
        self.critic_adam = adam_of(self.critics, self.config.critic_lr)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=self.config.temperature_lr)

    @property
    def networks(self) -> list[nn.Module]:
        return [self.actor, *self.critics, *self.target_critics]

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminated: Tensor, noise: None
    ) -> None:
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            policy = Categorical(logits=self.actor(next_obs))
            one, other = (critic(next_obs) for critic in self.target_critics)
            value = torch.zeros_like(reward)
            for a in range(self.actions):
                least = torch.min(one[:, a], other[:, a])
                value += policy.probs[:, a] * (least - alpha * policy.logits[:, a])
            y = torch.where(terminated, reward, reward + self.discount * value)
        rows = torch.arange(len(obs))
        losses = [((critic(obs)[rows, action - self.start] - y) ** 2).mean() for critic in self.critics]
        minimise(self.critic_adam, losses[0] + losses[1])
        policy = Categorical(logits=self.actor(obs))
        with torch.no_grad():
            least = torch.min(self.critics[0](obs), self.critics[1](obs))
        terms = [policy.probs[:, a] * (alpha * policy.logits[:, a] - least[:, a]) for a in range(self.actions)]
        entropy = policy.entropy().mean().detach()
        minimise(self.actor_adam, sum(terms[1:], terms[0]).mean())
        wanted = self.config.entropy_share * math.log(self.actions)
        minimise(self.alpha_adam, self.log_alpha.exp() * (entropy - wanted))
        soft_update(self.target_critics, self.critics, self.config.tau)
