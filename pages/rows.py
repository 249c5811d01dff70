"""One line of a table: a method on a task, with intervals, beside a method that it is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from sasr.experiments.plan import seeds_in_words
from sasr.report import stats
from sasr.report.read import Collection, Reference, family, reference_of
from sasr.report.stats import Estimate
from sasr.report.store import Result
from sasr.report.summary import NOTHING, Statistics, statistics_of
from sasr.report.tables import Entry, Table, digits_for

FINAL = "final, mean ± s.e."
"""Heading of a column."""
DEFAULT, BASE = "sasr", "sac"
"""The method that the pages are about, and plain SAC with the same agent."""
PAPERS_DEFAULT, PAPERS_BASE = "sasr, paper's agent", "sac-paper"
"""The same with the paper's networks and step sizes."""


class Row(NamedTuple):
    """Figures of a method on a task; NaN where there is nothing to take them from."""

    method: str
    statistics: Statistics
    area: Estimate
    """Mean over seeds of the curves' mean height, with its bootstrap interval."""
    reach: Estimate
    """Median over seeds of the steps to the task's threshold; infinite where most never got there."""
    reached: int
    better_area: Estimate
    """Chance that the area of a seed is above that of a seed of the base."""
    trained: Entry
    """Returns in training from the last point on that leaves a tenth of the steps."""
    authors: float
    """The authors' curve of this method where ours ends."""
    paper: float
    """The paper's Table 1."""
    digits: int
    """After the point of returns, the same in all rows of a task."""

    @property
    def result(self) -> Result:
        """Where the figures are from."""
        return self.statistics.result


def rows_of(
    results: Sequence[Result],
    *,
    base: str,
    threshold: float = math.nan,
    curves: Mapping[str, Reference] | None = None,
    paper: Mapping[str, float] | None = None,
) -> list[Row]:
    """The rows of one task, in the order given.

    Args:
        results: Of one task, no method twice.
        base: The method that others are compared with.
        threshold: Return that counts as having learned the task; NaN where none is defined.
        curves: The authors' curves by method.
        paper: The paper's Table 1 by method.
    """
    statistics = statistics_of(Collection(list(results)), until=_area_until(results, base))
    by_method = {result.method: statistics[result.task, result.method] for result in results}
    sizes = [0.0]
    for each in by_method.values():
        sizes += [abs(size) for size in (each.mean, each.area) if math.isfinite(size)]
    digits = digits_for(max(sizes))
    rows = []
    for method, method_statistics in by_method.items():
        other = None
        if method != base:
            other = by_method.get(base)
        row = _row(method, method_statistics, other, threshold=threshold, digits=digits)
        curve = reference_of(method, curves or {})
        if curve is not None:
            row = row._replace(authors=at(curve, row.result.steps))
        rows.append(row._replace(paper=_like_paper(method, paper or {})))
    return rows


def _row(method: str, current: Statistics, other: Statistics | None, *, threshold: float, digits: int) -> Row:
    """The row of a method beside the base, without the figures of the authors and the paper."""
    seeds = [seed for seed in current.result.seeds if seed.steps]
    reach, reached = NOTHING, 0
    if seeds and not math.isnan(threshold):
        steps = [stats.steps_to_threshold(seed.steps, seed.returns, threshold) for seed in seeds]
        reach, reached = median_steps(steps), int(np.isfinite(steps).sum())
    better_area = NOTHING
    if other is not None:
        better_area = _better_area(current, other)
    return Row(
        method=method,
        statistics=current,
        area=mean_area(current.areas),
        reach=reach,
        reached=reached,
        better_area=better_area,
        trained=_last_tenth(current.result, digits),
        authors=math.nan,
        paper=math.nan,
        digits=digits,
    )


def mean_area(areas: stats.Scores) -> Estimate:
    """Mean over seeds with its interval; NaN without any."""
    if not len(areas):
        return NOTHING
    return stats.estimate([areas], stats.mean_of_tasks)


def base_of(methods: Iterable[str]) -> str:
    """Plain SAC, with the paper's agent where the default's has not been run."""
    if BASE in methods:
        return BASE
    return PAPERS_BASE


def method_table(rows: Sequence[Row], *, title: str, base: str, threshold: float = math.nan) -> Table:
    """Methods on one task with intervals; columns that nothing is known for are left out."""
    digits = rows[0].digits
    end = min((row.result.steps for row in rows if len(row.statistics.areas)), default=0)
    ends = {row.result.steps for row in rows}
    at_end = {f"at {end:,}": [_at_step(row, end) for row in rows]} if len(ends) > 1 else {}
    reach = {f"steps to {threshold:g}": [_reach(row) for row in rows]} if not math.isnan(threshold) else {}
    columns: dict[str, list[Entry]] = {
        "seeds": [Entry(str(len(row.statistics.scores))) for row in rows],
        f"area to {end:,} [95 %]": [interval(row.area, digits) for row in rows],
        f"P(area > {base})": [interval(row.better_area, 2) for row in rows],
        **reach,
        **at_end,
        "steps": [Entry(f"{row.result.steps:,}") for row in rows],
        FINAL: [Entry(row.statistics.mean, row.statistics.error, digits=digits) for row in rows],
        "paper, Table 1": [Entry(row.paper, digits=digits) for row in rows],
    }
    kept = {name: entries for name, entries in columns.items() if any(_known(entry) for entry in entries)}
    best = best_mean(rows)
    if FINAL in kept:
        kept[FINAL] = [entry._replace(best=entry.value == best) for entry in kept[FINAL]]
    notes = marks_explained(rows, "see below")
    if at_end:
        notes += (f"at {end:,}: the evaluation at that step; final: the one after all steps, of more episodes.",)
    names = [Entry(row.method, mark=marks(row.statistics)) for row in rows]
    lines = tuple(zip(names, *kept.values(), strict=True))
    return Table(title=title, columns=("method", *kept), rows=lines, notes=notes)


def _at_step(row: Row, step: int) -> Entry:
    """Mean return and its error on the curves at a step, of seeds that got there."""
    reached = [seed for seed in row.result.seeds if seed.last >= step and seed.steps]
    if not reached:
        return Entry()
    returns = np.array([np.interp(step, seed.steps, seed.returns) for seed in reached])
    return Entry(*stats.mean_and_error(returns), digits=row.digits)


def best_mean(rows: Sequence[Row]) -> float:
    """The highest final return among several runs of the same length; NaN where a longer one could be it for that."""
    if len(rows) < 2 or len({row.result.steps for row in rows}) > 1:
        return math.nan
    return max((row.statistics.mean for row in rows if not math.isnan(row.statistics.mean)), default=math.nan)


def marks(statistics: Statistics) -> str:
    """* for what is incomplete, † for SASR with whole episodes, ‡ for what goes without seeds that gave NaN."""
    applies = {
        "*": bool(statistics.result.gaps),
        "†": _whole_episodes(statistics.result),
        "‡": statistics.failed > 0,
    }
    return "".join(mark for mark, holds in applies.items() if holds)


def marks_explained(rows: Iterable[Row], where: str) -> tuple[str, ...]:
    """The meanings of the marks of these rows."""
    used = "".join(marks(row.statistics) for row in rows)
    meanings = {
        "*": f"* incomplete, {where}.",
        "†": '† success_rule="episode": the default until it took the paper\'s rule.',
        "‡": "‡ without seeds that gave NaN.",
    }
    return tuple(text for mark, text in meanings.items() if mark in used)


def sources(results: Sequence[Result]) -> list[str]:
    """What is missing or odd, then where results are from.

    Each remark and each command stands once, with the methods it is about. Remarks about the same methods share a line.
    """
    several = len({result.task for result in results}) > 1
    remarks: dict[str, list[Result]] = {}
    commands: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        for remark in (*result.gaps, *result.remarks):
            remarks.setdefault(remark, []).append(result)
        origins = commands.setdefault(result.command or "command unknown", {})
        origins.setdefault(_origin(result), []).append(result)
    lines = []
    if remarks:
        lines += ["What is missing or odd:", ""]
        about: dict[str, list[str]] = {}
        for remark, shared in remarks.items():
            about.setdefault(_methods(shared, several), []).append(remark)
        lines += [f"- {'; '.join(texts)} ({methods})." for methods, texts in about.items()]
        lines += ["", "Commands, machines, commits:", ""]
    for command, origins in commands.items():
        parts = [f"{_methods(shared, several)}: {origin}" for origin, shared in origins.items()]
        lines.append(f"- {'; '.join(parts)}: `{command}`")
    return lines


def chance(ours: Sequence[stats.Scores], theirs: Sequence[stats.Scores]) -> Estimate:
    """That a seed of ours has more than one of theirs, both by task; NaN where a task has none."""
    if not ours or not all(map(len, [*ours, *theirs])):
        return NOTHING
    return stats.probability_of_improvement(ours, theirs)


def interval(estimate: Estimate, digits: int) -> Entry:
    """A figure with its interval."""
    return Entry(estimate.value, low=estimate.low, high=estimate.high, digits=digits)


def at(curve: Reference, steps: float) -> float:
    """The mean at a step, between its points; NaN where the curve has not begun or has ended.

    A run's last point comes with its last episode, somewhat before its last step: it holds for as long as points are
    apart.
    """
    gap = float(np.median(np.diff(curve.steps))) if len(curve.steps) > 1 else 0.0
    held = min(steps, curve.steps[-1]) if steps <= curve.steps[-1] + gap else steps
    return float(np.interp(held, curve.steps, curve.mean, left=math.nan, right=math.nan))


def median_steps(steps_taken: Sequence[float], *, seed: int = 0) -> Estimate:
    """Median of steps to a threshold with its bootstrap interval; a seed that never got there counts as infinity.

    >>> median_steps([100.0, 200.0, float("inf")]).value
    200.0
    """
    steps = np.asarray(steps_taken, np.float64)
    # Always a value of one run: there is no mean of a number and infinity.
    middle = partial(np.quantile, q=0.5, axis=-1, method="higher")
    picks = np.random.default_rng(seed).integers(len(steps), size=(stats.DRAWS, len(steps)))
    drawn = np.sort(middle(steps[picks]))
    if len(steps) < 2:
        return Estimate(float(middle(steps)), math.nan, math.nan)
    tail = (1.0 - stats.LEVEL) / 2.0
    low, high = (float(drawn[math.floor(share * (stats.DRAWS - 1))]) for share in (tail, 1.0 - tail))
    return Estimate(float(middle(steps)), low, high)


def _methods(results: Sequence[Result], with_tasks: bool) -> str:
    """Their methods; with tasks, methods on the same tasks share them: `` `a`, `b` on Ant; `c` on Walker ``."""
    tasks: dict[str, list[str]] = {}
    for result in results:
        tasks.setdefault(f"`{result.method}`", []).append(result.task)
    if not with_tasks:
        return ", ".join(tasks)
    methods: dict[str, list[str]] = {}
    for method, names in tasks.items():
        methods.setdefault(", ".join(names), []).append(method)
    return "; ".join(f"{', '.join(shared)} on {names}" for names, shared in methods.items())


def _origin(result: Result) -> str:
    """Seeds, commit and machine."""
    seeds = seeds_in_words(sorted(seed.seed for seed in result.seeds)) if result.seeds else "no seed"
    facts = result.machine
    device = str(facts.get("device") or facts.get("gpu") or "")
    parts = [str(facts.get("processor", "")), result.cores, "" if device == "cpu" else device]
    machine = ", ".join(part for part in parts if part) or "machine unknown"
    torch = f", torch {result.versions['torch']}" if result.versions.get("torch") else ""
    curve = "" if result.curve_of == "evaluation" else ", a curve of training with exploration"
    return f"{seeds}, commit {result.commit or 'unknown'}, {machine}{torch}{curve}"


def _whole_episodes(result: Result) -> bool:
    shaper_config = result.config.get("shaper_config") or {}
    return result.config.get("shaper") == "sasr" and shaper_config.get("success_rule") == "episode"


def _like_paper(method: str, paper: Mapping[str, float]) -> float:
    """The paper's figure for a method, its presets and its variants counting as the method."""
    return paper.get(method, paper.get(family(method), math.nan))


def _last_tenth(result: Result, digits: int) -> Entry:
    points = result.seeds[0].steps if result.seeds else ()
    before = max((point for point in points if point <= 0.9 * points[-1]), default=0)
    stretches = [seed.training(before, points[-1]) for seed in result.seeds] if points else []
    returns = np.array([stretch.trained for stretch in stretches if stretch is not None])
    if not len(returns) or len(returns) < len(stretches):
        return Entry(math.nan)
    return Entry(*stats.mean_and_error(returns), digits=digits)


def _area_until(results: Sequence[Result], base: str) -> int | None:
    """Up to where areas are taken: as far as half of the runs go, and the default, and what it is compared with.

    So a short run or two of some variants do not cut off what is known of the others.
    """
    if not results:
        return None
    half = sorted((result.steps for result in results), reverse=True)[(len(results) - 1) // 2]
    return min([half, *(result.steps for result in results if result.method in (base, DEFAULT, PAPERS_DEFAULT))])


def _better_area(ours: Statistics, theirs: Statistics) -> Estimate:
    if not len(ours.areas):
        pair = statistics_of(Collection([ours.result, theirs.result]))
        ours, theirs = (pair[each.result.task, each.result.method] for each in (ours, theirs))
    return chance([ours.areas], [theirs.areas])


def _reach(row: Row) -> Entry:
    entry = interval(row.reach, 0)
    return entry._replace(mark=f" ({row.reached} of {len(row.result.seeds)})") if _known(entry) else entry


def _known(entry: Entry) -> bool:
    return isinstance(entry.value, str) or not math.isnan(entry.value)
