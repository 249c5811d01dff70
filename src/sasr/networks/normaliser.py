"""Observations of one scale, for networks that learn from them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_SMALLEST = 1e-6  # added to variances, so that a feature which never changed stays at 0
_FARTHEST = 10.0  # standard deviations at which a feature is clipped


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
        scale = (self.variance + _SMALLEST).rsqrt()
        return ((obs - self.mean.unsqueeze(1)) * scale.unsqueeze(1)).clamp(-_FARTHEST, _FARTHEST)
