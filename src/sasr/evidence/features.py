"""Random Fourier features: a map z with z(s)ᵀz(s′) ≈ K(s − s′)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from sasr.evidence.kernels import Kernel
from sasr.randomness import MemberStreams

Frequencies = Literal["independent", "orthogonal"]
Form = Literal["phase", "paired"]


@contextmanager
def full_float32() -> Iterator[None]:
    """Matrix products in true float32: phases reach hundreds of radians, where TF32 or bf16 leave only noise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def orthogonal_frequencies(k: int, count: int, generator: torch.Generator) -> Tensor:
    """Gaussian frequencies (k, count) made orthogonal in blocks of k, each with the norm a Gaussian one would have."""
    blocks = []
    for _ in range(math.ceil(count / k)):
        square = torch.randn(k, k, generator=generator, device=generator.device, dtype=torch.float64)
        direction, upper = torch.linalg.qr(square)
        # Without the sign of R's diagonal the directions are not uniform on the sphere.
        direction = direction * torch.sign(torch.diagonal(upper))
        norm = torch.randn(k, k, generator=generator, device=generator.device, dtype=torch.float64).norm(dim=0)
        blocks.append(direction * norm)
    return torch.cat(blocks, dim=1)[:, :count].float()


class RandomFeatures(nn.Module):
    """z(s) = √(2/M) cos(Wᵀs/h + b) (paper, "Highly Efficient Beta Distribution Derivation") for P seeds.

    The `paired` form uses M/2 frequencies as cos and sin instead of random phases b.
    """

    frequency: Tensor  # (P, k, M) or (P, k, M/2), for h = 1
    phase: Tensor  # (P, M)
    bandwidth: Tensor  # (P,)

    def __init__(
        self,
        kernel: Kernel,
        k: int,
        count: int,
        *,
        seeds: Sequence[int] = (0,),
        frequencies: Frequencies = "independent",
        form: Form = "phase",
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        if count < 1:
            raise ValueError(f"features={count} must be at least 1; the paper uses 1000")
        if form == "paired" and count % 2:
            raise ValueError(
                f"features={count} must be even for form='paired', which uses cos and sin of each frequency"
            )
        if frequencies == "orthogonal" and not kernel.isotropic:
            name = type(kernel).__name__.lower()
            raise ValueError(f"frequencies='orthogonal' needs the gaussian kernel, not {name}; use 'independent'")
        self.count, self.form = count, form
        # Drawn on the CPU whatever the device, so that a seed has the same features everywhere.
        streams = MemberStreams(seeds, "features", torch.device("cpu"))
        draws = count if form == "phase" else count // 2
        sample = orthogonal_frequencies if frequencies == "orthogonal" else kernel.frequencies
        frequency = torch.stack([sample(k, draws, streams.member(p)) for p in range(len(seeds))])
        phase = torch.stack([torch.rand(count, generator=streams.member(p)) for p in range(len(seeds))])
        self.register_buffer("frequency", frequency.to(device))
        self.register_buffer("phase", (2.0 * math.pi * phase).to(device))
        self.register_buffer("bandwidth", torch.ones(len(seeds), device=device))

    def of_member(self, member: int, states: Tensor) -> Tensor:
        """Features (n, M) of one seed's states (n, k)."""
        return self.waves(self._turn(states / self.bandwidth[member], self.frequency[member]), self.phase[member])

    def of_members(self, members: Tensor, states: Tensor) -> Tensor:
        """Features (n, B, M) of states (n, B, k) of n seeds that a tensor names."""
        h, frequency, phase = (part.index_select(0, members) for part in (self.bandwidth, self.frequency, self.phase))
        return self.waves(self._turn(states / h[:, None, None], frequency), phase[:, None])

    def forward(self, states: Tensor) -> Tensor:
        """Features (P, B, M) of states (P, B, k)."""
        if states.device.type == "cpu":
            # One product per seed: a batched product may split its work by P, and then P would change the last bits.
            if len(states) == 1:
                return self.of_member(0, states[0]).unsqueeze(0)
            return torch.stack([self.of_member(p, rows) for p, rows in enumerate(states)])
        return self.waves(self.angles(states), self.phase[:, None, :])

    def angles(self, states: Tensor) -> Tensor:
        """Wᵀs/h of states (P, B, k) by a batched product, before phases: (P, B, M), or half as many where paired."""
        return self._turn(states / self.bandwidth[:, None, None], self.frequency)

    def waves(self, angle: Tensor, phase: Tensor) -> Tensor:
        """Features from angles, which are overwritten."""
        if self.form == "paired":
            wave = torch.cat([torch.cos(angle), torch.sin(angle)], dim=-1)
        else:
            wave = angle.add_(phase).cos_()
        return wave.mul_(math.sqrt(2.0 / self.count))

    def _turn(self, scaled: Tensor, frequency: Tensor) -> Tensor:
        with full_float32(), torch.autocast(scaled.device.type, enabled=False):
            return scaled.float() @ frequency
