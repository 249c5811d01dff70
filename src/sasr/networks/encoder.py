"""Networks on a population axis for whatever observations a space has: vectors or pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sasr.experience.flatten import state_width
from sasr.experience.frames import picture_axes
from sasr.networks.convolution import PopulationCNN
from sasr.networks.layers import NormName, PopulationLinear, PopulationMLP


class PopulationNet(nn.Module):
    """N networks from observations to `outputs` numbers: convolutions for pictures, else a perceptron.

    >>> space = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> net = PopulationNet(space, 2, hidden=(8,), generators=[torch.Generator()] * 2, device=torch.device("cpu"))
    >>> net(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        space: gym.Space[Any],
        outputs: int,
        *,
        hidden: Sequence[int] = (256, 256),
        features: int = 512,
        generators: Sequence[torch.Generator],
        device: torch.device,
        norm: NormName = "none",
    ) -> None:
        """Draw the first weights.

        Args:
            space: What observations are like. A picture has two axes of at least 36 pixels and may have channels,
                first or last; all else is flattened.
            outputs: Numbers that come out.
            hidden: Widths of a perceptron's hidden layers.
            features: Width of the one hidden layer after the convolutions.
            generators: One on the CPU for each of the N networks.
            device: Where the weights will be.
            norm: Layer normalisation before a ReLU between fully connected layers, or none.
        """
        super().__init__()
        self.shape = (state_width(space),) if space.shape is None else tuple(space.shape)
        self.axes = picture_axes(space)
        if self.axes is None:
            widths = (state_width(space), *hidden, outputs)
            self.net: nn.Module = PopulationMLP(widths, generators=generators, device=device, norm=norm)
            return
        channel, height, width = self.axes
        encoder = PopulationCNN(
            1 if channel < 0 else self.shape[channel],
            features=features,
            size=(self.shape[height], self.shape[width]),
            generators=generators,
            device=device,
            norm=norm,
        )
        head = PopulationLinear(features, outputs, generators=generators, device=device)
        self.net = nn.Sequential(encoder, head)

    def check(self, obs: Tensor, networks: int) -> None:
        """Raise unless observations are (N, B, *shape of the space)."""
        if obs.shape[0] != networks or tuple(obs.shape[2:]) != self.shape:
            raise ValueError(
                f"obs has shape {tuple(obs.shape)}, expected (seeds, environments, *observation shape) = "
                f"({networks}, environments, {', '.join(map(str, self.shape))})"
            )

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs (N, B, outputs) for observations (N, B, *shape)."""
        if self.axes is None:
            obs = (obs.flatten(2) if obs.dim() > 2 else obs.unsqueeze(-1)).to(next(self.net.parameters()).dtype)
        elif self.axes[0] == 2:
            obs = obs.movedim(-1, 2)
        outputs: Tensor = self.net(obs)
        return outputs
