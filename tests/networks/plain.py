"""One network of a population as PyTorch's own layers have it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sasr.networks import PopulationCNN, PopulationMLP


def plain_linear(layer: Any, network: int) -> nn.Linear:
    inputs, outputs = layer.weight.shape[1:]
    own = nn.Linear(inputs, outputs, dtype=layer.weight.dtype)
    own.load_state_dict({"weight": layer.weight[network].T, "bias": layer.bias[network]})
    return own


def plain_mlp(net: Any, network: int) -> nn.Sequential:
    first, *rest = (plain_linear(layer, network) for layer in net.layers)
    parts: list[nn.Module] = [first]
    for layer in rest:
        parts += [*plain_norm(net, layer.in_features), nn.ReLU(), layer]
    return nn.Sequential(*parts)


def plain_norm(net: PopulationMLP | PopulationCNN, width: int) -> list[nn.Module]:
    return [nn.LayerNorm(width, elementwise_affine=False)] if net.norm == "layer" else []


class Brightness(nn.Module):
    """Bytes as shares of 255."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype) / 255


def plain_cnn(net: PopulationCNN, network: int) -> nn.Sequential:
    """For bytes (B, channels, H, W)."""
    parts: list[nn.Module] = [Brightness(net.dense.weight.dtype)]
    convolutions: Any = net.layers
    for layer in convolutions:
        outputs, inputs, kernel, _ = layer.weight.shape[1:]
        conv = nn.Conv2d(inputs, outputs, kernel, layer.stride, dtype=layer.weight.dtype)
        conv.load_state_dict({"weight": layer.weight[network], "bias": layer.bias[network]})
        parts += [conv, nn.ReLU()]
    return nn.Sequential(
        *parts, nn.Flatten(), plain_linear(net.dense, network), *plain_norm(net, net.features), nn.ReLU()
    )
