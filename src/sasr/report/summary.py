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
from sasr.tasks.catalogue import BY_NAME

HALFWAY = 0.5
"""The normalised return that counts as having learned a task, for the steps it took."""
NOTHING = Estimate(math.nan, math.nan, math.nan)


Scale = tuple[float, float]
"""The mean returns of a task's worst and best method; NaN where no seed succeeded or no two methods differ."""


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
    def incomplete(self) -> bool:
        """Whether seeds are missing or stopped early, so that it can't be ranked among complete results."""
        return not self.result.finished

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
    scale: dict[str, Scale]
    aggregates: list[Aggregate]

    @property
    def learned(self) -> list[str]:
        """Tasks with normalised returns: those that some seed learned."""
        return [task for task in self.tasks if math.isfinite(self.scale[task][0])]


def summarise(found: Collection, *, seed: int = 0, draws: int = stats.DRAWS) -> Summary:
    """The figures of everything that was found; intervals depend on the seed alone."""
    tasks = found.tasks
    methods = found.methods
    scale = _scales(found)
    cells = cells_of(found, seed=seed, draws=draws)
    first = _strata(methods[0], tasks, cells, scale)
    aggregates = []
    for method in methods:
        strata = _strata(method, tasks, cells, scale)
        aggregates.append(_aggregate(method, strata, first, seed, draws))
    return Summary(tasks, methods, cells, scale, aggregates)


def cells_of(
    found: Collection, *, until: int | None = None, seed: int = 0, draws: int = stats.DRAWS
) -> dict[tuple[str, str], Cell]:
    """The figures of every method on every task, without those over all tasks, which take longer.

    Areas are taken up to where the shortest run of a task was to end, or to `until`, which shorter ones have none to.
    """
    scale = _scales(found)
    shortest: dict[str, int] = {}
    for result in found.results:
        shortest[result.task] = min(result.steps, shortest.get(result.task, result.steps))
    cells = {}
    for result in found.results:
        end = shortest[result.task] if until is None else until
        cells[result.task, result.method] = _cell(result, end, scale[result.task], seed, draws)
    return cells


def _scales(found: Collection) -> dict[str, Scale]:
    scales = {}
    for task in found.tasks:
        results = [result for result in found.results if result.task == task]
        scales[task] = (math.nan, math.nan)
        if _learned(task, results):
            scores = [_finite(result.scores) for result in results]
            means = [float(own.mean()) for own in scores if len(own)]
            if means and max(means) > min(means):
                scales[task] = (min(means), max(means))
    return scales


def _learned(task: str, results: Sequence[Result]) -> bool:
    """Whether any seed succeeded; taken for granted where success is not known, as outside the catalogue."""
    if task not in BY_NAME:
        return True
    rates: list[float] = []
    for result in results:
        for seed in result.seeds:
            rates += filter(math.isfinite, (*seed.success, seed.final_success))
    return max(rates, default=1.0) > 0.0


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]


def _cell(result: Result, until: int, scale: Scale, seed: int, draws: int) -> Cell:
    scores = _finite(result.scores)
    mean, error, iqm = math.nan, math.nan, NOTHING
    if len(scores):
        mean, error = stats.mean_and_error(scores)
        iqm = stats.estimate([scores], seed=seed, draws=draws)
    long_enough = [own for own in result.seeds if own.steps and own.steps[-1] >= until]
    areas = _finite(np.array([stats.area_under_curve(own.steps, own.returns, until=until) for own in long_enough]))
    area, area_error = math.nan, math.nan
    if len(areas):
        area, area_error = stats.mean_and_error(areas)
    middle = scale[0] + HALFWAY * (scale[1] - scale[0])
    took = np.array([stats.steps_to_threshold(own.steps, own.returns, middle) for own in result.seeds if own.steps])
    halfway = float(np.quantile(took, 0.5, method="higher")) if len(took) else math.nan
    return Cell(result, scores, mean, error, iqm, area, area_error, areas, halfway, int(np.isfinite(took).sum()))


Strata = dict[str, NDArray[np.float64]]


def _strata(method: str, tasks: Sequence[str], cells: dict[tuple[str, str], Cell], scale: dict[str, Scale]) -> Strata:
    """Normalised scores of a method, by task."""
    strata = {}
    for task in tasks:
        cell = cells.get((task, method))
        if cell is not None and len(cell.scores) and math.isfinite(scale[task][0]):
            strata[task] = stats.normalised(cell.scores, *scale[task])
    return strata


def _aggregate(method: str, own: Strata, first: Strata, seed: int, draws: int) -> Aggregate:
    if not own:
        return Aggregate(method, 0, 0, NOTHING, NOTHING, NOTHING, None)
    groups = list(own.values())
    shared = [task for task in own if task in first]
    better = NOTHING
    if shared:
        ours = [first[task] for task in shared]
        theirs = [own[task] for task in shared]
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
