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
        weights, biases = self.matrices()
        if frozen:
            weights, biases = [own.detach() for own in weights], [own.detach() for own in biases]
        return _forward(parts, weights, biases, self.activation)

    def matrices(self) -> tuple[list[Tensor], list[Tensor]]:
        """Weights (N, inputs, outputs) and biases (N, outputs) of the layers."""
        layers = [layer for layer in self.layers if isinstance(layer, PopulationLinear)]
        return [layer.weight for layer in layers], [layer.bias for layer in layers]


def _forward(parts: Sequence[Tensor], weights: list[Tensor], biases: list[Tensor], activation: str) -> Tensor:
    if parts[0].device.type == "cpu" and not torch.compiler.is_compiling():
        if not torch.is_grad_enabled():
            return torch.stack([said[-1] for said in _forward_each(joined(parts), weights, biases, activation)])
        outputs: Tensor = _OneByOne.apply(activation, len(parts), *parts, *weights, *biases)  # type: ignore[no-untyped-call]
        return outputs
    x = joined(parts)
    if len(x) < len(weights[0]):
        x = x.repeat(len(weights[0]) // len(x), 1, 1)
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        # The bias apart from the product: a compiler joins it to the activation, where `baddbmm` copies it out first.
        x = torch.bmm(ACTIVATIONS[activation](x) if index else x, weight) + bias.unsqueeze(1)
    return x


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Inputs (P, B, k) from parts whose widths add up to k."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=-1)


class _OneByOne(torch.autograd.Function):
    """The perceptrons one network after the other, with gradients written out: the fastest plain way on a CPU.

    A batched product on a CPU divides its work by N, which would make a member's last bits depend on how many others
    there are; it is also slower than plain ones. Against autograd over plain layers this saves joining outputs, copies
    between layers and products whose result nobody asked for: a third of an update's time.
    """

    @staticmethod
    def forward(ctx: Any, activation: str, parts: int, *tensors: Tensor) -> Tensor:
        x, depth = joined(tensors[:parts]), (len(tensors) - parts) // 2
        weights, biases = tensors[parts : parts + depth], tensors[parts + depth :]
        said = _forward_each(x, weights, biases, activation)
        ctx.activation, ctx.depth, ctx.widths = activation, depth, [own.shape[2] for own in tensors[:parts]]
        ctx.save_for_backward(x, *weights, *(hidden for own in said for hidden in own[:-1]))
        return torch.stack([own[-1] for own in said])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_output: Tensor) -> tuple[Tensor | None, ...]:
        x, *saved = ctx.saved_tensors
        depth, widths, weights, said = ctx.depth, ctx.widths, saved[: ctx.depth], saved[ctx.depth :]
        wanted, learns = ctx.needs_input_grad[2 : 2 + len(widths)], ctx.needs_input_grad[2 + len(widths)]
        of_inputs = [
            x.new_zeros(*x.shape[:2], width) if asked else None for width, asked in zip(widths, wanted, strict=True)
        ]
        of_parameters = empty_gradients(weights) if learns else []
        into = one_by_one(*of_parameters) if learns else [()] * len(of_output)
        members = x.unbind()
        for n, own in enumerate(one_by_one(*weights)):
            p, hidden = n % len(members), said[n * (depth - 1) : (n + 1) * (depth - 1)]
            gradient = backward_one(of_output[n], members[p], own, hidden, ctx.activation, into=into[n])
            for of_input, block in zip(of_inputs, own[0].split_with_sizes(widths), strict=True):
                if of_input is not None:
                    of_input[p].addmm_(gradient, block.T)
        return (None, None, *of_inputs, *(of_parameters or (None,) * (2 * depth)))


# ------------------------------------------------------ one network, by hand


def one_by_one(*stacked: Tensor) -> list[tuple[Tensor, ...]]:
    """Each network's part of tensors (N, …)."""
    return list(zip(*(own.unbind() for own in stacked), strict=True))


def _forward_each(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str
) -> list[list[Tensor]]:
    depth, members = len(weights), x.unbind()
    return [
        forward_one(members[n % len(members)], own[:depth], own[depth:], activation)
        for n, own in enumerate(one_by_one(*weights, *biases))
    ]


def empty_gradients(weights: Sequence[Tensor]) -> list[Tensor]:
    """Room for gradients of weights (N, inputs, outputs), layer by layer, and after them of biases (N, outputs)."""
    return [torch.empty_like(own) for own in weights] + [own.new_empty(len(own), own.shape[2]) for own in weights]


def forward_one(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str = "relu"
) -> list[Tensor]:
    """What each layer of one network says (B, outputs) of inputs (B, k), after its activation but for the last one."""
    said: list[Tensor] = []
    for weight, bias in zip(weights, biases, strict=True):
        if said:
            x = x.relu_() if activation == "relu" else x.tanh_()
        x = torch.addmm(bias, x, weight)
        said.append(x)
    return said


def backward_one(
    gradient: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    hidden: Sequence[Tensor],
    activation: str = "relu",
    *,
    into: Sequence[Tensor] = (),
) -> Tensor:
    """From the gradient of one network's outputs (B, outputs) that of its first layer before activation, (B, width).

    Args:
        gradient: Of what is lowered, by the outputs.
        x: The inputs (B, k).
        weights: Of each layer.
        hidden: What the layers before the last one said.
        activation: The network's.
        into: Gradients of the weights, layer by layer, and of the biases are written here; empty: nobody wants them.
    """
    depth = len(weights)
    for layer in range(depth - 1, -1, -1):
        rows = hidden[layer - 1] if layer else x
        if into:
            torch.mm(rows.T, gradient, out=into[layer])
            torch.sum(gradient, 0, out=into[depth + layer])
        if layer:
            before = gradient @ weights[layer].T
            if activation == "relu":
                gradient = torch.ops.aten.threshold_backward.grad_input(before, rows, 0, grad_input=before)
            else:
                gradient = torch.ops.aten.tanh_backward.grad_input(before, rows, grad_input=before)
    return gradient


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
