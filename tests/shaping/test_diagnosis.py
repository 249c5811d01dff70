from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from sasr import SASR, diagnose
from sasr.experience.random_rollout import random_rollout
from sasr.shaping.diagnosis import rank_correlation, suggest
from sasr.tasks import make


@pytest.fixture(scope="module")
def ant() -> np.ndarray:
    return random_rollout(make("Ant-v5"), 3000).states


@pytest.fixture(scope="module")
def mountain_car() -> np.ndarray:
    return random_rollout(make("MountainCarContinuous-v0"), 6000).states


def test_authors_is_noise_on_ant_and_auto_is_signal(ant: np.ndarray) -> None:
    noise, signal = diagnose(ant, SASR("authors")), diagnose(ant, SASR("auto"))
    assert (noise.verdict, signal.verdict) == ("noise", "signal")
    assert noise.lonely > 0.9
    assert "no neighbour" in noise.reason
    assert signal.rank_correlation > 0.9
    assert signal.lonely < 0.05


@pytest.mark.parametrize("preset", ["authors", "auto"])
def test_both_are_signal_on_mountain_car(preset: str, mountain_car: np.ndarray) -> None:
    found = diagnose(mountain_car, SASR(preset))
    assert found.verdict == "signal"
    assert found.rank_correlation > 0.9


def test_the_suggestion_turns_noise_into_signal(ant: np.ndarray) -> None:
    better = suggest(ant, SASR("authors"))
    assert better is not None
    shaper, found = better
    assert found.is_signal
    assert shaper.config.standardise
    assert shaper.config.estimator == "squared"  # nothing changed that did not need to


def test_too_few_features_are_noise() -> None:
    states = torch.randn(3000, 30)
    found = diagnose(states, SASR("auto", features=4))
    assert not found.is_signal
    assert "rank correlation" in found.reason


def test_a_kernel_that_makes_all_states_alike_is_noise() -> None:
    found = diagnose(torch.randn(3000, 10), SASR("auto", bandwidth=1e4))
    assert not found.is_signal
    assert "too wide" in found.reason


def test_the_shaper_is_not_touched(mountain_car: np.ndarray) -> None:
    shaper = SASR("auto")
    diagnose(mountain_car, shaper)
    assert shaper.host is None


def test_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, 200).astype(float)
    y = x + rng.normal(size=200)
    assert rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert rank_correlation(x, np.ones(200)) == 0.0


def test_bad_states_are_named() -> None:
    with pytest.raises(ValueError, match="10 states are too few"):
        diagnose(np.zeros((10, 2)))
    states = np.zeros((100, 2))
    states[7, 1] = np.nan
    with pytest.raises(ValueError, match="state 7 is nan in dimension 1"):
        diagnose(states)
