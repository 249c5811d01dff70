"""The networks of random network distillation: leaky rectifiers, orthogonal weights, and convolutions for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from sasr.networks.convolution import PopulationCNN
from sasr.networks.layers import PopulationLinear

Activation = Literal["leaky_relu", "tanh"]


class RandomNetwork(nn.Module):
    """N networks side by side from states (N, B, k), or pictures in the same form, to (N, B, outputs).

    >>> net = RandomNetwork(3, [8, 8], 2, generators=[torch.Generator()] * 2, device=torch.device("cpu"))
    >>> net(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        width: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        picture: tuple[int, int] | None = None,
        activation: Activation = "leaky_relu",
        bias: float = 0.0,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        """Draw the weights.

        Args:
            width: Entries of a state.
            hidden: Widths of the hidden layers; of those after the convolutions where states are pictures.
            outputs: Entries of what comes out.
            picture: Height and width where states are pictures.
            activation: Between the layers.
            bias: Standard deviation of the hidden layers' first biases.
            generators: One on the CPU for each of the N networks.
            device: Where the weights will be.
        """
        super().__init__()
        self.picture, self.activation = picture, activation
        widths = [*hidden, outputs]
        convolutions: list[nn.Module] = []
        if picture:
            whole = PopulationCNN(1, features=widths[0], size=picture, generators=generators, device=device)
            convolutions, layers = list(whole.layers), [whole.dense]
        else:
            layers = [PopulationLinear(width, widths[0], generators=generators, device=device)]
        layers += [PopulationLinear(*own, generators=generators, device=device) for own in pairwise(widths)]
        for layer in (*convolutions, *layers):
            _draw_orthogonal(layer, generators)
        for dense in layers[:-1]:
            drawn = [bias * torch.randn(dense.bias.shape[1:], generator=g) for g in generators]
            dense.bias.data.copy_(torch.stack(drawn))
        self.convolutions, self.layers = nn.ModuleList(convolutions), nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, B, outputs) of states (N, B, k)."""
        if self.picture:
            x = x.view(*x.shape[:2], 1, *self.picture)
            for convolution in self.convolutions:
                x = leaky_relu(convolution(x))
            x = x.flatten(2)
        for index, layer in enumerate(self.layers):
            x = layer(self._activate(x) if index else x)
        return x

    def _activate(self, x: Tensor) -> Tensor:
        return x.tanh() if self.activation == "tanh" else leaky_relu(x)


@torch.no_grad()
def _draw_orthogonal(layer: nn.Module, generators: Sequence[torch.Generator]) -> None:
    """Orthogonal weights of gain √2, each network's from its own generator, and no biases, as published."""
    weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
    empty = [torch.empty(weight.shape[1:]) for _ in generators]
    drawn = [nn.init.orthogonal_(own, 2.0**0.5, generator=g) for own, g in zip(empty, generators, strict=True)]
    weight.copy_(torch.stack(drawn))
    bias.zero_()
