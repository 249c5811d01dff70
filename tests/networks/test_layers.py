from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sasr.networks import PopulationMLP

CPU = torch.device("cpu")


def network(widths: list[int], count: int, seed: int = 0) -> PopulationMLP:
    generators = [torch.Generator().manual_seed(seed + n) for n in range(count)]
    return PopulationMLP(widths, generators=generators, device=CPU).double()


def plainly(net: PopulationMLP, x: Tensor) -> Tensor:
    """What the networks compute, left to autograd."""
    for index, layer in enumerate(net.layers):
        x = torch.einsum("nbi,nio->nbo", x.relu() if index else x, layer.weight) + layer.bias[:, None]
    return x


@settings(deadline=None, max_examples=40)
@given(
    members=st.integers(1, 3),
    copies=st.integers(1, 2),
    parts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    hidden=st.lists(st.integers(1, 5), max_size=3),
    batch=st.integers(1, 4),
)
def test_outputs_and_gradients_are_those_of_plain_layers(
    members: int, copies: int, parts: list[int], hidden: list[int], batch: int
) -> None:
    net = network([sum(parts), *hidden, 2], members * copies)
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
    assert of_frozen[1:] == (None,) * 4


def test_gradients_of_gradients_are_refused_and_not_wrong() -> None:
    net = network([3, 4, 1], 1)
    x = torch.randn(1, 5, 3, dtype=torch.float64, requires_grad=True)
    (once,) = torch.autograd.grad(net(x).square().sum(), [x], create_graph=True)
    with pytest.raises(RuntimeError):
        once.sum().backward()


@pytest.mark.parametrize("others", [1, 4])
def test_a_networks_outputs_do_not_depend_on_the_others(others: int) -> None:
    alone, among = network([8, 32, 32, 2], 1).float(), network([8, 32, 32, 2], 1 + others).float()
    x = torch.randn(1 + others, 64, 8)
    assert torch.equal(alone(x[:1])[0], among(x)[0])
