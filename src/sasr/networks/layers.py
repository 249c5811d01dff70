"""Networks on a population axis: N networks of one shape that share nothing, evaluated together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from sasr.errors import unknown_name

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}
"""What may stand between the layers of a perceptron."""


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
        if x.device.type != "cpu":
            return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight)
        # A batched product on a CPU divides its work by N, which would make a member's last bits depend on how many
        # others there are; it is also slower than plain ones. squeeze and unbind are free to differentiate, where
        # weight[i] would fill a tensor of all N weights with zeros for each network.
        if len(self.weight) == 1:
            return torch.addmm(self.bias.squeeze(0), x.squeeze(0), self.weight.squeeze(0)).unsqueeze(0)
        own = zip(self.bias.unbind(), x.unbind(), self.weight.unbind(), strict=True)
        return torch.stack([torch.addmm(bias, rows, weight) for bias, rows, weight in own])


class PopulationMLP(nn.Module):
    """N multilayer perceptrons side by side, with ReLU between their layers, or another of `ACTIVATIONS`.

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
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise unknown_name("activation", activation, ACTIVATIONS)
        self.activation = ACTIVATIONS[activation]
        self.layers = nn.ModuleList(
            PopulationLinear(inputs, outputs, generators=generators, device=device)
            for inputs, outputs in pairwise(widths)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, B, widths[-1]) for inputs (N, B, widths[0])."""
        for index, layer in enumerate(self.layers):
            x = layer(self.activation(x) if index else x)
        return x


@torch.no_grad()
def make_orthogonal(
    layers: Iterable[nn.Module], *, generators: Sequence[torch.Generator], gain: float, last_gain: float | None = None
) -> None:
    """Start population layers, linear or convolutional, from orthogonal weights and biases of 0 (Saxe et al., 2014).

    Args:
        layers: In the order they are drawn in.
        generators: One on the CPU for each network, as the layers themselves were given.
        gain: Size of the weights: √2 before a ReLU or, by custom, a tanh.
        last_gain: Size of the last layer's weights; None is `gain`.
    """
    ordered = list(layers)
    for layer in ordered:
        weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
        size = last_gain if last_gain is not None and layer is ordered[-1] else gain
        for own, generator in zip(weight, generators, strict=True):
            outputs_first = own.T if own.dim() == 2 else own  # linear weights are (inputs, outputs), convolutions' not
            outputs_first.copy_(nn.init.orthogonal_(torch.empty(outputs_first.shape), size, generator=generator))
        bias.zero_()
