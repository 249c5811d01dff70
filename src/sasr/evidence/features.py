"""How the kernel sees states: standardised, then mapped to random Fourier features z with z(s)ᵀz(s′) ≈ K(s − s′)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sasr.evidence.kernels import Kernel
from sasr.randomness import MemberStreams

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
        weight: Any = 1.0
        new: Any = float(x.shape[1])
        mean = x[:, 0]
        if valid is not None:
            weight = valid.numpy()[..., None]
            x = np.where(weight, x, 0.0)  # 0 · NaN would still be NaN
            new = weight.sum(1).astype(np.float64)  # (P, 1)
            mean = x.sum(1) / np.maximum(new, 1.0)
        elif new > 1.0:
            mean = x.sum(1) / new
        delta = mean - running_mean
        before = count[:, None]
        share = new / np.maximum(before + new, 1.0)
        running_spread += delta * delta * (before * share)
        if x.shape[1] > 1:  # a single state has no spread
            off = x - mean[:, None]
            running_spread += (off * off * weight).sum(1)
        running_mean += delta * share
        before += new

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

    def forward(self, states: Tensor) -> Tensor:
        """States (P, B, k), mapped."""
        return self._map(states, self.centre[:, None], self.scale[:, None])

    def _map(self, states: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
        if not self.enabled:
            return states.float()
        # A hard bound: bending states smoothly gave a better signal-to-noise ratio but hid the frontier from the agent
        # (docs/mechanism.md).
        return ((states.float() - centre) / scale).clamp(-self.clip, self.clip)


@contextmanager
def full_float32() -> Iterator[None]:
    """Matrix products in true float32: phases reach hundreds of radians, where TF32 or bf16 leave only noise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def float32_product(states: Tensor, frequency: Tensor) -> Tensor:
    """States (…, n, k) times frequencies (…, k, M), in true float32 even under autocast."""
    if torch.compiler.is_compiling():  # the precision is then that around the compiled function
        return states.float() @ frequency
    with full_float32(), torch.autocast(states.device.type, enabled=False):
        return states.float() @ frequency


class Features(nn.Module, ABC):
    """Maps states of P seeds to vectors z, whose products z(s)ᵀz(s′) say how alike two states are, 1 at most."""

    bandwidth: Tensor  # (P,)
    count: int
    """Numbers M in a vector."""

    @abstractmethod
    def of_member(self, member: int, states: Tensor) -> Tensor:
        """Features (n, M) of one seed's states (n, k)."""

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor:
        """Features (P, B, M) of states (P, B, k)."""


class RandomFeatures(Features):
    """z(s) = √(2/M) cos(Wᵀs/h + b) (paper, "Highly Efficient Beta Distribution Derivation") for P seeds."""

    frequency: Tensor  # (P, k, M) W for h = 1
    phase: Tensor  # (P, M) b

    def __init__(
        self, kernel: Kernel, k: int, count: int, *, seeds: Sequence[int] = (0,), device: torch.device | None = None
    ) -> None:
        super().__init__()
        if count < 1:
            raise ValueError(f"features={count} must be at least 1; the paper uses 1000")
        self.count = count
        # Drawn on the CPU whatever the device, so that a seed has the same features everywhere.
        streams = MemberStreams(seeds, "features", torch.device("cpu"))
        frequency = torch.stack([kernel.frequencies(k, count, streams.member(p)) for p in range(len(seeds))])
        phase = torch.stack([torch.rand(count, generator=streams.member(p)) for p in range(len(seeds))])
        self.register_buffer("frequency", frequency.to(device))
        self.register_buffer("phase", (2.0 * math.pi * phase).to(device))
        self.register_buffer("bandwidth", torch.ones(len(seeds), device=device))

    def of_member(self, member: int, states: Tensor) -> Tensor:
        """Features (n, M) of one seed's states (n, k)."""
        angle = float32_product(states / self.bandwidth[member], self.frequency[member])
        return self.cosines(angle, self.phase[member])

    def forward(self, states: Tensor) -> Tensor:
        """Features (P, B, M) of states (P, B, k)."""
        if states.device.type == "cpu":
            # One product per seed: a batched product may split its work by P, and then P would change the last bits.
            if len(states) == 1:
                return self.of_member(0, states[0]).unsqueeze(0)
            return torch.stack([self.of_member(p, rows) for p, rows in enumerate(states)])
        return self.cosines(self.angles(states), self.phase[:, None])

    def angles(self, states: Tensor) -> Tensor:
        """Wᵀs/h of states (P, B, k), (P, B, M)."""
        return float32_product(states / self.bandwidth[:, None, None], self.frequency)

    def cosines(self, angle: Tensor, phase: Tensor) -> Tensor:
        """Features from angles, which are overwritten."""
        return angle.add_(phase).cos_().mul_(math.sqrt(2.0 / self.count))
