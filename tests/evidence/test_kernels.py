from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate

from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import KERNELS

NAMES = sorted(KERNELS)


@pytest.mark.parametrize("name", NAMES)
def test_kernel_is_one_at_zero_and_symmetric(name: str) -> None:
    kernel, x = KERNELS[name], torch.randn(20, 3)
    matrix = kernel.value(x, x, 0.7)
    assert torch.allclose(matrix.diagonal(), torch.ones(20))
    assert torch.allclose(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix.double()).min() > -1e-6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("h", [0.3, 2.0])
def test_log_mass_is_the_integral_of_the_kernel(name: str, h: float) -> None:
    kernel = KERNELS[name]

    def value(x: float) -> float:
        return float(kernel.value(torch.tensor([[x]], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64), h))

    mass, _ = integrate.quad(value, -np.inf, np.inf)
    assert kernel.log_mass(1, h) == pytest.approx(np.log(mass), abs=1e-4)
    assert kernel.log_mass(3, h) == pytest.approx(3 * np.log(mass), abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("h", [0.5, 1.5])
def test_frequencies_are_the_kernels_fourier_pair(name: str, h: float) -> None:
    """E[cos(wᵀδ/h)] over many draws is K(δ), in one and in three dimensions."""
    kernel = KERNELS[name]
    for k in (1, 3):
        w = kernel.frequencies(k, 200_000, torch.Generator().manual_seed(0)).double()
        for size in (0.1, 0.5, 1.0):
            delta = torch.full((1, k), size, dtype=torch.float64)
            wave = torch.cos(delta / h @ w)
            error = 4.0 * float(wave.std()) / np.sqrt(200_000)
            exact = float(kernel.value(delta, torch.zeros_like(delta), h))
            assert float(wave.mean()) == pytest.approx(exact, abs=error)


@pytest.mark.parametrize("name", NAMES)
def test_rff_error_falls_like_one_over_root_m(name: str) -> None:
    kernel, x = KERNELS[name], torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
    exact = kernel.value(x, x, 1.0)

    def error(count: int) -> float:
        features = RandomFeatures(kernel, 3, count, seeds=range(12))
        z = features(x.expand(12, -1, -1))
        return float(((z @ z.transpose(1, 2) - exact) ** 2).mean().sqrt())

    counts = np.array([64, 256, 1024, 4096])
    slope = np.polyfit(np.log(counts), np.log([error(m) for m in counts]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [30, 300])
def test_dimension_bandwidth_gives_a_typical_pair_the_same_kernel_in_any_dimension(name: str, k: int) -> None:
    kernel = KERNELS[name]
    x, y = torch.randn(2, 400, k, generator=torch.Generator().manual_seed(0)).double()
    h = kernel.dimension_bandwidth(k)
    typical = kernel.value(x, y, h).diagonal().log().mean()
    assert float(typical) == pytest.approx(-4.0, abs=0.6)
