"""Networks on a population axis: N networks of one shape that share nothing, evaluated together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """N linear maps of weights (N, inputs, outputs) and biases (N, outputs), each on its own rows (N, B, inputs)."""
    if x.device.type != "cpu":
        return torch.baddbmm(bias.unsqueeze(1), x, weight)
    # A batched product on a CPU divides its work by N, which would make a member's last bits depend on how many
    # others there are; it is also slower than plain ones. squeeze and unbind are free to differentiate, where
    # weight[i] would fill a tensor of all N weights with zeros for each network.
    if len(weight) == 1:
        return torch.addmm(bias.squeeze(0), x.squeeze(0), weight.squeeze(0)).unsqueeze(0)
    own = zip(bias.unbind(), x.unbind(), weight.unbind(), strict=True)
    return torch.stack([torch.addmm(bias, rows, weight) for bias, rows, weight in own])


class PopulationLinear(nn.Module):
    """N linear maps side by side: (N, B, inputs) to (N, B, outputs)."""

    weight: Tensor  # (N, inputs, outputs)
    bias: Tensor  # (N, outputs)

    def __init__(
        self, inputs: int, outputs: int, *, generators: Sequence[torch.Generator], device: torch.device
    ) -> None:
        """Draw the first weights, each network's from its own one of N generators on the CPU.

        On the CPU whatever the device, so that a seed starts from the same weights everywhere.
        """
        super().__init__()
        bound = inputs**-0.5  # PyTorch's own rule for nn.Linear, weights and biases alike
        weight = [torch.empty(inputs, outputs).uniform_(-bound, bound, generator=g) for g in generators]
        bias = [torch.empty(outputs).uniform_(-bound, bound, generator=g) for g in generators]
        self.weight = nn.Parameter(torch.stack(weight).to(device))
        self.bias = nn.Parameter(torch.stack(bias).to(device))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each network's map to its own rows."""
        return linear(x, self.weight, self.bias)


class PopulationMLP(nn.Module):
    """N multilayer perceptrons side by side, with ReLU between their layers.

    >>> net = PopulationMLP([3, 8, 2], generators=[torch.Generator()] * 2, device=torch.device("cpu"))
    >>> net(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            PopulationLinear(inputs, outputs, generators=generators, device=device)
            for inputs, outputs in pairwise(widths)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, B, widths[-1]) for inputs (N, B, widths[0])."""
        for index, layer in enumerate(self.layers):
            x = layer(x.relu() if index else x)
        return x
