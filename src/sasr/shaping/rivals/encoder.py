"""Observations as the vectors that networks take: pictures through convolutions, all else as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sasr.experience.flatten import state_width
from sasr.experience.frames import picture_axes
from sasr.networks.convolution import PopulationCNN


class ObservationEncoder(nn.Module):
    """N encoders side by side: observations (N, B, *shape) to vectors (N, B, width).

    >>> space = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> encoder = ObservationEncoder(space, generators=[torch.Generator()], device=torch.device("cpu"))
    >>> encoder.width, encoder(torch.zeros(1, 5, 3)).shape
    (3, torch.Size([1, 5, 3]))
    """

    def __init__(
        self,
        space: gym.Space[Any],
        *,
        generators: Sequence[torch.Generator],
        device: torch.device,
        features: int = 512,
    ) -> None:
        """Draw convolutions if the space is one of pictures.

        Args:
            space: Of one observation.
            generators: One on the CPU for each of the N networks.
            device: Where the weights will be.
            features: Numbers that a picture becomes.
        """
        super().__init__()
        self.width, self.axes = state_width(space), picture_axes(space)
        self.convolutions: PopulationCNN | None = None
        if self.axes is not None:
            assert space.shape is not None
            channel, height, width = self.axes
            self.width = features
            self.convolutions = PopulationCNN(
                1 if channel < 0 else space.shape[channel],
                features=features,
                size=(space.shape[height], space.shape[width]),
                generators=generators,
                device=device,
            )

    def forward(self, obs: Tensor) -> Tensor:
        """Vectors (N, B, width) of float32."""
        if self.axes is None:
            return obs.flatten(2).float()
        assert self.convolutions is not None
        features: Tensor = self.convolutions(obs.movedim(-1, 2) if self.axes[0] == 2 else obs)
        return features


class EncodedNetwork(nn.Module):
    """N networks of observations (N, B, *shape) and the vectors beside them (N, B, …), to (N, B, outputs)."""

    body: Any
    """What maps the vectors: a module."""

    def __init__(self, encoder: ObservationEncoder, body: nn.Module) -> None:
        super().__init__()
        self.encoder, self.body = encoder, body

    def forward(self, obs: Tensor, *beside: Tensor) -> Tensor:
        """Outputs for observations."""
        return self.outputs(self.encoder(obs), *beside)

    def outputs(self, vectors: Tensor, *beside: Tensor) -> Tensor:
        """Outputs for observations that are encoded already, (N, B, k)."""
        outputs: Tensor = self.body(torch.cat([vectors, *beside], dim=-1))
        return outputs
