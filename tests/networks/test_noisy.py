from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from sasr.networks.noisy import NoisyLinear, NoisyMLP
from sasr.randomness import MemberStreams

CPU = torch.device("cpu")


def generators(n: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(i) for i in range(n)]


def test_the_output_varies_as_much_as_factorised_noise_says() -> None:
    """Var y = s·(σ_w²·s·|x|² + σ_b²) with s = E f(z)² = √(2/π), over 10⁵ draws."""
    n, s = 100_000, math.sqrt(2 / math.pi)
    layer = NoisyLinear(3, 1, noise_scale=0.5, generators=generators(1), device=CPU)
    layer.bias_noise.data.fill_(0.4)
    for name, parameter in list(layer.named_parameters()):  # one network for each draw, all of the same weights
        setattr(layer, name, nn.Parameter(parameter.detach().expand(n, *parameter.shape[1:])))
    layer.disturbed_in, layer.disturbed_out = torch.zeros(n, 3), torch.zeros(n, 1)
    layer.resample(MemberStreams((0,), "test", CPU))
    x = torch.tensor([1.0, -2.0, 0.5])
    with torch.no_grad():
        y = layer(x.expand(n, 1, 3))[:, 0, 0]
    sigma = 0.5 / math.sqrt(3)
    expected = s * (sigma**2 * s * float(x.square().sum()) + 0.4**2)
    assert float(y.var()) == pytest.approx(expected, rel=0.05)


def test_the_noise_is_that_of_the_disturbed_weights() -> None:
    layer = NoisyLinear(4, 3, noise_scale=0.5, generators=generators(2), device=CPU)
    with torch.no_grad():
        layer.weight_noise.uniform_(0, 1)
        layer.bias_noise.uniform_(0, 1)
    layer.resample(MemberStreams((0, 1), "test", CPU))
    x = torch.randn(2, 5, 4)
    weight = layer.weight + layer.weight_noise * layer.disturbed_in[:, :, None] * layer.disturbed_out[:, None, :]
    bias = layer.bias + layer.bias_noise * layer.disturbed_out
    torch.testing.assert_close(layer(x), x @ weight + bias[:, None], rtol=1e-4, atol=1e-5)


def test_gradients_reach_the_size_of_the_noise() -> None:
    net = NoisyMLP([3, 8, 8, 2], noise_scale=0.5, generators=generators(2), device=CPU)
    net.resample(MemberStreams((0, 1), "test", CPU))
    net(torch.randn(2, 5, 3)).square().sum().backward()
    layers: Any = net.noisy
    for layer in layers:
        assert (layer.weight_noise.grad != 0).any()
        assert (layer.bias_noise.grad != 0).any()


def test_noise_lasts_until_it_is_drawn_again_and_can_be_left_out() -> None:
    net = NoisyMLP([3, 8, 2], noise_scale=0.5, generators=generators(2), device=CPU)
    streams, x = MemberStreams((0, 1), "test", CPU), torch.randn(2, 5, 3)
    net.resample(streams)
    first, still = net(x), net(x, still=True)
    assert torch.equal(first, net(x))
    net.resample(streams)
    assert not torch.equal(first, net(x))
    assert torch.equal(still, net(x, still=True))
    torch.testing.assert_close(net.noise_figures()["weight_noise"], torch.full((2,), 0.5))
