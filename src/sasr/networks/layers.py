"""Networks on a population axis: N networks of one shape that share nothing, evaluated together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sasr.errors import unknown_name

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}
"""What may stand between the layers of a perceptron."""


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """N linear maps of weights (N, inputs, outputs) and biases (N, outputs), each on its own rows (N, B, inputs)."""
    return _forward([x], [weight], [bias], "relu")


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
        self.activation = activation
        self.layers = nn.ModuleList(
            PopulationLinear(inputs, outputs, generators=generators, device=device)
            for inputs, outputs in pairwise(widths)
        )

    def forward(self, *parts: Tensor, frozen: bool = False) -> Tensor:
        """Outputs (N, B, widths[-1]) for inputs (P, B, k), given whole or in parts whose widths add up to widths[0].

        P divides N: network n takes the rows of member n mod P. `frozen` passes gradients to the inputs alone.
        """
        layers = [layer for layer in self.layers if isinstance(layer, PopulationLinear)]
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        if frozen:
            weights, biases = [own.detach() for own in weights], [own.detach() for own in biases]
        return _forward(parts, weights, biases, self.activation)


def _forward(parts: Sequence[Tensor], weights: list[Tensor], biases: list[Tensor], activation: str) -> Tensor:
    if parts[0].device.type == "cpu" and not torch.compiler.is_compiling():
        one_by_one: Tensor = _OneByOne.apply(activation, len(parts), *parts, *weights, *biases)  # type: ignore[no-untyped-call]
        return one_by_one
    x = parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=-1)
    if len(x) < len(weights[0]):
        x = x.repeat(len(weights[0]) // len(x), 1, 1)
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        # The bias apart from the product: a compiler joins it to the activation, where `baddbmm` copies it out first.
        x = torch.bmm(ACTIVATIONS[activation](x) if index else x, weight) + bias.unsqueeze(1)
    return x


class _OneByOne(torch.autograd.Function):
    """The perceptrons one network after the other, with gradients written out: the fastest plain way on a CPU.

    A batched product on a CPU divides its work by N, which would make a member's last bits depend on how many others
    there are; it is also slower than plain ones. Against autograd over plain layers this saves joining inputs and
    outputs, copies between layers and products whose result nobody asked for: a third of an update's time.
    """

    @staticmethod
    def forward(ctx: Any, activation: str, parts: int, *tensors: Tensor) -> Tensor:
        inputs = tensors[:parts]
        depth = (len(tensors) - parts) // 2
        weights, biases = tensors[parts : parts + depth], tensors[parts + depth :]
        N, (P, B), widths = len(weights[0]), inputs[0].shape[:2], [own.shape[2] for own in inputs]
        outputs = [inputs[0].new_empty(N, B, weight.shape[2]) for weight in weights]
        for n in range(N):
            first, *others = (own[n % P] for own in inputs)
            block, *blocks = weights[0][n].split_with_sizes(widths)
            output = torch.addmm(biases[0][n], first, block, out=outputs[0][n])
            for own, block in zip(others, blocks, strict=True):
                output.addmm_(own, block)
            for weight, bias, following in zip(weights[1:], biases[1:], outputs[1:], strict=True):
                rows = output.relu_() if activation == "relu" else output.tanh_()
                output = torch.addmm(bias[n], rows, weight[n], out=following[n])
        ctx.activation, ctx.parts, ctx.depth = activation, parts, depth
        ctx.save_for_backward(*inputs, *weights, *outputs[:-1])
        return outputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_output: Tensor) -> tuple[Tensor | None, ...]:
        parts, depth = ctx.parts, ctx.depth
        inputs, weights = ctx.saved_tensors[:parts], ctx.saved_tensors[parts : parts + depth]
        hidden = ctx.saved_tensors[parts + depth :]
        wanted = ctx.needs_input_grad[2:]
        N, P, widths, learns = len(weights[0]), len(inputs[0]), [own.shape[2] for own in inputs], wanted[parts]
        of_inputs = [torch.zeros_like(own) if asked else None for own, asked in zip(inputs, wanted, strict=False)]
        of_weights = [torch.empty_like(weight) for weight in weights] if learns else []
        of_biases = [weight.new_empty(N, weight.shape[2]) for weight in weights] if learns else []
        for n in range(N):
            gradient = of_output[n]
            for layer in range(depth - 1, 0, -1):
                rows = hidden[layer - 1][n]
                if learns:
                    torch.sum(gradient, 0, out=of_biases[layer][n])
                    torch.mm(rows.T, gradient, out=of_weights[layer][n])
                before = gradient @ weights[layer][n].T
                if ctx.activation == "relu":
                    gradient = torch.ops.aten.threshold_backward.grad_input(before, rows, 0, grad_input=before)
                else:
                    gradient = torch.ops.aten.tanh_backward.grad_input(before, rows, grad_input=before)
            if learns:
                torch.sum(gradient, 0, out=of_biases[0][n])
                for own, block in zip(inputs, of_weights[0][n].split_with_sizes(widths), strict=True):
                    torch.mm(own[n % P].T, gradient, out=block)
            for of_input, block in zip(of_inputs, weights[0][n].split_with_sizes(widths), strict=True):
                if of_input is not None:
                    of_input[n % P].addmm_(gradient, block.T)
        nothing = (None,) * depth
        return (None, None, *of_inputs, *(of_weights or nothing), *(of_biases or nothing))


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
