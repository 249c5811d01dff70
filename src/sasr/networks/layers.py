"""Networks on a population axis: N networks of one shape that share nothing, evaluated together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from sasr.errors import unknown_name
from sasr.randomness import MemberStreams

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}
"""What may stand between the layers of a perceptron."""
NormName = Literal["layer", "none"]
"""What may come before it: layer normalisation without parameters, or nothing."""
_SMALLEST_VARIANCE = 1e-6  # added to variances, so that a feature which never changed stays at 0
_FARTHEST = 10.0  # standard deviations at which a normalised feature is clipped


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """N linear maps of weights (N, inputs, outputs) and biases (N, outputs), each on its own rows (N, B, inputs)."""
    if runs_one_by_one(x):
        return torch.stack([torch.addmm(b, rows, w) for rows, w, b in zip(x, weight, bias, strict=True)])
    return torch.bmm(x, weight) + bias.unsqueeze(1)


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
        norm: NormName = "none",
    ) -> None:
        """Draw the first weights.

        Args:
            widths: Of the inputs, the hidden layers and the outputs.
            generators: One on the CPU for each of the N networks.
            device: Where the weights will be.
            activation: What stands between two layers.
            norm: What comes before each activation: none, or layer, which brings a row to mean 0 and variance 1.
        """
        super().__init__()
        if activation not in ACTIVATIONS:
            raise unknown_name("activation", activation, ACTIVATIONS)
        check_norm(norm)
        self.activation, self.norm = activation, norm
        self.layers = nn.ModuleList(
            PopulationLinear(inputs, outputs, generators=generators, device=device)
            for inputs, outputs in pairwise(widths)
        )

    def forward(self, *parts: Tensor, frozen: bool = False, still: bool = False) -> Tensor:
        """Outputs (N, B, widths[-1]) for inputs (P, B, k), given whole or in parts whose widths add up to widths[0].

        P divides N: network n takes the rows of seed n mod P. `frozen` passes gradients to the inputs alone. `still`
        changes nothing, as there is no noise in these weights.
        """
        x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        weights, biases = self.matrices()
        if frozen:
            weights, biases = [w.detach() for w in weights], [b.detach() for b in biases]
        networks = len(weights[0])
        if runs_one_by_one(x):
            alone = zip(*(parameter.unbind() for parameter in (*weights, *biases)), strict=True)
            depth = len(weights)
            outputs = [
                self._single(x[n % len(x)], parameters[:depth], parameters[depth:])
                for n, parameters in enumerate(alone)
            ]
            return torch.stack(outputs)
        if len(x) < networks:
            x = x.repeat(networks // len(x), 1, 1)
        return self._batched(x, weights, biases)

    def _single(self, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
        """Outputs (B, widths[-1]) of one network."""
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = torch.addmm(bias, self._between(x) if index else x, weight)
        return x

    def _batched(self, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
        """Outputs (N, B, widths[-1]) of all networks."""
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            # The bias apart from the product: a compiler joins it to what follows, where `baddbmm` copies it out first.
            x = torch.bmm(self._between(x) if index else x, weight) + bias.unsqueeze(1)
        return x

    def _between(self, x: Tensor) -> Tensor:
        """What stands between two layers."""
        return ACTIVATIONS[self.activation](normalised(x, self.norm))

    def resample(self, streams: MemberStreams) -> None:
        """Nothing: only a `NoisyMLP` has noise to draw."""

    def noise_figures(self) -> dict[str, Tensor]:
        """Nothing to log."""
        return {}

    def matrices(self) -> tuple[list[Tensor], list[Tensor]]:
        """Weights (N, inputs, outputs) and biases (N, outputs) of the layers."""
        layers = [layer for layer in self.layers if isinstance(layer, PopulationLinear)]
        return [layer.weight for layer in layers], [layer.bias for layer in layers]


class RunningNormaliser(nn.Module):
    """Brings every feature of P seeds' observations to mean 0 and variance 1, by the batches that it was shown.

    >>> normaliser = RunningNormaliser(1, 2, torch.device("cpu"))
    >>> normaliser.update(torch.tensor([[[1.0, 100.0], [3.0, 300.0]]]))
    >>> normaliser(torch.tensor([[[3.0, 100.0]]])).round(decimals=3).tolist()
    [[[1.0, -1.0]]]
    """

    mean: Tensor  # (P, k)
    variance: Tensor  # (P, k)
    rows: Tensor  # () observations of each seed so far
    compilable = ("update",)

    def __init__(self, seeds: int, width: int, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(seeds, width, device=device))
        self.register_buffer("variance", torch.ones(seeds, width, device=device))
        self.register_buffer("rows", torch.zeros((), device=device))

    @torch.no_grad()
    def update(self, obs: Tensor) -> None:
        """Add observations (P, B, k) to the statistics."""
        self.rows.add_(obs.shape[1])
        share = obs.shape[1] / self.rows
        shift = obs.mean(1) - self.mean
        spread = obs.var(1, correction=0) + (1.0 - share) * shift.square()
        self.variance.add_(share * (spread - self.variance))
        self.mean.add_(share * shift)

    def forward(self, obs: Tensor) -> Tensor:
        """Observations (P, B, k), normalised."""
        scale = (self.variance + _SMALLEST_VARIANCE).rsqrt()
        return ((obs - self.mean.unsqueeze(1)) * scale.unsqueeze(1)).clamp(-_FARTHEST, _FARTHEST)


def runs_one_by_one(x: Tensor) -> bool:
    """Whether networks run one after the other rather than as one batched product.

    A batched product on a CPU divides its work by N, which would make a seed's last bits depend on how many seeds there
    are; it is also slower there.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def normalised(x: Tensor, norm: NormName) -> Tensor:
    """Rows (…, features) with mean 0 and variance 1, or as they are."""
    return layer_norm(x, x.shape[-1:]) if norm == "layer" else x


def check_norm(norm: str) -> None:
    """Raise unless it is a `NormName`."""
    if norm not in get_args(NormName):
        raise unknown_name("normalisation", norm, get_args(NormName))


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
        for matrix, generator in zip(weight, generators, strict=True):
            # Weights of linear layers are (inputs, outputs), those of convolutions the other way round.
            outputs_first = matrix.T if matrix.dim() == 2 else matrix
            outputs_first.copy_(nn.init.orthogonal_(torch.empty(outputs_first.shape), size, generator=generator))
        bias.zero_()
