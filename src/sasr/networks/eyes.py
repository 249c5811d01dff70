"""What networks see of an observation: a picture through convolutions of their own, all else as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sasr.experience.spaces import state_dtype, state_width
from sasr.networks.convolution import PopulationCNN


class Eyes(nn.Module):
    """N pairs of eyes side by side: observations (N, B, *shape) to vectors (N, B, width).

    >>> vectors = Eyes(gym.spaces.Box(-1.0, 1.0, (3,)), generators=[torch.Generator()], device=torch.device("cpu"))
    >>> vectors.width, vectors(torch.zeros(1, 5, 3)).shape
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
        self.width = state_width(space)
        self.convolutions: PopulationCNN | None = None
        if is_picture(space):
            assert space.shape is not None
            *stack, height, width = space.shape
            self.width = features
            self.convolutions = PopulationCNN(
                stack[0] if stack else 1, features=features, size=(height, width), generators=generators, device=device
            )

    def forward(self, obs: Tensor) -> Tensor:
        """Vectors (N, B, width) of float32."""
        if self.convolutions is not None:
            features: Tensor = self.convolutions(obs)
            return features
        return obs.flatten(2).float()


def is_picture(space: gym.Space[Any]) -> bool:
    """Whether observations are pictures: bytes with two axes, or three of which the first is a stack of frames."""
    return state_dtype(space) == torch.uint8 and space.shape is not None and len(space.shape) in (2, 3)
