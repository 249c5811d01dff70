from __future__ import annotations

import pytest
import torch

from sasr.networks import PopulationConv, PopulationLinear, PopulationMLP, make_orthogonal

CPU = torch.device("cpu")


def generators(n: int = 2) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(n)]


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 8), (8, 3), (5, 5)])
def test_orthogonal_layers_stretch_no_direction_more_than_another(inputs: int, outputs: int) -> None:
    layer = PopulationLinear(inputs, outputs, generators=generators(), device=CPU)
    make_orthogonal([layer], generators=generators(), gain=1.5)
    for own in layer.weight.detach():
        torch.testing.assert_close(torch.linalg.svdvals(own), torch.full((min(inputs, outputs),), 1.5))
    assert not torch.equal(layer.weight[0], layer.weight[1])
    assert (layer.bias == 0).all()


def test_the_last_layer_and_convolutions_have_their_gain() -> None:
    net = PopulationMLP([4, 8, 2], generators=generators(), device=CPU)
    make_orthogonal(net.layers, generators=generators(), gain=2.0, last_gain=0.01)
    for layer, gain in zip(net.layers, (2.0, 0.01), strict=True):
        assert float(torch.linalg.svdvals(layer.weight[1].detach()).max()) == pytest.approx(gain, rel=1e-5)
    conv = PopulationConv(2, 6, kernel=3, generators=generators(), device=CPU)
    make_orthogonal([conv], generators=generators(), gain=2.0)
    torch.testing.assert_close(torch.linalg.svdvals(conv.weight[0].detach().flatten(1)), torch.full((6,), 2.0))


def test_the_activation_stands_between_layers_and_not_after_the_last() -> None:
    x = 3 * torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    for name, function in (("relu", torch.relu), ("tanh", torch.tanh)):
        net = PopulationMLP([4, 8, 2], generators=generators(), device=CPU, activation=name)
        first, last = net.layers
        assert torch.equal(net(x), last(function(first(x))))
