"""Statistics of a few runs on several tasks, with seeded bootstrap intervals.

Scores are strata: one array of runs for each task. The bootstrap resamples runs within their task (Agarwal et al.,
2021). A NaN among the scores is refused, because leaving it out would favour the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasr.logs import recorders

Scores = NDArray[np.float64]
Strata = Sequence[ArrayLike]
Statistic = Callable[[Sequence[Scores]], Scores]
"""From one array (draws, runs) for each task to (draws, …)."""

DRAWS = 2_000
LEVEL = 0.95
"""Of all intervals."""
_TAILS = (1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0


class Estimate(NamedTuple):
    """A value and its interval, which is NaN if no task has two runs."""

    value: float
    low: float
    high: float


class Profile(NamedTuple):
    """Share of runs above each threshold, each (thresholds,)."""

    thresholds: Scores
    share: Scores
    low: Scores
    high: Scores


class MeanCurve(NamedTuple):
    """Several seeds as one curve, each (steps,)."""

    steps: Scores
    centre: Scores
    low: Scores
    high: Scores
    seeds: NDArray[np.int64]
    """Number of seeds with a value at each step: fewer where some stopped early or gave NaN."""


def mean_and_error(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard error, the form of the paper's tables; the error of one value is NaN.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    return recorders.mean_and_error(_checked(values))


def interquartile_mean(values: ArrayLike) -> Scores:
    """Mean over the last axis without its lowest and its highest quarter, each rounded down to whole values.

    >>> float(interquartile_mean([0.0, 1.0, 3.0, 100.0]))
    2.0
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(-1))


def iqm(strata: Sequence[Scores]) -> Scores:
    """Interquartile mean of all runs of all tasks together."""
    return interquartile_mean(np.concatenate(strata, axis=-1))


def mean_of_tasks(strata: Sequence[Scores]) -> Scores:
    """Mean over tasks of the mean over runs."""
    return np.asarray(np.mean([runs.mean(-1) for runs in strata], axis=0))


def estimate(strata: Strata, statistic: Statistic = iqm, *, seed: int = 0, draws: int = DRAWS) -> Estimate:
    """A statistic with its percentile interval from a stratified bootstrap, which depends on the seed alone.

    >>> estimate([[1.0, 2.0, 3.0, 4.0]], seed=1) == estimate([[1.0, 2.0, 3.0, 4.0]], seed=1)
    True
    """
    groups = _checked_strata(strata)
    value = float(statistic([runs[None] for runs in groups])[0])
    if all(len(runs) == 1 for runs in groups):
        return Estimate(value, math.nan, math.nan)
    low, high = _ends(statistic(_drawn(groups, np.random.default_rng(seed), draws)))
    return Estimate(value, float(low), float(high))


def probability_of_improvement(ours: Strata, theirs: Strata, *, seed: int = 0, draws: int = DRAWS) -> Estimate:
    """Probability that a run of ours beats one of theirs, averaged over tasks; a tie counts as one half.

    >>> probability_of_improvement([[2.0, 3.0]], [[1.0, 2.0]]).value
    0.875
    """
    tasks = len(ours)
    if tasks != len(theirs):
        raise ValueError(f"{tasks} tasks against {len(theirs)}; give both methods' runs on the same tasks")
    return estimate([*ours, *theirs], lambda strata: _wins(strata[:tasks], strata[tasks:]), seed=seed, draws=draws)


def performance_profile(strata: Strata, thresholds: ArrayLike, *, seed: int = 0, draws: int = DRAWS) -> Profile:
    """Share of runs above each threshold, every task weighing the same, with pointwise intervals."""
    groups, levels = _checked_strata(strata), np.asarray(thresholds, np.float64)
    drawn = _drawn(groups, np.random.default_rng(seed), draws)

    def shares(parts: Sequence[Scores], threshold: float) -> Scores:
        return mean_of_tasks([(runs > threshold).astype(np.float64) for runs in parts])

    observed = [runs[None] for runs in groups]
    share = np.array([shares(observed, tau)[0] for tau in levels])
    ends = np.array([_ends(shares(drawn, tau)) for tau in levels]).reshape(-1, 2)
    return Profile(levels, share, ends[:, 0], ends[:, 1])


def area_under_curve(steps: ArrayLike, values: ArrayLike, *, until: float | None = None) -> float:
    """Mean height of a curve up to a step (trapezoids divided by the length); NaN where a point is NaN.

    Args:
        steps: Ascending steps.
        values: The curve's height at each.
        until: Where to stop; curves of different lengths are compared up to the end of the shortest.

    >>> area_under_curve([0, 10, 20], [0.0, 1.0, 1.0])
    0.75
    """
    x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if until is not None and len(x) and until < x[-1]:
        end = np.interp(until, x, y)
        kept = x < until
        x, y = np.append(x[kept], until), np.append(y[kept], end)
    if len(x) == 0:
        return math.nan
    if len(x) == 1:
        return float(y[0])
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def steps_to_threshold(steps: ArrayLike, values: ArrayLike, threshold: float) -> float:
    """The first logged step at which a curve is at least at the threshold; infinity if it never is.

    >>> steps_to_threshold([100, 200, 300], [0.1, 0.8, 0.7], 0.5)
    200.0
    """
    reached = np.flatnonzero(np.asarray(values, np.float64) >= threshold)
    if len(reached) == 0:
        return math.inf
    return float(np.asarray(steps)[reached[0]])


def aligned(curves: Sequence[tuple[ArrayLike, ArrayLike]]) -> tuple[Scores, Scores]:
    """Curves of (steps, values) on the union of their steps: (T,) and (curves, T).

    A curve is interpolated between its points; it is NaN before its first and after its last one.
    """
    all_steps = [np.asarray(steps, np.float64) for steps, _ in curves]
    grid = np.unique(np.concatenate([np.zeros(0), *all_steps]))
    rows = np.full((len(curves), len(grid)), np.nan)
    for row, steps, (_, values) in zip(rows, all_steps, curves, strict=True):
        if len(steps):
            row[:] = np.interp(grid, steps, np.asarray(values, np.float64), left=np.nan, right=np.nan)
    return grid, rows


def mean_curve(steps: Scores, values: Scores) -> MeanCurve:
    """Mean ± standard error over the seeds with a value; values (seeds, T)."""
    count = np.isfinite(values).sum(0)
    known = np.where(np.isfinite(values), values, 0.0)
    mean = np.where(count > 0, known.sum(0) / np.maximum(count, 1), np.nan)
    squares = np.where(np.isfinite(values), (values - mean) ** 2, 0.0).sum(0)
    error = np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1)), np.nan)
    return MeanCurve(steps, mean, mean - error, mean + error, count)


def iqm_curve(steps: Scores, values: Scores, *, seed: int = 0, draws: int = 500) -> MeanCurve:
    """Interquartile mean at every step with pointwise bootstrap intervals over seeds; values (seeds, T)."""
    count = np.isfinite(values).sum(0)
    centre, low, high = (np.full(len(steps), np.nan) for _ in range(3))
    for seeds in np.unique(count[count > 0]):
        at = count == seeds
        present = np.sort(values[:, at].T, axis=-1)[:, :seeds]  # NaN sorts last
        centre[at] = interquartile_mean(present)
        if seeds > 1:
            picks = np.random.default_rng(seed).integers(seeds, size=(draws, seeds))
            again = interquartile_mean(present[:, picks])
            low[at], high[at] = np.quantile(again, _TAILS, axis=-1)
    return MeanCurve(steps, centre, low, high, count)


def normalised(values: ArrayLike, low: float, high: float) -> Scores:
    """Scores with `low` at 0 and `high` at 1; all 0 where the two are the same."""
    scores = np.asarray(values, np.float64) - low
    if high == low:
        return np.zeros_like(scores)
    return scores / (high - low)


def _wins(ours: Sequence[Scores], theirs: Sequence[Scores]) -> Scores:
    """Share of pairs in which our run is better, (draws,)."""
    shares = []
    for our_runs, their_runs in zip(ours, theirs, strict=True):
        gaps = our_runs[:, :, None] - their_runs[:, None, :]
        shares.append(((gaps > 0) + 0.5 * (gaps == 0)).mean((1, 2)))
    return np.asarray(np.mean(shares, axis=0))


def _drawn(groups: Sequence[Scores], rng: np.random.Generator, draws: int) -> list[Scores]:
    return [runs[rng.integers(len(runs), size=(draws, len(runs)))] for runs in groups]


def _ends(samples: Scores) -> Scores:
    return np.quantile(samples, _TAILS, axis=0)


def _checked(values: ArrayLike) -> Scores:
    runs = np.asarray(values, np.float64)
    if runs.ndim != 1 or not len(runs):
        raise ValueError(f"scores of shape {runs.shape} are not a list of runs; give one score for each run")
    if not np.isfinite(runs).all():
        which = int(np.flatnonzero(~np.isfinite(runs))[0])
        raise ValueError(
            f"score {which} is {runs[which]}; decide what a failed run counts for before taking statistics"
        )
    return runs


def _checked_strata(strata: Strata) -> list[Scores]:
    if not len(strata):
        raise ValueError("no task has scores; give one list of runs for each task")
    return [_checked(runs) for runs in strata]
