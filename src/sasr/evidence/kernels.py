"""Shift-invariant kernels with bandwidth h, and the spectral distribution each is the Fourier transform of.

A frequency w drawn from the spectral distribution satisfies E[cos(wᵀδ)] = K(δ). The paper's appendix table has slips:
see docs/mechanism.md. All frequencies here are for h = 1; a kernel of bandwidth h sees states divided by h.
"""

from __future__ import annotations

import math
from typing import Literal, Protocol

import torch
from torch import Tensor

KernelName = Literal["gaussian", "laplacian", "cauchy"]


class Kernel(Protocol):
    """A positive-definite K(δ) with K(0) = 1."""

    def value(self, x: Tensor, y: Tensor, h: float) -> Tensor:
        """Kernel matrix (n, m) of states x (n, k) and y (m, k)."""
        ...

    def frequencies(self, k: int, count: int, generator: torch.Generator) -> Tensor:
        """Draws (k, count) from the spectral distribution for h = 1."""
        ...

    def log_mass(self, k: int, h: float) -> float:
        """Logarithm of ∫K, which turns the kernel into a density."""
        ...

    def dimension_bandwidth(self, k: int) -> float:
        """The h at which two independent standard-normal states have log K of about −4, for any k."""
        ...


class Gaussian:
    """exp(−‖δ‖₂² / 2h²), frequencies N(0, h⁻² I)."""

    def value(self, x: Tensor, y: Tensor, h: float) -> Tensor:
        """Kernel matrix (n, m) of states x (n, k) and y (m, k)."""
        # The default shortcut ‖x‖² + ‖y‖² − 2xᵀy loses the small distances that matter most here.
        distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.exp(-0.5 * (distance / h) ** 2)

    def frequencies(self, k: int, count: int, generator: torch.Generator) -> Tensor:
        """Draws (k, count) from the spectral distribution for h = 1."""
        return torch.randn(k, count, generator=generator, device=generator.device)

    def log_mass(self, k: int, h: float) -> float:
        """Logarithm of ∫K = (2πh²)^(k/2)."""
        return 0.5 * k * math.log(2.0 * math.pi * h * h)

    def dimension_bandwidth(self, k: int) -> float:
        """0.5·√k: E‖δ‖² = 2k, so log K = −k/h² = −4."""
        return 0.5 * math.sqrt(k)


class Laplacian:
    """exp(−‖δ‖₁ / h), frequencies a product of Cauchy distributions of scale 1/h."""

    def value(self, x: Tensor, y: Tensor, h: float) -> Tensor:
        """Kernel matrix (n, m) of states x (n, k) and y (m, k)."""
        return torch.exp(-torch.cdist(x, y, p=1.0) / h)

    def frequencies(self, k: int, count: int, generator: torch.Generator) -> Tensor:
        """Draws (k, count) from the spectral distribution for h = 1."""
        normal = torch.randn(2, k, count, generator=generator, device=generator.device, dtype=torch.float64)
        return (normal[0] / normal[1]).float()

    def log_mass(self, k: int, h: float) -> float:
        """Logarithm of ∫K = (2h)^k."""
        return k * math.log(2.0 * h)

    def dimension_bandwidth(self, k: int) -> float:
        """0.282·k: E‖δ‖₁ = 2k/√π, so log K = −4."""
        return k / (2.0 * math.sqrt(math.pi))


class Cauchy:
    """∏ᵢ 1 / (1 + δᵢ²/h²), frequencies a product of Laplace distributions of scale 1/h."""

    def value(self, x: Tensor, y: Tensor, h: float) -> Tensor:
        """Kernel matrix (n, m) of states x (n, k) and y (m, k)."""
        return torch.exp(-torch.log1p(((x[:, None, :] - y[None, :, :]) / h) ** 2).sum(-1))

    def frequencies(self, k: int, count: int, generator: torch.Generator) -> Tensor:
        """Draws (k, count) from the spectral distribution for h = 1."""
        size = (2, k, count)
        exponential = torch.empty(size, device=generator.device).exponential_(generator=generator)
        return exponential[0] - exponential[1]

    def log_mass(self, k: int, h: float) -> float:
        """Logarithm of ∫K = (πh)^k."""
        return k * math.log(math.pi * h)

    def dimension_bandwidth(self, k: int) -> float:
        """√(k/2): for h ≫ 1, log K ≈ −‖δ‖²/h² = −2k/h²."""
        return math.sqrt(k / 2.0)


KERNELS: dict[str, Kernel] = {"gaussian": Gaussian(), "laplacian": Laplacian(), "cauchy": Cauchy()}
