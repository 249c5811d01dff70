"""Running mean and variance of states, and the frozen standardisation that the stored sums were made with."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

CONSTANT = 1e-8  # a feature whose spread is below this share of its size is called constant


class StateNormaliser(nn.Module):
    """Standardises states of P seeds: (s − mean)/std, clipped.

    Statistics move with every observed state, but a kernel sum is only valid for states mapped the same way as those
    in it. So states are mapped by a frozen copy, renewed by `freeze` when the sums are rebuilt.
    """

    count: Tensor  # (P,) float64
    mean: Tensor  # (P, k) float64
    spread: Tensor  # (P, k) float64, sum of squared deviations from the mean
    centre: Tensor  # (P, k) float32, frozen
    scale: Tensor  # (P, k) float32, frozen
    compilable = ("forward",)

    def __init__(self, members: int, k: int, *, enabled: bool, clip: float, device: torch.device | None = None) -> None:
        super().__init__()
        self.enabled, self.clip = enabled, clip
        shape = (members, k)
        # Statistics stay where steps come from, on the CPU; what maps batches is on the device.
        self.register_buffer("count", torch.zeros(members, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("spread", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("centre", torch.zeros(shape, device=device))
        self.register_buffer("scale", torch.ones(shape, device=device))

    def observe(self, states: Tensor, valid: Tensor | None = None) -> None:
        """Merge states (P, n, k) into the statistics by Chan's rule, leaving out those that are not valid (P, n)."""
        # In numpy: a handful of small operations for every step, and numpy's cost a fifth of torch's.
        count, running_mean, running_spread = self.count.numpy(), self.mean.numpy(), self.spread.numpy()
        x = states.numpy().astype(np.float64)
        weight = None if valid is None else valid.numpy()[..., None]
        if weight is None:
            new: NDArray[np.float64] | float = float(x.shape[1])
            mean = x[:, 0] if x.shape[1] == 1 else x.sum(1) / new
        else:
            new = weight.sum(1).astype(np.float64)
            x = np.where(weight, x, 0.0)  # 0 · NaN would still be NaN
            mean = x.sum(1) / np.maximum(new, 1.0)
        delta = mean - running_mean
        before = count[:, None]
        share = new / np.maximum(before + new, 1.0)
        running_spread += delta * delta * (before * share)
        if x.shape[1] > 1:  # a single state has no spread
            off = x - mean[:, None]
            running_spread += (off * off * (1.0 if weight is None else weight)).sum(1)
        running_mean += delta * share
        count += new if isinstance(new, float) else new[:, 0]

    def freeze(self, member: int) -> None:
        """From now on map this seed's states by the statistics as they are."""
        if not self.enabled or self.count[member] < 1:
            return
        mean, std = self.mean[member], (self.spread[member] / self.count[member]).sqrt()
        # A constant feature has no scale yet; a unit scale keeps it at 0 without amplifying rounding errors.
        std = torch.where(std > CONSTANT * mean.abs().clamp(min=1.0), std, 1.0)
        self.centre[member] = mean.float()
        self.scale[member] = std.float()

    def of_member(self, member: int, states: Tensor) -> Tensor:
        """One seed's states (n, k), mapped."""
        return self._map(states, self.centre[member], self.scale[member])

    def of_members(self, members: Tensor, states: Tensor) -> Tensor:
        """States (n, B, k) of n seeds that a tensor names, mapped."""
        centre, scale = self.centre.index_select(0, members), self.scale.index_select(0, members)
        return self._map(states, centre[:, None], scale[:, None])

    def forward(self, states: Tensor) -> Tensor:
        """States (P, B, k), mapped."""
        return self._map(states, self.centre[:, None], self.scale[:, None])

    def _map(self, states: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
        if not self.enabled:
            return states.float()
        # A hard bound: bending states smoothly gave a better signal-to-noise ratio but hid the frontier from the agent
        # (docs/mechanism.md).
        return ((states.float() - centre) / scale).clamp(-self.clip, self.clip)
