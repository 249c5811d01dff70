from __future__ import annotations

from typing import Any

import pytest
import torch

from sasr.evidence.features import RandomFeatures, full_float32, orthogonal_frequencies
from sasr.evidence.kernels import Cauchy, Gaussian


def kernel_error(form: Any, frequencies: Any) -> float:
    x = torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
    exact = Gaussian().value(x, x, 4.0)
    features = RandomFeatures(Gaussian(), 16, 256, seeds=range(20), form=form, frequencies=frequencies)
    features.bandwidth.fill_(4.0)
    z = features(x.expand(20, -1, -1))
    return float(((z @ z.transpose(1, 2) - exact) ** 2).mean().sqrt())


def test_map_is_the_papers_formula() -> None:
    features = RandomFeatures(Gaussian(), 3, 5)
    features.bandwidth.fill_(0.2)
    s = torch.randn(1, 4, 3)
    by_hand = (2 / 5) ** 0.5 * torch.cos(s[0] @ (features.frequency[0] / 0.2) + features.phase[0])
    assert torch.allclose(features(s)[0], by_hand, atol=1e-5)


def test_paired_and_orthogonal_lower_the_error() -> None:
    plain = kernel_error("phase", "independent")
    assert kernel_error("paired", "independent") < plain
    assert kernel_error("paired", "orthogonal") < kernel_error("paired", "independent")


def test_paired_features_have_unit_length() -> None:
    features = RandomFeatures(Gaussian(), 4, 64, form="paired")
    z = features(torch.randn(1, 10, 4))
    assert torch.allclose((z**2).sum(-1), torch.ones(1, 10), atol=1e-5)


def test_orthogonal_frequencies_are_orthogonal_with_gaussian_norms() -> None:
    w = orthogonal_frequencies(8, 4000, torch.Generator().manual_seed(0))
    block = w[:, :8]
    gram = block.T @ block
    assert torch.allclose(gram - torch.diag(gram.diagonal()), torch.zeros(8, 8), atol=1e-4)
    assert float((w**2).sum(0).mean()) == pytest.approx(8.0, rel=0.05)
    # Directions are uniform: each coordinate averages to 0.
    assert float(w.mean(1).abs().max()) < 5 / 4000**0.5


def test_a_seed_has_the_same_features_alone_and_in_a_population() -> None:
    states = torch.randn(3, 5, 4)
    together = RandomFeatures(Gaussian(), 4, 32, seeds=(7, 8, 9))(states)
    alone = RandomFeatures(Gaussian(), 4, 32, seeds=(8,))(states[1:2])
    assert torch.equal(together[1], alone[0])


def test_projection_stays_float32_under_lower_precision_and_autocast() -> None:
    features = RandomFeatures(Gaussian(), 64, 128)
    features.bandwidth.fill_(0.02)  # phases of hundreds of radians
    states = torch.randn(1, 32, 64)
    expected = features(states)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lowered = features(states)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert lowered.dtype == torch.float32
    assert torch.equal(lowered, expected)


def test_full_float32_restores_the_setting_after_an_error() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(KeyError), full_float32():
            raise KeyError
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_impossible_settings_name_the_fix() -> None:
    with pytest.raises(ValueError, match="features=0 must be at least 1"):
        RandomFeatures(Gaussian(), 2, 0)
    with pytest.raises(ValueError, match="features=5 must be even"):
        RandomFeatures(Gaussian(), 2, 5, form="paired")
    with pytest.raises(ValueError, match="needs the gaussian kernel, not cauchy"):
        RandomFeatures(Cauchy(), 2, 4, frequencies="orthogonal")
