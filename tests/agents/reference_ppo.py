"""PPO of one member as a textbook has it: nn.Linear, torch.distributions, torch.optim.Adam, no population anywhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from tests.networks.plain import plain_linear


def perceptron(agent_net: Any, network: int) -> nn.Sequential:
    one, two, three = (plain_linear(agent_net.layers[layer], network) for layer in range(3))
    return nn.Sequential(one, nn.Tanh(), two, nn.Tanh(), three)


def slow_gae(reward: Tensor, value: Tensor, behind: Tensor, cut: Tensor, gamma: float, lam: float) -> Tensor:
    """Advantages of one environment's n steps, each as the sum it is defined by."""
    n = len(reward)
    error = [float(reward[t] + gamma * behind[t] - value[t]) for t in range(n)]
    advantages = []
    for t in range(n):
        total = 0.0
        for ahead in range(t, n):
            total += (gamma * lam) ** (ahead - t) * error[ahead]
            if cut[ahead]:
                break
        advantages.append(total)
    return torch.tensor(advantages)


class ReferencePpo:
    """Starts from member p of an agent and learns from that member's rows of the same rollout in the same order."""

    log_std: Tensor

    def __init__(self, agent: Any, member: int) -> None:
        self.config, self.gamma, self.continuous = agent.config, agent.discount, hasattr(agent.policy, "log_std")
        self.actor, self.critic = perceptron(agent.net.actor, member), perceptron(agent.net.critic, member)
        weights: list[Tensor] = [*self.actor.parameters(), *self.critic.parameters()]
        if self.continuous:
            self.log_std = agent.policy.log_std[member].detach().clone().requires_grad_()
            weights.append(self.log_std)
        self.weights = weights
        self.adam = torch.optim.Adam(weights, lr=self.config.lr, eps=1e-5)

    def distribution(self, obs: Tensor) -> Categorical | Independent:
        outputs = self.actor(obs)
        if self.continuous:
            return Independent(Normal(outputs, self.log_std.exp().expand_as(outputs)), 1)
        return Categorical(logits=outputs)

    def judge(
        self,
        obs: Tensor,
        next_obs: Tensor,
        following: Tensor,
        reward: Tensor,
        bonus: Tensor,
        terminated: Tensor,
        truncated: Tensor,
    ) -> Any:
        """Advantages (n, E) and targets (n, E, H), each environment and stream by itself."""
        n, E = reward.shape
        with torch.no_grad():
            value, behind, later = self.critic(obs), self.critic(next_obs), self.critic(following)
        H, lam = value.shape[-1], self.config.gae_lambda
        advantage = torch.zeros(n, E, H)
        for e in range(E):
            ends = terminated[:, e] | truncated[:, e]
            own = reward[:, e] + bonus[:, e] if H == 1 else reward[:, e]
            reached = behind[:, e, 0] * (~terminated[:, e])
            advantage[:, e, 0] = slow_gae(own, value[:, e, 0], reached, ends, self.gamma, lam)
            if H == 2:
                onward = torch.cat([value[1:, e, 1], later[e : e + 1, 1]])
                gamma = self.config.intrinsic_discount
                advantage[:, e, 1] = slow_gae(
                    bonus[:, e], value[:, e, 1], onward, torch.zeros(n, dtype=torch.bool), gamma, lam
                )
        weights = torch.tensor([1.0] if H == 1 else [self.config.extrinsic_weight, self.config.intrinsic_weight])
        return (advantage * weights).sum(-1), advantage + value, value

    def update(
        self, obs: Tensor, action: Any, old_log_prob: Tensor, advantage: Tensor, old_value: Tensor, target: Tensor
    ) -> None:
        c, policy = self.config, self.distribution(obs)
        ratio = (policy.log_prob(action) - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - c.clip, 1 + c.clip)).mean()
        value_loss = torch.zeros(())
        values = self.critic(obs)
        for h in range(values.shape[-1]):
            loss = (values[:, h] - target[:, h]) ** 2
            if c.value_clip is not None:
                moved = torch.clamp(values[:, h] - old_value[:, h], -c.value_clip, c.value_clip)
                loss = torch.max(loss, (old_value[:, h] + moved - target[:, h]) ** 2)
            value_loss = value_loss + 0.5 * loss.mean()
        self.adam.zero_grad()
        (surrogate - c.entropy_weight * policy.entropy().mean() + c.value_weight * value_loss).backward()
        assert c.max_grad_norm is not None
        nn.utils.clip_grad_norm_(self.weights, c.max_grad_norm)
        self.adam.step()
