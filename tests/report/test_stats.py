from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from sasr.report import stats

runs = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(runs)
def test_iqm_is_scipys_trimmed_mean(values: list[float]) -> None:
    expected = scipy_stats.trim_mean(values, 0.25)
    assert float(stats.interquartile_mean(values)) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_standard_error_is_scipys(values: list[float]) -> None:
    mean, error = stats.mean_and_error(values)
    assert mean == pytest.approx(np.mean(values))
    assert error == pytest.approx(scipy_stats.sem(values), rel=1e-9, abs=1e-9)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    strata = [np.random.default_rng(task).normal(size=7) for task in range(3)]
    first, again, other = (stats.estimate(strata, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.value == other.value
    assert first != other


def test_the_global_random_state_has_no_say() -> None:
    np.random.seed(0)
    before = stats.estimate([[1.0, 2.0, 5.0]], seed=3)
    np.random.seed(1)
    assert stats.estimate([[1.0, 2.0, 5.0]], seed=3) == before


def test_runs_are_never_drawn_across_tasks() -> None:
    # With one constant per task, any draw within tasks gives the very same mean.
    found = stats.estimate([[0.0] * 5, [10.0] * 5], stats.mean_of_tasks)
    assert found == (5.0, 5.0, 5.0)


def test_a_95_percent_interval_covers_the_truth_about_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        found = stats.estimate(list(rng.normal(size=(4, 20))), stats.mean_of_tasks, seed=trial, draws=400)
        hits += found.low <= 0.0 <= found.high
    assert 0.88 < hits / 300 < 0.98


def test_one_run_has_no_interval() -> None:
    assert math.isnan(stats.mean_and_error([3.0])[1])
    found = stats.estimate([[3.0], [4.0]])
    assert found.value == 3.5
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_improvement_over_oneself_is_one_half_and_over_a_worse_method_one() -> None:
    strata = [[1.0, 2.0, 3.0], [4.0, 4.0]]
    assert stats.probability_of_improvement(strata, strata).value == 0.5
    assert stats.probability_of_improvement([[5.0, 6.0]], [[1.0, 2.0]]) == (1.0, 1.0, 1.0)


@given(st.lists(runs, min_size=1, max_size=3))
def test_profiles_fall_from_one_to_zero(strata: list[list[float]]) -> None:
    found = stats.performance_profile(strata, np.linspace(-2e6, 2e6, 9), draws=20)
    assert found.share[0] == 1.0
    assert found.share[-1] == 0.0
    assert (np.diff(found.share) <= 1e-12).all()
    assert (found.low <= found.high).all()


@pytest.mark.parametrize("values", [[1.0, math.nan], [math.inf], []])
def test_failed_runs_are_not_left_out_in_silence(values: list[float]) -> None:
    for call in (
        lambda: stats.mean_and_error(values),
        lambda: stats.estimate([values]),
        lambda: stats.performance_profile([values], [0.0]),
        lambda: stats.probability_of_improvement([[1.0]], [values]),
    ):
        with pytest.raises(ValueError, match="score"):
            call()


def test_methods_on_different_tasks_are_not_compared() -> None:
    with pytest.raises(ValueError, match="2 tasks against 1"):
        stats.probability_of_improvement([[1.0], [2.0]], [[1.0]])


def test_the_area_of_a_line_is_its_middle_and_stops_where_told() -> None:
    steps = np.arange(0, 101, 10)
    assert stats.area_under_curve(steps, steps / 100) == pytest.approx(0.5)
    assert stats.area_under_curve(steps, steps / 100, until=45) == pytest.approx(0.225)
    assert stats.area_under_curve(steps, steps / 100, until=500) == pytest.approx(0.5)
    assert stats.area_under_curve([7], [3.0]) == 3.0
    assert math.isnan(stats.area_under_curve([], []))
    assert math.isnan(stats.area_under_curve([0, 1, 2], [0.0, math.nan, 1.0]))


def test_a_threshold_that_is_never_reached_is_infinitely_far() -> None:
    assert stats.steps_to_threshold([1, 2], [0.0, 0.4], 0.5) == math.inf
    assert stats.steps_to_threshold([1, 2, 3], [math.nan, 0.5, 0.0], 0.5) == 2.0


def test_curves_of_different_lengths_are_averaged_over_the_seeds_that_are_there() -> None:
    steps, values = stats.aligned([([0, 10, 20], [0.0, 1.0, 2.0]), ([0, 10], [2.0, 3.0]), ([], [])])
    curve = stats.mean_curve(steps, values)
    np.testing.assert_array_equal(steps, [0, 10, 20])
    np.testing.assert_allclose(curve.centre, [1.0, 2.0, 2.0])
    np.testing.assert_array_equal(curve.seeds, [2, 2, 1])
    assert math.isnan(curve.low[-1])


def test_curves_on_other_steps_are_interpolated_but_never_beyond_their_ends() -> None:
    steps, values = stats.aligned([([0, 20], [0.0, 2.0]), ([10, 30], [5.0, 5.0])])
    np.testing.assert_array_equal(steps, [0, 10, 20, 30])
    np.testing.assert_allclose(values, [[0.0, 1.0, 2.0, np.nan], [np.nan, 5.0, 5.0, 5.0]])


def test_the_band_of_the_iqm_curve_is_the_bootstrap_of_each_point() -> None:
    values = np.random.default_rng(2).normal(size=(10, 4))
    values[7:, 3] = np.nan
    curve = stats.iqm_curve(np.arange(4.0), values, seed=4, draws=2000)
    for point, seeds in enumerate((10, 10, 10, 7)):
        found = stats.estimate([values[:seeds, point]], seed=4, draws=2000)
        assert curve.centre[point] == pytest.approx(found.value)
        assert curve.low[point] == pytest.approx(found.low, abs=0.1)
        assert curve.high[point] == pytest.approx(found.high, abs=0.1)
    np.testing.assert_array_equal(curve.seeds, [10, 10, 10, 7])


def test_normalised_scores_run_from_0_to_1_and_survive_a_task_where_all_are_alike() -> None:
    np.testing.assert_allclose(stats.normalised([2.0, 3.0, 4.0], 2.0, 4.0), [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(stats.normalised([2.0, 2.0], 2.0, 2.0), [0.0, 0.0])
