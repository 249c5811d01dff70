from __future__ import annotations

import pytest
import torch

from sasr.evidence.features import RandomFeatures, full_float32
from sasr.evidence.kernels import Gaussian


def test_map_is_the_papers_formula() -> None:
    features = RandomFeatures(Gaussian(), 3, 5)
    features.bandwidth.fill_(0.2)
    s = torch.randn(1, 4, 3)
    by_hand = (2 / 5) ** 0.5 * torch.cos(s[0] @ (features.frequency[0] / 0.2) + features.phase[0])
    assert torch.allclose(features(s)[0], by_hand, atol=1e-5)


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
