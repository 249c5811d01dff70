from __future__ import annotations

import pytest
import torch

from sasr.evidence.feature_count import features_for_error, frobenius_error, search_feature_count
from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import Gaussian


def test_the_bound_holds() -> None:
    """With M from the rule, every pair stays within ε, in each of 20 draws of the features."""
    states = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    exact = Gaussian().value(states, states, 1.0)
    count = features_for_error(0.15, 0.95, 30 * 30)
    for seed in range(20):
        z = RandomFeatures(Gaussian(), 4, count, seeds=(seed,)).of_member(0, states)
        assert (z @ z.T - exact).abs().max() <= 0.15


def test_the_rule_grows_as_stated() -> None:
    assert features_for_error(0.05, 0.9, 10) == pytest.approx(4 * features_for_error(0.1, 0.9, 10), rel=1e-3)
    assert features_for_error(0.1, 0.99, 10) > features_for_error(0.1, 0.9, 10)


def test_search_finds_the_smallest_power_of_two() -> None:
    states = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    count, error = search_feature_count(states, Gaussian(), 1.0, tolerance=0.1)
    assert error <= 0.1 < frobenius_error(states, Gaussian(), 1.0, count // 2)
    largest, error = search_feature_count(states, Gaussian(), 1.0, tolerance=1e-6, largest=64)
    assert largest == 64
    assert error > 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"), [((0, 0.9, 1), "error=0"), ((0.1, 1.0, 1), "confidence=1.0"), ((0.1, 0.9, 0), "pairs=0")]
)
def test_bad_input(arguments: tuple[float, float, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        features_for_error(*arguments)
    with pytest.raises(ValueError, match="tolerance=0"):
        search_feature_count(torch.zeros(2, 1), Gaussian(), 1.0, tolerance=0)
