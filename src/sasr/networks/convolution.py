"""Networks on a population axis for pictures: N stacks of convolutions that share nothing, evaluated together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from sasr.experience.frames import SMALLEST_SIDE
from sasr.networks.layers import NormName, PopulationLinear, normalised

_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel and stride of each layer (Mnih et al., 2015)


class PopulationConv(nn.Module):
    """N convolutions side by side: (N, B, inputs, H, W) to (N, B, outputs, H′, W′), without padding."""

    weight: Tensor  # (N, outputs, inputs, kernel, kernel)
    bias: Tensor  # (N, outputs)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel: int,
        stride: int = 1,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        """Draw the first weights, each network's from its own one of N generators on the CPU, as linear layers do."""
        super().__init__()
        self.stride = stride
        shape = (outputs, inputs, kernel, kernel)
        bound = math.prod(shape[1:]) ** -0.5  # PyTorch's own rule for nn.Conv2d, weights and biases alike
        weight = [torch.empty(shape).uniform_(-bound, bound, generator=g) for g in generators]
        bias = [torch.empty(outputs).uniform_(-bound, bound, generator=g) for g in generators]
        self.weight = nn.Parameter(torch.stack(weight).to(device))
        self.bias = nn.Parameter(torch.stack(bias).to(device))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each network's convolution to its own pictures."""
        if x.device.type != "cpu":
            return self.in_groups(x)
        # One by one, so that a seed's bits do not depend on how many others there are; see PopulationLinear.
        networks = zip(x.unbind(), self.weight.unbind(), self.bias.unbind(), strict=True)
        return torch.stack([conv2d(pictures, w, b, stride=self.stride) for pictures, w, b in networks])

    def in_groups(self, x: Tensor) -> Tensor:
        """The same as one convolution whose groups of channels are the networks: an accelerator's way."""
        N, B = x.shape[:2]
        # What comes out has the networks' axis second in memory, which is how the next layer wants it: between layers
        # nothing is copied.
        side_by_side = x.transpose(0, 1).flatten(1, 2)
        y = conv2d(side_by_side, self.weight.flatten(0, 1), self.bias.flatten(), stride=self.stride, groups=N)
        return y.view(B, N, -1, *y.shape[2:]).transpose(0, 1)


class PopulationCNN(nn.Module):
    """N of the convolutional networks that learned Atari from pictures (Mnih et al., 2015), side by side.

    >>> net = PopulationCNN(1, features=8, generators=[torch.Generator()] * 2, device=torch.device("cpu"))
    >>> net(torch.zeros(2, 5, 84, 84, dtype=torch.uint8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        channels: int,
        *,
        features: int = 512,
        size: tuple[int, int] = (84, 84),
        generators: Sequence[torch.Generator],
        device: torch.device,
        norm: NormName = "none",
    ) -> None:
        """Draw the first weights.

        Args:
            channels: Channels of a picture, such as 4 for a stack of four grey frames.
            features: Numbers that a picture becomes.
            size: Height and width of a picture.
            generators: One on the CPU for each of the N networks.
            device: Where the weights will be.
            norm: Layer normalisation before the last ReLU, or none.
        """
        super().__init__()
        if min(size) < SMALLEST_SIDE:
            raise ValueError(
                f"size={size} is too small a picture for three convolutions: give at least {SMALLEST_SIDE} pixels "
                "each way, or flatten it for a perceptron"
            )
        self.channels, self.features, self.norm = channels, features, norm
        layers, inputs, (height, width) = [], channels, size
        for outputs, kernel, stride in _NATURE:
            layers.append(
                PopulationConv(inputs, outputs, kernel=kernel, stride=stride, generators=generators, device=device)
            )
            inputs, height, width = outputs, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        self.layers = nn.ModuleList(layers)
        self.dense = PopulationLinear(inputs * height * width, features, generators=generators, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Features (N, B, features), none below 0, of pictures (N, B, channels, H, W), or (N, B, H, W) of one channel.

        Bytes count as brightness from 0 to 255 and are scaled to [0, 1]; floats are taken as they are.
        """
        if x.dim() == 4:
            x = x.unsqueeze(2)
        scale = 1.0 / 255.0 if x.dtype == torch.uint8 else 1.0
        x = x.to(self.dense.weight.dtype) * scale
        for layer in self.layers:
            x = layer(x).relu()
        features: Tensor = normalised(self.dense(x.flatten(2)), self.norm).relu()
        return features
