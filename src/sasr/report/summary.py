"""What a report says in figures: every method on every task, and every method over all tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sasr.report import stats
from sasr.report.read import Collection
from sasr.report.stats import Estimate
from sasr.report.store import Result

HALFWAY = 0.5
"""The normalised return that counts as having learned a task, for the steps it took."""
NOTHING = Estimate(math.nan, math.nan, math.nan)


class Cell(NamedTuple):
    """One method on one task; figures are NaN where there is nothing to take them from."""

    result: Result
    scores: NDArray[np.float64]
    """Final returns of the seeds that have a finite one."""
    mean: float
    error: float
    iqm: Estimate
    area: float
    """Mean height of the curves up to the shortest planned run of the task, over seeds that got there."""
    area_error: float
    areas: NDArray[np.float64]
    """Of the seeds that it is the mean of."""
    halfway: float
    """Median over seeds of the steps to the middle between the worst and the best method; infinite where most never."""
    reached: int
    """Seeds that got there."""

    @property
    def failed(self) -> int:
        """Seeds whose final return is not finite."""
        return len(self.result.seeds) - len(self.scores)


class Aggregate(NamedTuple):
    """One method over the tasks it was run on; by task, the worst method's mean return is 0 and the best's is 1."""

    method: str
    tasks: int
    runs: int
    iqm: Estimate
    mean: Estimate
    better: Estimate
    """Chance that a run of the first method beats one of this on the same task."""
    profile: stats.Profile | None


class Summary(NamedTuple):
    """All of it."""

    tasks: list[str]
    methods: list[str]
    cells: dict[tuple[str, str], Cell]
    scale: dict[str, tuple[float, float]]
    """The mean returns of the worst and the best method of each task."""
    aggregates: list[Aggregate]


def summarise(found: Collection, *, seed: int = 0, draws: int = stats.DRAWS) -> Summary:
    """The figures of everything that was found; intervals depend on the seed alone."""
    tasks, methods = found.tasks, found.methods
    scale = _scales(found)
    cells = cells_of(found, seed=seed, draws=draws)
    strata = {method: _strata(method, tasks, cells, scale) for method in methods}
    aggregates = [_aggregate(method, strata[method], strata[methods[0]], seed, draws) for method in methods]
    return Summary(tasks, methods, cells, scale, aggregates)


def cells_of(
    found: Collection, *, until: int | None = None, seed: int = 0, draws: int = stats.DRAWS
) -> dict[tuple[str, str], Cell]:
    """The figures of every method on every task, without those over all tasks, which take longer.

    Areas are taken up to where the shortest run of a task was to end, or to `until`, which shorter ones have none to.
    """
    scale = _scales(found)
    shortest = {task: min(own.steps for own in found.results if own.task == task) for task in found.tasks}
    ends = shortest if until is None else dict.fromkeys(found.tasks, until)
    return {(own.task, own.method): _cell(own, ends[own.task], scale[own.task], seed, draws) for own in found.results}


def _scales(found: Collection) -> dict[str, tuple[float, float]]:
    return {task: _scale([own for own in found.results if own.task == task]) for task in found.tasks}


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]


def _scale(results: Sequence[Result]) -> tuple[float, float]:
    means = [float(own.mean()) for result in results if len(own := _finite(result.scores))]
    return (min(means), max(means)) if means else (math.nan, math.nan)


def _cell(result: Result, until: int, scale: tuple[float, float], seed: int, draws: int) -> Cell:
    scores = _finite(result.scores)
    mean, error = stats.mean_and_error(scores) if len(scores) else (math.nan, math.nan)
    iqm = stats.estimate([scores], seed=seed, draws=draws) if len(scores) else NOTHING
    full = [own for own in result.seeds if own.steps and own.steps[-1] >= until]
    areas = _finite(np.array([stats.area_under_curve(own.steps, own.returns, until=until) for own in full]))
    area, area_error = stats.mean_and_error(areas) if len(areas) else (math.nan, math.nan)
    middle = scale[0] + HALFWAY * (scale[1] - scale[0])
    took = np.array([stats.steps_to_threshold(own.steps, own.returns, middle) for own in result.seeds if own.steps])
    halfway = float(np.quantile(took, 0.5, method="higher")) if len(took) else math.nan
    return Cell(result, scores, mean, error, iqm, area, area_error, areas, halfway, int(np.isfinite(took).sum()))


Strata = dict[str, NDArray[np.float64]]


def _strata(
    method: str, tasks: Sequence[str], cells: dict[tuple[str, str], Cell], scale: dict[str, tuple[float, float]]
) -> Strata:
    known = {task: cells[task, method] for task in tasks if (task, method) in cells}
    return {task: stats.normalised(cell.scores, *scale[task]) for task, cell in known.items() if len(cell.scores)}


def _aggregate(method: str, own: Strata, first: Strata, seed: int, draws: int) -> Aggregate:
    if not own:
        return Aggregate(method, 0, 0, NOTHING, NOTHING, NOTHING, None)
    groups = list(own.values())
    shared = [task for task in own if task in first]
    better = NOTHING
    if shared:
        ours, theirs = [first[task] for task in shared], [own[task] for task in shared]
        better = stats.probability_of_improvement(ours, theirs, seed=seed, draws=draws)
    return Aggregate(
        method=method,
        tasks=len(own),
        runs=sum(map(len, groups)),
        iqm=stats.estimate(groups, seed=seed, draws=draws),
        mean=stats.estimate(groups, stats.mean_of_tasks, seed=seed, draws=draws),
        better=better,
        profile=stats.performance_profile(groups, np.linspace(0.0, 1.2, 61), seed=seed, draws=draws),
    )
