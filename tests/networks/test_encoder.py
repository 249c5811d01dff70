from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from sasr.experience.frames import picture_axes
from sasr.networks.encoder import PopulationNet
from tests.conftest import box

CPU = torch.device("cpu")


def make_net(space: gym.Space, seed: int = 0) -> PopulationNet:
    generators = [torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)]
    return PopulationNet(space, 3, hidden=(8,), features=8, generators=generators, device=CPU)


def picture(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    "space", [box(4), picture(7, 7, 3), picture(128), picture(36, 40), picture(4, 36, 40), picture(36, 40, 3)]
)
def test_every_observation_of_a_space_goes_in(space: gym.spaces.Box) -> None:
    net = make_net(space)
    obs = torch.stack([torch.as_tensor(space.sample()) for _ in range(10)]).view(2, 5, *space.shape)
    net.check(obs, 2)
    assert net(obs).shape == (2, 5, 3)
    assert net(obs).dtype == torch.float32


def test_colours_last_and_colours_first_are_one_picture() -> None:
    last, first = make_net(picture(36, 40, 3)), make_net(picture(3, 36, 40))
    obs = torch.randint(0, 256, (2, 5, 36, 40, 3), dtype=torch.uint8)
    torch.testing.assert_close(last(obs), first(obs.permute(0, 1, 4, 2, 3)))


def test_what_is_too_small_or_has_too_many_axes_is_no_picture() -> None:
    assert picture_axes(picture(35, 84)) is None
    assert picture_axes(picture(84, 84, 84)) is None
    assert picture_axes(gym.spaces.MultiBinary((84, 84))) is None


def test_observations_of_another_shape_are_refused() -> None:
    net = make_net(box(4))
    with pytest.raises(ValueError, match=r"obs has shape \(2, 1, 5\), expected .* = \(2, environments, 4\)"):
        net.check(torch.zeros(2, 1, 5), 2)
    with pytest.raises(ValueError, match=r"obs has shape \(1, 1, 4\)"):
        net.check(torch.zeros(1, 1, 4), 2)
