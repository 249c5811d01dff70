from __future__ import annotations

from typing import Any

import torch

from sasr.shaping.rivals.random_network import RandomNetwork

CPU = torch.device("cpu")


def network(seeds: tuple[int, ...], *, picture: tuple[int, int] | None = None, bias: float = 0.5) -> RandomNetwork:
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    width = 84 * 84 if picture else 6
    return RandomNetwork(width, [16, 12], 8, picture=picture, bias=bias, generators=generators, device=CPU)


def test_weights_are_orthogonal_with_gain_root_two() -> None:
    layers: Any = network((0, 1)).dense.layers
    for layer in layers:
        for weight in layer.weight:
            gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
            torch.testing.assert_close(gram, 2.0 * torch.eye(len(gram)), rtol=0, atol=1e-5)


def test_a_network_is_the_same_alone_and_among_others() -> None:
    x = torch.randn(3, 7, 6)
    assert torch.equal(network((4, 5, 6))(x)[1], network((5,))(x[1:2])[0])


def test_without_biases_a_network_sees_directions_and_scales_with_distance() -> None:
    x = torch.randn(1, 20, 6)
    plain, biased = network((0,), bias=0.0), network((0,), bias=0.5)
    torch.testing.assert_close(plain(3.0 * x), 3.0 * plain(x), rtol=1e-4, atol=1e-5)
    assert (biased(3.0 * x) - 3.0 * biased(x)).abs().mean() > 0.1


def test_pictures_pass_through_convolutions() -> None:
    net, x = network((0, 1), picture=(84, 84)), torch.randn(2, 3, 84 * 84)
    assert net(x).shape == (2, 3, 8)
    moved = x.view(2, 3, 84, 84).roll(1, 3).flatten(2)
    assert not torch.allclose(net(moved), net(x))
