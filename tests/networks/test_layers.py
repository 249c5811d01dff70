from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sasr.networks import PopulationConv, PopulationLinear, PopulationMLP, make_orthogonal
from sasr.networks.layers import NormName

CPU = torch.device("cpu")


def generators(n: int = 2) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(n)]


def network(widths: list[int], count: int, activation: str = "relu", norm: NormName = "none") -> PopulationMLP:
    return PopulationMLP(widths, generators=generators(count), device=CPU, activation=activation, norm=norm).double()


def plainly(net: Any, x: Tensor) -> Tensor:
    """What the networks compute, left to autograd."""
    for index, layer in enumerate(net.layers):
        if index and net.norm == "layer":
            centred = x - x.mean(-1, keepdim=True)
            x = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        if index:
            x = getattr(x, net.activation)()
        x = torch.einsum("nbi,nio->nbo", x, layer.weight) + layer.bias[:, None]
    return x


@settings(deadline=None, max_examples=40)
@given(
    members=st.integers(1, 3),
    copies=st.integers(1, 2),
    parts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    hidden=st.lists(st.integers(1, 5), max_size=3),
    batch=st.integers(1, 4),
    activation=st.sampled_from(["relu", "tanh"]),
    norm=st.sampled_from(["none", "layer"]),
)
def test_outputs_and_gradients_are_those_of_plain_layers(
    members: int, copies: int, parts: list[int], hidden: list[int], batch: int, activation: str, norm: NormName
) -> None:
    net = network([sum(parts), *hidden, 2], members * copies, activation, norm)
    inputs = [torch.randn(members, batch, width, dtype=torch.float64, requires_grad=True) for width in parts]
    leaves = [*inputs, *net.parameters()]
    outputs, expected = net(*inputs), plainly(net, torch.cat(inputs, -1).repeat(copies, 1, 1))
    torch.testing.assert_close(outputs, expected)
    weights = torch.randn_like(expected)
    ours = torch.autograd.grad((outputs * weights).sum(), leaves)
    theirs = torch.autograd.grad((expected * weights).sum(), leaves)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other)


def test_frozen_networks_pass_gradients_to_their_inputs_alone() -> None:
    net = network([3, 4, 1], 2)
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    of_frozen = torch.autograd.grad(net(x, frozen=True).sum(), [x, *net.parameters()], allow_unused=True)
    (of_plain,) = torch.autograd.grad(net(x).sum(), [x])
    assert of_frozen[0] is not None
    torch.testing.assert_close(of_frozen[0], of_plain)
    assert all(own is None for own in of_frozen[1:])
    assert len(of_frozen) == 5


@pytest.mark.parametrize("others", [1, 4])
def test_a_networks_outputs_do_not_depend_on_the_others(others: int) -> None:
    alone, among = network([8, 32, 32, 2], 1).float(), network([8, 32, 32, 2], 1 + others).float()
    x = torch.randn(1 + others, 64, 8)
    assert torch.equal(alone(x[:1])[0], among(x)[0])


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 8), (8, 3), (5, 5)])
def test_orthogonal_layers_stretch_no_direction_more_than_another(inputs: int, outputs: int) -> None:
    layer = PopulationLinear(inputs, outputs, generators=generators(), device=CPU)
    make_orthogonal([layer], generators=generators(), gain=1.5)
    for own in layer.weight.detach():
        torch.testing.assert_close(torch.linalg.svdvals(own), torch.full((min(inputs, outputs),), 1.5))
    assert not torch.equal(layer.weight[0], layer.weight[1])
    assert (layer.bias == 0).all()


def test_the_last_layer_and_convolutions_have_their_gain() -> None:
    net: Any = PopulationMLP([4, 8, 2], generators=generators(), device=CPU)
    make_orthogonal(net.layers, generators=generators(), gain=2.0, last_gain=0.01)
    for layer, gain in zip(net.layers, (2.0, 0.01), strict=True):
        assert float(torch.linalg.svdvals(layer.weight[1].detach()).max()) == pytest.approx(gain, rel=1e-5)
    conv = PopulationConv(2, 6, kernel=3, generators=generators(), device=CPU)
    make_orthogonal([conv], generators=generators(), gain=2.0)
    torch.testing.assert_close(torch.linalg.svdvals(conv.weight[0].detach().flatten(1)), torch.full((6,), 2.0))


def test_the_activation_stands_between_layers_and_not_after_the_last() -> None:
    x = 3 * torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    for name, function in (("relu", torch.relu), ("tanh", torch.tanh)):
        net: Any = PopulationMLP([4, 8, 2], generators=generators(), device=CPU, activation=name)
        first, last = net.layers
        assert torch.equal(net(x), last(function(first(x))))
