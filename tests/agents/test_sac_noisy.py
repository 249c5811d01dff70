"""SAC with noise in its actor's weights, and what it tells a shaper that asks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import pytest
import torch
from safetensors.torch import load_file, save_file

from sasr import Host
from sasr.agents import SacConfig
from sasr.agents.sac import Sac
from sasr.agents.sac_discrete import SacDiscrete
from sasr.agents.td3 import Td3
from sasr.experience.types import PolicyView
from sasr.randomness import MemberStreams
from tests.agents.test_sac import ACTIONS, B, K, learn, make_agent, make_data, member_weights
from tests.conftest import box

CPU = torch.device("cpu")
NOISY = SacConfig(hidden=(16, 16), exploration="noisy")


def narrow(agent: Sac) -> Sac:
    """The actor's Gaussian as narrow as it gets, so that what still varies is the weights."""
    layer: Any = agent.actor.net.layers[-1]
    with torch.no_grad():
        layer.bias[:, 2:] = -20.0
        layer.weight[..., 2:] = 0.0
    return agent


def test_acting_explores_by_its_weights_and_one_draw_serves_all_environments() -> None:
    agent, obs = narrow(make_agent((0, 1), NOISY)), torch.randn(2, 1, K)
    spread = torch.stack([agent.act(obs.expand(2, 3, K)) for _ in range(50)])
    between_draws, within = spread[:, :, 0].std(0).mean(), spread.std(2).mean()
    assert between_draws > 3 * within  # what is left within is the Gaussian, e⁻⁵ wide
    still = narrow(make_agent((0, 1)))
    assert between_draws > 3 * torch.stack([still.act(obs) for _ in range(50)]).std(0).mean()


def test_the_best_actions_are_without_noise_and_draw_nothing() -> None:
    agent, obs = make_agent((0, 1), NOISY), torch.randn(2, 3, K)
    first = agent.act(obs, deterministic=True)
    agent.act(obs)
    assert torch.equal(first, agent.act(obs, deterministic=True))


def test_noise_is_drawn_anew_for_each_update_and_its_size_is_learned() -> None:
    agent = make_agent((0, 1), NOISY)
    noisy: Any = agent.actor.net.noisy
    layer = noisy[0]
    seen = set()
    for t in range(4):
        batch, bonus = make_data(2, t)
        figures = agent.update(batch, bonus, agent.draw_noise(B))
        seen.add(tuple(layer.disturbed_in[0].tolist()))
    assert len(seen) == 4
    assert (layer.weight_noise != 0.5 * K**-0.5).any()
    assert figures["weight_noise"].shape == (2,)


def test_a_saved_noisy_agent_continues_bit_for_bit(tmp_path: Path) -> None:
    agent, resumed = make_agent((0, 1), NOISY), make_agent((2, 3), NOISY)
    learn(agent, 3)
    save_file({key: value.contiguous() for key, value in agent.state_dict().items()}, tmp_path / "agent.safetensors")
    resumed.load_state_dict(load_file(tmp_path / "agent.safetensors"))
    learn(agent, 3)
    learn(resumed, 3)
    ours, theirs = agent.state_dict(), resumed.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_noisy_seed_alone_and_in_a_population_agree() -> None:
    crowd, alone = make_agent((5, 6, 7), NOISY), make_agent((5,), NOISY)
    learn(crowd, 50)
    learn(alone, 50)
    for key, value in member_weights(alone, 0).items():
        torch.testing.assert_close(value, member_weights(crowd, 0)[key], rtol=0, atol=1e-4)


def test_unknown_exploration_and_negative_noise_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'noisy'"):
        SacConfig(exploration=cast(Any, "nosy"))
    with pytest.raises(ValueError, match=r"noise_scale=-1\.0 must not be negative"):
        SacConfig(noise_scale=-1.0)


# ------------------------------------------------------------------ what a shaper may ask


@pytest.mark.parametrize("config", [SacConfig(hidden=(16, 16)), NOISY], ids=["gaussian", "noisy"])
def test_asking_the_policy_changes_nothing_in_the_agent(config: SacConfig) -> None:
    agent, streams = make_agent((0, 1), config), MemberStreams((0, 1), "asker", CPU)
    assert isinstance(agent, PolicyView)
    before = {key: value.clone() for key, value in agent.state_dict().items()}
    obs = torch.randn(2, 200, K)
    actions = agent.propose(obs, streams)
    agent.likelihood(obs, actions)
    assert all(torch.equal(value, agent.state_dict()[key]) for key, value in before.items())
    assert not torch.equal(actions, agent.propose(obs, streams))
    assert all(ACTIONS.contains(action.numpy()) for action in actions.flatten(0, 1))


def test_likelihood_is_one_at_the_middle_and_falls_as_the_density_does() -> None:
    agent, obs = make_agent((0, 1)), torch.randn(2, 50, K)
    middle = agent.act(obs, deterministic=True)
    torch.testing.assert_close(agent.likelihood(obs, middle), torch.ones(2, 50), rtol=0, atol=1e-4)
    noise = 0.7 * torch.randn(2, 50, 2)
    with torch.no_grad():
        action, _ = agent.actor.sample(obs, noise)
    expected = (-0.5 * noise.square().sum(-1)).exp()
    torch.testing.assert_close(agent.likelihood(obs, action), expected, rtol=1e-2, atol=1e-3)
    ends = torch.as_tensor(ACTIONS.high).expand(2, 50, 2)
    assert torch.isfinite(agent.likelihood(obs, ends)).all()


def test_a_discrete_policy_tells_how_likely_its_actions_are() -> None:
    space = gym.spaces.Discrete(3, start=2)
    agent = SacDiscrete(Host(observation_space=box(K), action_space=space, seeds=(0, 1)))
    streams, obs = MemberStreams((0, 1), "asker", CPU), torch.randn(2, 1, K)
    assert isinstance(agent, PolicyView)
    prob = agent.log_policy(obs).exp()[:, 0]
    every = torch.stack([agent.likelihood(obs, torch.full((2, 1), 2 + a))[:, 0] for a in range(3)], dim=-1)
    torch.testing.assert_close(every, prob / prob.amax(-1, keepdim=True))
    drawn = agent.propose(obs.expand(2, 20_000, K), streams) - 2
    share = torch.stack([(drawn == a).float().mean(1) for a in range(3)], dim=-1)
    torch.testing.assert_close(share, prob, rtol=0, atol=0.02)


def test_td3_tells_how_likely_the_noise_is_that_leads_to_an_action() -> None:
    agent = Td3(Host(observation_space=box(K), action_space=ACTIONS, seeds=(0, 1)))
    streams, obs = MemberStreams((0, 1), "asker", CPU), torch.randn(2, 500, K)
    assert isinstance(agent, PolicyView)
    best = agent.act(obs, deterministic=True)
    torch.testing.assert_close(agent.likelihood(obs, best), torch.ones(2, 500))
    half = torch.as_tensor((ACTIONS.high - ACTIONS.low) / 2)
    off = best + agent.config.exploration_noise * half * torch.tensor([1.0, -2.0])
    torch.testing.assert_close(agent.likelihood(obs, off), torch.full((2, 500), math.exp(-2.5)), rtol=1e-3, atol=0)
    spread = ((agent.propose(obs, streams) - best) / half).std()
    assert float(spread) == pytest.approx(agent.config.exploration_noise, rel=0.1)
