from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from sasr import Batch, Host
from sasr.agents import SacDiscrete, SacDiscreteConfig
from sasr.experience.replay import Replay
from sasr.experience.types import Transition
from tests.agents.cases import learn, make_agent, make_data
from tests.conftest import box


def test_exploring_actions_are_drawn_from_the_policy() -> None:
    agent = make_agent("sac_discrete", (0, 1))
    with torch.no_grad():
        agent.actor.net.layers[-1].weight.mul_(20.0)  # far from uniform
    obs = make_data("sac_discrete", 2, 0)[0].obs[:, :1]
    wanted = agent.log_policy(obs).exp()[:, 0]
    drawn = agent.act(obs.expand(-1, 50_000, -1)) + 1  # actions start at −1
    found = torch.stack([(drawn == action).float().mean(1) for action in range(4)], dim=1)
    assert wanted.amax() > 0.4
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.01)
    best = agent.act(obs, deterministic=True)
    assert torch.equal(best[:, 0] + 1, wanted.argmax(1))


def test_random_actions_are_uniform() -> None:
    actions = make_agent("sac_discrete").act_randomly(40_000)
    shares = torch.bincount(actions.flatten() + 1, minlength=4) / 40_000
    torch.testing.assert_close(shares, torch.full((4,), 0.25), rtol=0, atol=0.01)


@pytest.mark.parametrize(("share", "falls"), [(0.0, True), (0.999, False)])
def test_temperature_moves_towards_the_target_entropy(share: float, falls: bool) -> None:
    agent = make_agent("sac_discrete", (0, 1), entropy_share=share, actor_lr=0.0)
    with torch.no_grad():
        agent.actor.net.layers[-1].weight.mul_(20.0)  # an entropy well inside its range
    log_prob = agent.log_policy(make_data("sac_discrete", 2, 0)[0].obs)
    entropy = -(log_prob.exp() * log_prob).sum(-1).mean(-1)
    assert ((entropy > 0.1) & (entropy < 0.95 * math.log(4))).all()
    learn("sac_discrete", agent, 10)
    assert ((agent.log_alpha < 0) == falls).all()
    assert agent.log_alpha.abs().min() > 1e-3


def test_a_policy_that_learns_a_bandit_keeps_the_entropy_it_was_told_to() -> None:
    """One state, three actions worth 0, 1 and 0.5: the best comes first, and α settles at the entropy asked for."""
    space = gym.spaces.Discrete(3, start=10)
    host = Host(observation_space=box(1), action_space=space, seeds=(0, 1))
    config = SacDiscreteConfig(hidden=(32, 32), actor_lr=3e-3, critic_lr=3e-3, temperature_lr=0.02, entropy_share=0.6)
    agent = SacDiscrete(host, config)
    zeros, done = torch.zeros(2, 64, 1), torch.ones(2, 64, dtype=torch.bool)
    g = torch.Generator().manual_seed(0)
    worth = torch.tensor([0.0, 1.0, 0.5])
    for _ in range(800):
        index = torch.randint(0, 3, (2, 64), generator=g)
        figures = agent.update(Batch(zeros, index + 10, worth[index], zeros, done), torch.zeros(2, 64))
    assert agent.act(zeros[:, :1], deterministic=True).tolist() == [[11], [11]]
    torch.testing.assert_close(figures["entropy"], torch.full((2,), 0.6 * math.log(3)), rtol=0, atol=0.05)
    values = agent.critic(zeros[:, :1]).amin(0)[:, 0]
    torch.testing.assert_close(values, worth.expand(2, 3), rtol=0, atol=0.1)
    # At the optimum log π − Q/α is the same for every action.
    wanted = (values / agent.log_alpha.exp()[:, None]).softmax(-1)
    torch.testing.assert_close(agent.log_policy(zeros[:, :1]).exp()[:, 0], wanted, rtol=0, atol=0.03)


def test_it_learns_to_tell_pictures_apart() -> None:
    """Bright above or bright below: the action that is right for each."""
    host = Host(
        observation_space=gym.spaces.Box(0, 255, (36, 36), np.uint8),
        action_space=gym.spaces.Discrete(2),
        seeds=(0,),
    )
    agent = SacDiscrete(host, SacDiscreteConfig(features=16, actor_lr=1e-3, critic_lr=1e-3, temperature_lr=1e-2))
    g = torch.Generator().manual_seed(0)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        below = torch.randint(0, 2, (1, count), generator=g)
        pictures = torch.randint(0, 60, (1, count, 2, 18, 36), generator=g, dtype=torch.uint8)
        pictures[0, torch.arange(count), below[0]] += 150
        return pictures.view(1, count, 36, 36), below

    for _ in range(60):
        pictures, below = draw(32)
        action = torch.randint(0, 2, (1, 32), generator=g)
        batch = Batch(pictures, action, (action == below).float(), pictures, torch.ones(1, 32, dtype=torch.bool))
        agent.update(batch, torch.zeros(1, 32))
    pictures, below = draw(50)
    assert torch.equal(agent.act(pictures, deterministic=True), below)


def test_it_learns_from_what_replay_stores_of_discrete_actions() -> None:
    host = Host(
        observation_space=gym.spaces.Box(0, 255, (36, 36), np.uint8), action_space=gym.spaces.Discrete(3), seeds=(0, 1)
    )
    agent, replay = SacDiscrete(host, SacDiscreteConfig(features=4)), Replay(host, capacity=20)
    no = torch.zeros(2, 1, dtype=torch.bool)
    for _ in range(6):
        obs = torch.randint(0, 256, (2, 1, 36, 36), dtype=torch.uint8)
        replay.add(Transition(obs, agent.act(obs), torch.ones(2, 1), obs, no, no))
    batch = replay.sample(4)
    assert batch.obs.dtype == torch.uint8
    figures = agent.update(batch, torch.zeros(2, 4), None)
    assert all(value.shape == (2,) and value.isfinite().all() for value in figures.values())
