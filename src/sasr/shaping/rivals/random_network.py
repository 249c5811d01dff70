"""The networks of random network distillation: orthogonal weights, and leaky convolutions for pictures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from sasr.networks.convolution import PopulationCNN
from sasr.networks.layers import PopulationLinear, PopulationMLP, make_orthogonal


class RandomNetwork(nn.Module):
    """N networks from states (P, B, k), or pictures in the same form, to (N, B, outputs).

    P divides N: network n takes the rows of seed n mod P.

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
        activation: str = "relu",
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
            activation: Between the layers after the convolutions.
            bias: Size of a perceptron's first biases, over the size of what they are added to.
            generators: One on the CPU for each of the N networks.
            device: Where the weights will be.
        """
        super().__init__()
        self.picture, self.networks = picture, len(generators)
        self.convolutions = nn.ModuleList()
        inputs = width
        if picture:
            whole = PopulationCNN(1, features=1, size=picture, generators=generators, device=device)
            self.convolutions, inputs = whole.layers, whole.dense.weight.shape[1]
        widths = (inputs, *hidden, outputs)
        self.dense = PopulationMLP(widths, generators=generators, device=device, activation=activation)
        make_orthogonal([*self.convolutions, *self.dense.layers], generators=generators, gain=2.0**0.5)
        for layer in self.dense.layers[:-1] if bias and not picture else ():
            assert isinstance(layer, PopulationLinear)
            # Orthogonal layers keep the length √k of a standardised state, shared out among their units.
            size = bias * (2.0 * width / layer.bias.shape[1]) ** 0.5
            drawn = [size * torch.randn(layer.bias.shape[1:], generator=g) for g in generators]
            layer.bias.data.copy_(torch.stack(drawn))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, B, outputs) of states (P, B, k)."""
        if self.picture:
            x = x.view(*x.shape[:2], 1, *self.picture).repeat(self.networks // len(x), 1, 1, 1, 1)
            for convolution in self.convolutions:
                x = leaky_relu(convolution(x))
            x = x.flatten(2)
        outputs: Tensor = self.dense(x)
        return outputs
