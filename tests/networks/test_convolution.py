from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sasr.networks import PopulationCNN, PopulationConv
from tests.networks.plain import plain_cnn

CPU = torch.device("cpu")


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def pictures(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.mark.parametrize("N", [1, 3])
@pytest.mark.parametrize("channels", [1, 4])
def test_each_network_is_the_nature_network_of_its_own_weights(N: int, channels: int) -> None:
    net = PopulationCNN(channels, features=16, generators=generators(*range(N)), device=CPU).double()
    x = pictures(N, 3, channels, 84, 84)
    ours = net(x)
    first: Any = net.layers[0]
    ours.square().sum().backward()
    for p in range(N):
        plain: Any = plain_cnn(net, p)
        theirs = plain(x[p])
        theirs.square().sum().backward()
        torch.testing.assert_close(ours[p], theirs, rtol=0, atol=1e-12)
        torch.testing.assert_close(first.weight.grad[p], plain[1].weight.grad, rtol=1e-10, atol=1e-12)


def test_in_groups_and_one_by_one_are_the_same_convolution() -> None:
    conv = PopulationConv(2, 5, kernel=3, stride=2, generators=generators(0, 1, 2), device=CPU)
    x = torch.randn(3, 4, 2, 9, 11)
    torch.testing.assert_close(conv(x), conv.in_groups(x))


def test_a_networks_bits_do_not_depend_on_the_others() -> None:
    alone, crowd = (PopulationCNN(1, features=16, generators=generators(*s), device=CPU) for s in ((5,), (4, 5, 6)))
    x = pictures(3, 7, 84, 84)
    one, three = alone(x[1:2]), crowd(x)
    assert torch.equal(one[0], three[1])
    one.sum().backward()
    three.sum().backward()
    for (name, ours), theirs in zip(alone.named_parameters(), crowd.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad[0], theirs.grad[1]), name


def test_bytes_and_their_shares_of_255_are_the_same_picture() -> None:
    net = PopulationCNN(1, features=16, generators=generators(0), device=CPU)
    x = pictures(1, 2, 84, 84)
    torch.testing.assert_close(net(x), net(x[:, :, None].float() / 255))
    assert (net(x) >= 0).all()


def test_other_sizes_work_down_to_36_pixels() -> None:
    net = PopulationCNN(3, features=8, size=(36, 50), generators=generators(0, 1), device=CPU)
    assert net(pictures(2, 4, 3, 36, 50)).shape == (2, 4, 8)
    with pytest.raises(ValueError, match=r"size=\(35, 84\) is too small.*at least 36 pixels"):
        PopulationCNN(3, size=(35, 84), generators=generators(0), device=CPU)


def test_first_weights_are_drawn_as_pytorch_draws_them() -> None:
    conv = PopulationConv(16, 64, kernel=5, generators=generators(0), device=CPU)
    torch.manual_seed(0)
    theirs = nn.Conv2d(16, 64, 5)
    torch.testing.assert_close(conv.weight.abs().max(), theirs.weight.abs().max(), rtol=1e-3, atol=0)
    torch.testing.assert_close(conv.weight.std(), theirs.weight.std(), rtol=0.02, atol=0)
