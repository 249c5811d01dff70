"""The oracle draws from numpy's global state, so agreement is up to Monte-Carlo error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rliable import library, metrics

from sasr.report import stats

DRAWS = 4_000
TASKS, RUNS = 4, 8


@pytest.fixture(params=[0, 1])
def scores(request: pytest.FixtureRequest) -> NDArray[np.float64]:
    """(runs, tasks), as rliable wants it: skewed, with tasks of different scale."""
    rng = np.random.default_rng(request.param)
    np.random.seed(request.param)
    return rng.gamma(2.0, size=(RUNS, TASKS)) * np.arange(1, TASKS + 1)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (stats.iqm, metrics.aggregate_iqm),
        (stats.mean_of_tasks, metrics.aggregate_mean),
    ],
)
def test_aggregates_and_their_intervals_agree(ours: stats.Statistic, theirs: Any, scores: NDArray[np.float64]) -> None:
    points, intervals = library.get_interval_estimates({"x": scores}, lambda x: np.array([theirs(x)]), reps=DRAWS)
    found = stats.estimate(list(scores.T), ours, draws=DRAWS)
    assert found.value == pytest.approx(float(points["x"][0]))
    # The ends of two bootstraps of 4,000 draws differ by a few percent of the interval's width.
    slack = 0.08 * (found.high - found.low)
    assert found.low == pytest.approx(float(intervals["x"][0, 0]), abs=slack)
    assert found.high == pytest.approx(float(intervals["x"][1, 0]), abs=slack)


def test_profiles_and_their_intervals_agree(scores: NDArray[np.float64]) -> None:
    thresholds = np.linspace(0.0, 12.0, 7)
    shares, intervals = library.create_performance_profile({"x": scores}, thresholds, reps=DRAWS)
    found = stats.performance_profile(list(scores.T), thresholds, draws=DRAWS)
    np.testing.assert_allclose(found.share, shares["x"])
    one_run = 1.0 / scores.size  # shares are multiples of this, so an end can fall on the next one
    np.testing.assert_allclose(found.low, intervals["x"][0], atol=1.01 * one_run)
    np.testing.assert_allclose(found.high, intervals["x"][1], atol=1.01 * one_run)


def test_the_probability_of_improvement_agrees(scores: NDArray[np.float64]) -> None:
    # Rounded, so that there are ties.
    first, second = np.round(scores), np.round(scores[::-1] * 0.8)[:-2]
    points, intervals = library.get_interval_estimates(
        {"x": (first, second)}, lambda a, b: np.array([metrics.probability_of_improvement(a, b)]), reps=1_000
    )
    found = stats.probability_of_improvement(list(first.T), list(second.T), draws=DRAWS)
    assert found.value == pytest.approx(float(points["x"][0]))
    assert found.low == pytest.approx(float(intervals["x"][0, 0]), abs=0.04)
    assert found.high == pytest.approx(float(intervals["x"][1, 0]), abs=0.04)
