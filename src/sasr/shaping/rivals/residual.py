"""Deep perceptrons with skips, on a population axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sasr.networks.layers import PopulationLinear


class PopulationResidual(nn.Module):
    """N residual perceptrons side by side: a linear map, blocks of two layers with a skip, a narrow layer, the output.

    >>> net = PopulationResidual(3, 2, width=8, generators=[torch.Generator()] * 2, device=torch.device("cpu"))
    >>> net(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 256,
        blocks: int = 3,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int) -> PopulationLinear:
            return PopulationLinear(inputs, outputs, generators=generators, device=device)

        narrow = max(1, width // 2)
        self.first = layer(inputs, width)
        self.blocks = nn.ModuleList(layer(width, width) for _ in range(2 * blocks))
        self.narrow, self.last = layer(width, narrow), layer(narrow, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, B, outputs) for inputs (N, B, inputs)."""
        x = self.first(x)
        for one, two in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = (x + two(one(x).relu())).relu()
        outputs: Tensor = self.last(self.narrow(x).relu())
        return outputs
