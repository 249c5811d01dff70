from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from sasr.shaping.rivals.encoder import ObservationEncoder
from sasr.shaping.rivals.relara import PopulationResidual

CPU = torch.device("cpu")


def generators(n: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(i) for i in range(n)]


def test_a_residual_network_equals_one_written_out() -> None:
    net = PopulationResidual(3, 2, width=8, blocks=2, generators=generators(2), device=CPU)
    x = torch.randn(2, 5, 3)
    for n in range(2):

        def layer(source: Any, rows: torch.Tensor, n: int = n) -> torch.Tensor:
            return nn.functional.linear(rows, source.weight[n].T, source.bias[n])

        y = layer(net.first, x[n])
        for i in (0, 2):
            y = (y + layer(net.blocks[i + 1], layer(net.blocks[i], y).relu())).relu()
        y = layer(net.last, layer(net.narrow, y).relu())
        torch.testing.assert_close(net(x)[n], y)


def test_eyes_see_vectors_as_they_are_and_pictures_as_features() -> None:
    vectors = ObservationEncoder(gym.spaces.Box(-1.0, 1.0, (2, 3)), generators=generators(2), device=CPU)
    x = torch.randn(2, 5, 2, 3)
    assert torch.equal(vectors(x), x.flatten(2))
    assert not list(vectors.parameters())
    space = gym.spaces.Box(0, 255, (4, 40, 40), np.uint8)
    pictures = ObservationEncoder(space, generators=generators(2), device=CPU, features=7)
    assert pictures.width == 7
    assert pictures(torch.randint(256, (2, 3, 4, 40, 40), dtype=torch.uint8)).shape == (2, 3, 7)


def test_colours_may_stand_last() -> None:
    space = gym.spaces.Box(0, 255, (40, 44, 3), np.uint8)
    encoder = ObservationEncoder(space, generators=generators(1), device=CPU, features=7)
    first = ObservationEncoder(
        gym.spaces.Box(0, 255, (3, 40, 44), np.uint8), generators=generators(1), device=CPU, features=7
    )
    x = torch.randint(256, (1, 2, 40, 44, 3), dtype=torch.uint8)
    torch.testing.assert_close(encoder(x), first(x.movedim(-1, 2)))
