from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal

from sasr.agents.policies import Categorical, Gaussian, policy_for
from sasr.randomness import MemberStreams

CPU = torch.device("cpu")
BOX = gym.spaces.Box(np.array([[-0.3, -1.0]], np.float32), np.array([[0.5, 1.0]], np.float32))


def outputs_of(policy: Categorical | Gaussian, rows: int) -> torch.Tensor:
    return torch.randn(2, rows, policy.outputs, generator=torch.Generator().manual_seed(0))


def test_discrete_actions_are_drawn_as_often_as_their_probabilities_say() -> None:
    policy = policy_for(gym.spaces.Discrete(3, start=-1), 2, CPU)
    assert isinstance(policy, Categorical)
    outputs = outputs_of(policy, 1)
    drawn = policy.draw(outputs.expand(-1, 40_000, -1), MemberStreams((0, 1), "act", CPU))
    often = torch.stack([(drawn == action).float().mean(1) for action in (-1, 0, 1)], dim=-1)
    torch.testing.assert_close(often, outputs[:, 0].softmax(-1), rtol=0, atol=0.01)
    assert torch.equal(policy.best(outputs)[:, 0], outputs[:, 0].argmax(-1) - 1)
    uniform = policy.uniform(40_000, MemberStreams((0, 1), "act", CPU))
    assert set(uniform.unique().tolist()) == {-1, 0, 1}
    torch.testing.assert_close((uniform == 1).float().mean(1), torch.full((2,), 1 / 3), rtol=0, atol=0.01)


def test_log_probabilities_and_entropies_are_those_of_torch_distributions() -> None:
    streams = MemberStreams((0, 1), "act", CPU)
    discrete = Categorical(gym.spaces.Discrete(4, start=2), 2, CPU)
    outputs = outputs_of(discrete, 6)
    action, theirs = discrete.draw(outputs, streams), TorchCategorical(logits=outputs)
    torch.testing.assert_close(discrete.log_prob(outputs, action), theirs.log_prob(action - 2))
    torch.testing.assert_close(discrete.entropy(outputs), theirs.entropy())
    continuous = Gaussian(BOX, 2, CPU, log_std=-0.7)
    outputs = outputs_of(continuous, 6)
    normal = Independent(Normal(outputs, torch.full_like(outputs, -0.7).exp()), 1)
    action = continuous.draw(outputs, streams)
    assert action.shape == (2, 6, 1, 2)
    torch.testing.assert_close(continuous.log_prob(outputs, action), normal.log_prob(action.flatten(2)))
    torch.testing.assert_close(continuous.entropy(outputs), normal.entropy())


def test_continuous_actions_are_drawn_with_the_learned_width_and_clipped_to_the_space() -> None:
    policy = Gaussian(BOX, 2, CPU)
    with torch.no_grad():
        policy.log_std[1] = 1.0
    drawn = policy.draw(torch.zeros(2, 20_000, 2), MemberStreams((0, 1), "act", CPU)).detach()
    torch.testing.assert_close(drawn.std(1).flatten(1).mean(1), torch.tensor([1.0, np.e]), rtol=0.02, atol=0)
    clipped = policy.in_space(drawn)
    assert all(BOX.contains(action) for action in clipped.flatten(0, 1)[::97].numpy())
    inside = (drawn == clipped).flatten(2).all(-1)
    assert 0 < inside.float().mean() < 1
    uniform = policy.uniform(20_000, MemberStreams((0, 1), "act", CPU))
    middle = torch.tensor([0.1, 0.0]).expand(2, 1, 2)
    torch.testing.assert_close(uniform.mean(1), middle, rtol=0, atol=0.02)


def test_an_unbounded_space_has_exploring_actions_but_no_uniform_ones() -> None:
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    policy, streams = Gaussian(space, 1, CPU), MemberStreams((0,), "act", CPU)
    action = policy.draw(torch.full((1, 3, 2), 50.0), streams)
    assert torch.equal(policy.in_space(action), action)
    with pytest.raises(ValueError, match="has no bounds"):
        policy.uniform(1, streams)
