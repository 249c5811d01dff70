from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from sasr.networks.eyes import Eyes, is_picture
from sasr.networks.residual import PopulationResidual

CPU = torch.device("cpu")


def generators(n: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(i) for i in range(n)]


def test_a_residual_network_equals_one_written_out() -> None:
    net = PopulationResidual(3, 2, width=8, blocks=2, generators=generators(2), device=CPU)
    x = torch.randn(2, 5, 3)
    for n in range(2):

        def layer(source: nn.Module, rows: torch.Tensor, n: int = n) -> torch.Tensor:
            return nn.functional.linear(rows, source.weight[n].T, source.bias[n])

        y = layer(net.first, x[n])
        for i in (0, 2):
            y = (y + layer(net.blocks[i + 1], layer(net.blocks[i], y).relu())).relu()
        y = layer(net.last, layer(net.narrow, y).relu())
        torch.testing.assert_close(net(x)[n], y)


def test_eyes_see_vectors_as_they_are_and_pictures_as_features() -> None:
    vectors = Eyes(gym.spaces.Box(-1.0, 1.0, (2, 3)), generators=generators(2), device=CPU)
    x = torch.randn(2, 5, 2, 3)
    assert torch.equal(vectors(x), x.flatten(2))
    assert not list(vectors.parameters())
    space = gym.spaces.Box(0, 255, (4, 40, 40), np.uint8)
    pictures = Eyes(space, generators=generators(2), device=CPU, features=7)
    assert pictures.width == 7
    assert pictures(torch.randint(256, (2, 3, 4, 40, 40), dtype=torch.uint8)).shape == (2, 3, 7)


def test_what_is_a_picture() -> None:
    assert is_picture(gym.spaces.Box(0, 255, (84, 84), np.uint8))
    assert not is_picture(gym.spaces.Box(0, 255, (128,), np.uint8))  # the memory of an Atari machine
    assert not is_picture(gym.spaces.Box(0.0, 1.0, (84, 84), np.float32))
