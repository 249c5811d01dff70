from __future__ import annotations

import gymnasium as gym
import torch

from sasr import Batch, Host
from sasr.agents import Td3, Td3Config
from tests.agents.cases import BOX, learn, make_agent, make_data
from tests.conftest import box

B = 32


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten(1).clone() for parameter in module.parameters()], dim=1)


def test_actor_and_targets_move_at_every_second_update_and_the_critics_at_each() -> None:
    agent = make_agent("td3")
    parts = (agent.critic, agent.actor, agent.target_actor, agent.target_critic)
    moved, before = [], [weights(part) for part in parts]
    for t in range(4):
        batch, bonus = make_data("td3", 1, t)
        agent.update(batch, bonus, agent.draw_noise(B))
        now = [weights(part) for part in parts]
        moved.append([not torch.equal(a, b) for a, b in zip(before, now, strict=True)])
        before = now
    assert moved == [[True, False, False, False], [True] * 4] * 2
    assert float(agent.actor_adam.get_buffer("steps")) == 2.0
    assert float(agent.critic_adam.get_buffer("steps")) == 4.0


def test_both_critics_learn() -> None:
    agent = make_agent("td3", (0, 1))
    before = weights(agent.critic)
    learn("td3", agent, 1)
    assert ((weights(agent.critic) - before).abs().amax(1) > 1e-5).all()  # networks 0, 1 and 2, 3


def test_the_actor_maximises_the_first_critic_only() -> None:
    agent = make_agent("td3", (0, 1))
    batch, _ = make_data("td3", 2, 0)
    loss = agent.actor_loss(batch)
    torch.testing.assert_close(loss, -agent.critic(batch.obs, agent.actor(batch.obs))[0].mean(-1))
    with torch.no_grad():
        for parameter in agent.critic.parameters():
            parameter[2:] = 7.0
    assert torch.equal(loss, agent.actor_loss(batch))


def test_smoothing_is_around_the_target_action_and_never_further_than_its_clip() -> None:
    agent = make_agent("td3")
    batch, _ = make_data("td3", 1, 0)
    seen: list[torch.Tensor] = []
    agent.target_critic.register_forward_hook(lambda module, inputs, output: seen.append(inputs[1]))
    noise = agent.draw_noise(B)
    for scaled in (noise, 100 * noise, 0 * noise):
        agent.bootstrap(batch, scaled)
    usual, clipped, middle = seen
    low, high, half = (torch.as_tensor(own) for own in (BOX.low, BOX.high, (BOX.high - BOX.low) / 2))
    torch.testing.assert_close(middle, agent.target_actor(batch.next_obs))
    wanted = (middle + (0.2 * noise).clamp(-0.5, 0.5) * half).clamp(low, high)
    torch.testing.assert_close(usual, wanted)
    torch.testing.assert_close(clipped, (middle + 0.5 * noise.sign() * half).clamp(low, high))


def test_smoothing_noise_is_standard_normal() -> None:
    noise = make_agent("td3", (0, 1)).draw_noise(20_000)
    assert noise.shape == (2, 20_000, 2)
    torch.testing.assert_close(noise.mean(1), torch.zeros(2, 2), rtol=0, atol=0.03)
    torch.testing.assert_close(noise.std(1), torch.ones(2, 2), rtol=0, atol=0.03)


def test_exploration_noise_is_in_units_of_half_the_range() -> None:
    space = gym.spaces.Box(-10.0, 30.0, (1,))
    agent = Td3(Host(observation_space=box(2), action_space=space), Td3Config(hidden=(4,), exploration_noise=0.1))
    obs = torch.zeros(1, 20_000, 2)
    away = agent.act(obs) - agent.act(obs, deterministic=True)
    torch.testing.assert_close(float(away.mean()), 0.0, rtol=0, atol=0.06)
    torch.testing.assert_close(float(away.std()), 2.0, rtol=0.03, atol=0)


def test_value_and_policy_find_the_best_action_of_a_bandit() -> None:
    """Reward −(a − 0.6)², one state, every step terminal: the action ends near 0.6."""
    host = Host(observation_space=box(1), action_space=gym.spaces.Box(-2.0, 2.0, (1,)), seeds=(0, 1))
    agent = Td3(host, Td3Config(hidden=(32, 32), actor_lr=3e-3, critic_lr=3e-3))
    zeros, done = torch.zeros(2, 64, 1), torch.ones(2, 64, dtype=torch.bool)
    g = torch.Generator().manual_seed(0)
    for _ in range(600):
        action = torch.rand(2, 64, 1, generator=g) * 4 - 2
        batch = Batch(zeros, action, -(action[..., 0] - 0.6).square(), zeros, done)
        agent.update(batch, torch.zeros(2, 64), agent.draw_noise(64))
    chosen = agent.act(zeros[:, :1], deterministic=True)
    torch.testing.assert_close(chosen, torch.full((2, 1, 1), 0.6), rtol=0, atol=0.1)
