"""The statistics of a report: of every method on every task, and of every method over all tasks."""

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
from sasr.tasks.catalogue import BY_NAME

HALFWAY = 0.5
"""The normalised return that counts as having learned a task, for the number of steps to learn it."""
NOTHING = Estimate(math.nan, math.nan, math.nan)


Scale = tuple[float, float]
"""Mean returns of a task's worst and best method; NaN if no seed succeeded or no two methods differ."""


class Statistics(NamedTuple):
    """Statistics of one method on one task; NaN where its result has no data for them."""

    result: Result
    scores: NDArray[np.float64]
    """Final returns of the seeds, finite ones alone."""
    mean: float
    error: float
    iqm: Estimate
    area: float
    """Mean height of the curves up to the end of the task's shortest plan, over seeds that reached it."""
    area_error: float
    areas: NDArray[np.float64]
    """The areas of those seeds."""
    halfway: float
    """Median steps to the middle between worst and best method; infinite if most seeds never reach it."""
    reached: int
    """Seeds that reached it."""

    @property
    def incomplete(self) -> bool:
        """Whether seeds are missing or stopped early, so that it can't be ranked."""
        return not self.result.finished

    @property
    def failed(self) -> int:
        """Seeds whose final return is not finite."""
        return len(self.result.seeds) - len(self.scores)


class Aggregate(NamedTuple):
    """One method over its tasks, with returns normalised: the worst method's mean is 0, the best's is 1."""

    method: str
    tasks: int
    runs: int
    iqm: Estimate
    mean: Estimate
    better: Estimate
    """Probability that a run of the first method beats one of this method on the same task."""
    profile: stats.Profile | None


class Summary(NamedTuple):
    """The statistics of a report."""

    tasks: list[str]
    methods: list[str]
    statistics: dict[tuple[str, str], Statistics]
    """By task and method."""
    scale: dict[str, Scale]
    aggregates: list[Aggregate]

    @property
    def learned(self) -> list[str]:
        """The tasks with normalised returns: those that some seed learned."""
        return [task for task in self.tasks if math.isfinite(self.scale[task][0])]


def summarise(collection: Collection, *, seed: int = 0, draws: int = stats.DRAWS) -> Summary:
    """The statistics of all results; the bootstrap intervals depend on the seed alone."""
    tasks = collection.tasks
    methods = collection.methods
    scale = _scales(collection)
    statistics = statistics_of(collection, seed=seed, draws=draws)
    first = _strata(methods[0], tasks, statistics, scale)
    aggregates = []
    for method in methods:
        strata = _strata(method, tasks, statistics, scale)
        aggregates.append(_aggregate(method, strata, first, seed, draws))
    return Summary(tasks, methods, statistics, scale, aggregates)


def statistics_of(
    collection: Collection, *, until: int | None = None, seed: int = 0, draws: int = stats.DRAWS
) -> dict[tuple[str, str], Statistics]:
    """The statistics of every method on every task.

    Areas are up to the planned end of a task's shortest run, or up to `until`; curves that end before have none.
    """
    scale = _scales(collection)
    statistics = {}
    for result in collection.results:
        shortest = min(other.steps for other in collection.results if other.task == result.task)
        end = shortest if until is None else until
        statistics[result.task, result.method] = _statistics(result, end, scale[result.task], seed, draws)
    return statistics


def _scales(collection: Collection) -> dict[str, Scale]:
    scales = {}
    for task in collection.tasks:
        results = [result for result in collection.results if result.task == task]
        scores = [_finite(result.scores) for result in results]
        means = [float(finite.mean()) for finite in scores if len(finite)]
        scales[task] = (math.nan, math.nan)
        if _learned(task, results) and means and max(means) > min(means):
            scales[task] = (min(means), max(means))
    return scales


def _learned(task: str, results: Sequence[Result]) -> bool:
    """Whether any seed succeeded; assumed where success is unknown, as outside the catalogue."""
    if task not in BY_NAME:
        return True
    seeds = [seed for result in results for seed in result.seeds]
    rates = [rate for seed in seeds for rate in (*seed.success, seed.final_success) if math.isfinite(rate)]
    return max(rates, default=1.0) > 0.0


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]


def _statistics(result: Result, until: int, scale: Scale, seed: int, draws: int) -> Statistics:
    scores = _finite(result.scores)
    mean, error, iqm = math.nan, math.nan, NOTHING
    if len(scores):
        mean, error = stats.mean_and_error(scores)
        iqm = stats.estimate([scores], seed=seed, draws=draws)
    middle = scale[0] + HALFWAY * (scale[1] - scale[0])
    seed_areas: list[float] = []
    steps_to_middle: list[float] = []
    for run in result.seeds:
        if run.steps:
            steps_to_middle.append(stats.steps_to_threshold(run.steps, run.returns, middle))
        if run.steps and run.steps[-1] >= until:
            seed_areas.append(stats.area_under_curve(run.steps, run.returns, until=until))
    areas = _finite(np.array(seed_areas))
    area, area_error = math.nan, math.nan
    if len(areas):
        area, area_error = stats.mean_and_error(areas)
    halfway = math.nan
    if steps_to_middle:
        halfway = float(np.quantile(steps_to_middle, 0.5, method="higher"))
    reached = int(np.isfinite(steps_to_middle).sum())
    return Statistics(result, scores, mean, error, iqm, area, area_error, areas, halfway, reached)


ScoresByTask = dict[str, NDArray[np.float64]]


def _strata(
    method: str, tasks: Sequence[str], statistics: dict[tuple[str, str], Statistics], scale: dict[str, Scale]
) -> ScoresByTask:
    """Normalised scores of a method, by task."""
    strata = {}
    for task in tasks:
        on_task = statistics.get((task, method))
        if on_task is not None and len(on_task.scores) and math.isfinite(scale[task][0]):
            strata[task] = stats.normalised(on_task.scores, *scale[task])
    return strata


def _aggregate(method: str, strata: ScoresByTask, first: ScoresByTask, seed: int, draws: int) -> Aggregate:
    if not strata:
        return Aggregate(method, 0, 0, NOTHING, NOTHING, NOTHING, None)
    groups = list(strata.values())
    shared = [task for task in strata if task in first]
    better = NOTHING
    if shared:
        ours = [first[task] for task in shared]
        theirs = [strata[task] for task in shared]
        better = stats.probability_of_improvement(ours, theirs, seed=seed, draws=draws)
    return Aggregate(
        method=method,
        tasks=len(strata),
        runs=sum(map(len, groups)),
        iqm=stats.estimate(groups, seed=seed, draws=draws),
        mean=stats.estimate(groups, stats.mean_of_tasks, seed=seed, draws=draws),
        better=better,
        profile=stats.performance_profile(groups, np.linspace(0.0, 1.2, 61), seed=seed, draws=draws),
    )
