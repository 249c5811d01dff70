"""SAC of one member as a textbook has it: nn.Linear, autograd and torch.optim.Adam, no population anywhere."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from sasr.agents.sac import Sac
from tests.networks.plain import plain_mlp


class ReferenceSac:
    """Starts from member p of an agent and learns from that member's rows of the same batches and noise."""

    def __init__(self, agent: Sac, member: int) -> None:
        P, config = agent.members, agent.config
        self.actor = plain_mlp(agent.actor.net, member)
        self.critics = [plain_mlp(agent.critic.net, network) for network in (member, P + member)]
        self.targets = [copy.deepcopy(critic) for critic in self.critics]
        self.log_alpha = torch.zeros((), dtype=agent.log_alpha.dtype, requires_grad=True)
        self.config, self.discount = config, agent.discount
        self.low = torch.as_tensor(agent.action_space.low)
        self.high = torch.as_tensor(agent.action_space.high)
        critics = [*self.critics[0].parameters(), *self.critics[1].parameters()]
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr=config.actor_lr)
        self.critic_adam = torch.optim.Adam(critics, lr=config.critic_lr)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=config.temperature_lr)
        self.updates = 0
        self.seen: list[Tensor] = []

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.actor(obs).split(noise.shape[-1], dim=-1)
        std = torch.exp(-5 + 3.5 * (torch.tanh(raw) + 1))
        u = mean + std * noise
        scale = (self.high - self.low) / 2
        action = torch.tanh(u) * scale + (self.high + self.low) / 2
        slope = (scale.double() * (1 - torch.tanh(u.double()) ** 2)).log().to(u.dtype)
        return action, (Normal(mean, std).log_prob(u) - slope).sum(-1)

    def least(self, critics: list[nn.Sequential], obs: Tensor, action: Tensor) -> Tensor:
        pair = torch.cat([obs, action], -1)
        return torch.min(critics[0](pair)[:, 0], critics[1](pair)[:, 0])

    def update(
        self,
        obs: Tensor,
        action: Any,
        reward: Tensor,
        next_obs: Tensor,
        terminated: Tensor,
        target_noise: Tensor,
        actor_noise: Tensor,
    ) -> None:
        self.updates += 1
        shown = obs
        obs, next_obs = self.normalise(obs), self.normalise(next_obs)
        with torch.no_grad():
            next_action, log_prob = self.sample(next_obs, target_noise)
            value = self.least(self.targets, next_obs, next_action) - self.log_alpha.exp() * log_prob
            y = reward + self.discount * (1 - terminated.to(value.dtype)) * value
        pair = torch.cat([obs, action], -1)
        loss = torch.stack([nn.functional.mse_loss(critic(pair)[:, 0], y) for critic in self.critics]).sum()
        self.critic_adam.zero_grad()
        loss.backward()
        self.critic_adam.step()
        if self.updates % self.config.policy_frequency == 0:
            for noise in actor_noise:
                sampled, log_prob = self.sample(obs, noise)
                alpha = self.log_alpha.exp().detach()
                self.actor_adam.zero_grad()
                (alpha * log_prob - self.least(self.critics, obs, sampled)).mean().backward()
                self.actor_adam.step()
                self.alpha_adam.zero_grad()
                (-self.log_alpha.exp() * (log_prob.detach() - len(self.low))).mean().backward()
                self.alpha_adam.step()
        with torch.no_grad():
            for target, critic in zip(self.targets, self.critics, strict=True):
                for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                    slow.mul_(1 - self.config.tau).add_(self.config.tau * fast)
        self.seen.append(shown)

    def normalise(self, obs: Tensor) -> Tensor:
        """By the mean and variance of all observations of the updates before."""
        if not self.config.normalise_observations:
            return obs
        mean, variance = torch.zeros_like(obs[0]), torch.ones_like(obs[0])
        if self.seen:
            rows = torch.cat(self.seen)
            mean, variance = rows.mean(0), rows.var(0, correction=0)
        return ((obs - mean) / (variance + 1e-6).sqrt()).clamp(-10.0, 10.0)
