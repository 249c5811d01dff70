from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from sasr.experience.flatten import action_width, flatten_actions, state_dtype, state_width
from sasr.experience.random_rollout import random_rollout
from sasr.experience.types import Host

BOX = gym.spaces.Box(-1, 1, (2, 3), np.float64)
IMAGE = gym.spaces.Box(0, 255, (4, 4), np.uint8)
GOAL = gym.spaces.Dict(observation=BOX, goal=gym.spaces.Box(-1, 1, (2,), np.float32))


def test_widths_and_types() -> None:
    assert [state_width(space) for space in (BOX, IMAGE, GOAL, gym.spaces.MultiBinary(5))] == [6, 16, 8, 5]
    assert state_dtype(IMAGE) == torch.uint8
    assert state_dtype(BOX) == state_dtype(GOAL) == torch.float32


@pytest.mark.parametrize("space", [gym.spaces.Discrete(5), gym.spaces.Text(3), gym.spaces.MultiDiscrete([2, 2])])
def test_spaces_a_kernel_cannot_take_say_which_work(space: gym.Space) -> None:
    with pytest.raises(TypeError, match="use Box, MultiBinary, or a Dict"):
        state_width(space)


def test_discrete_observations_name_the_wrapper_that_helps() -> None:
    with pytest.raises(TypeError, match="FlattenObservation"):
        state_width(gym.spaces.Discrete(5))


def test_actions() -> None:
    space = gym.spaces.Discrete(3, start=1)
    assert action_width(space) == 3
    assert flatten_actions(space, torch.tensor([[[1], [3]]]), 2).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert flatten_actions(BOX, torch.zeros(1, 5, 2, 3), 2).shape == (1, 5, 6)
    with pytest.raises(TypeError, match="use Box or Discrete"):
        action_width(gym.spaces.Text(3))


def test_host_refuses_what_cannot_be() -> None:
    for bad, message in (({"seeds": ()}, "is empty"), ({"envs": 0}, "envs=0"), ({"discount": 1.0}, "discount=1.0")):
        with pytest.raises(ValueError, match=message):
            Host(observation_space=BOX, action_space=BOX, **bad)


def test_random_rollout_reproduces_and_counts_rewarded_episodes() -> None:
    one, two = (random_rollout(gym.make("CartPole-v1"), 300, seed=3) for _ in range(2))
    assert np.array_equal(one.states, two.states)
    assert one.states.shape == (300, 4)
    assert one.rewarded == one.episodes > 5
    told: list[int] = []
    assert random_rollout(gym.make("Pendulum-v1"), 250, progress=told.append).rewarded == 0
    assert told == [100, 200, 250]
    with pytest.raises(ValueError, match="steps=0"):
        random_rollout(gym.make("CartPole-v1"), 0)
