"""One line of a table: a method on a task, with intervals, beside a method that it is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sasr.report import stats
from sasr.report.collect import Collection
from sasr.report.reference import Reference, at, like
from sasr.report.stats import Estimate
from sasr.report.store import Result
from sasr.report.summary import NOTHING, Cell, cells_of
from sasr.report.tables import Entry, Table, digits_for

FINAL, TRAINED, AUTHORS = "final, mean ± s.e.", "in training, last tenth", "authors' curve there"
"""Headings of columns."""
DEFAULT = "sasr"
"""The method that everything here is about."""
TRAINING = ("trained", "lengths", "lowest", "highest", "above", "bonus", "failures", "values", "valued")
"""What `figure_of_training` can tell."""
BORDERED = ("above", "valued")
"""Those of them that count seeds above a border."""


class Row(NamedTuple):
    """Figures of a method on a task; NaN where there is nothing to take them from."""

    method: str
    cell: Cell
    area: Estimate
    """Mean over seeds of the curves' mean height, with its bootstrap interval."""
    reach: Estimate
    """Median over seeds of the steps to the task's threshold; infinite where most never got there."""
    reached: int
    better: Estimate
    """Chance that the final return of a seed is above that of a seed of the base."""
    better_area: Estimate
    """The same for the area."""
    authors: float
    """The authors' curve of this method where ours ends."""
    paper: float
    """The paper's Table 1."""
    digits: int
    """After the point of returns, the same in all rows of a task."""

    @property
    def result(self) -> Result:
        """Where the figures are from."""
        return self.cell.result


def rows_of(
    results: Sequence[Result],
    *,
    base: str,
    threshold: float = math.nan,
    curves: Mapping[str, Reference] | None = None,
    paper: Mapping[str, float] | None = None,
    seed: int = 0,
) -> list[Row]:
    """The rows of one task, in the order given.

    Args:
        results: Of one task, no method twice.
        base: The method that others are compared with.
        threshold: Return that counts as having learned the task; NaN where none is defined.
        curves: The authors' curves by method.
        paper: The paper's Table 1 by method.
        seed: Of all bootstrap intervals.
    """
    found = cells_of(Collection(list(results)), until=_area_until(results, base), seed=seed)
    cells = {own.method: found[own.task, own.method] for own in results}
    sizes = [abs(own) for cell in cells.values() for own in (cell.mean, cell.area) if math.isfinite(own)]
    rows = []
    for method, cell in cells.items():
        took = [stats.steps_to_threshold(own.steps, own.returns, threshold) for own in cell.result.seeds if own.steps]
        known = bool(took) and not math.isnan(threshold)
        curve = like(method, curves or {})
        other = cells.get(base) if method != base else None
        rows.append(
            Row(
                method=method,
                cell=cell,
                area=stats.estimate([cell.areas], stats.mean_of_tasks, seed=seed) if len(cell.areas) else NOTHING,
                reach=stats.median_steps(took, seed=seed) if known else NOTHING,
                reached=int(np.isfinite(took).sum()) if known else 0,
                # A longer run may end higher for no other reason; areas are compared as far as both runs go.
                better=chance([cell.scores], [other.scores], seed) if other and _as_long(cell, other) else NOTHING,
                better_area=_better_area(cell, other, seed) if other else NOTHING,
                authors=at(curve, cell.result.steps) if curve else math.nan,
                paper=like_paper(method, paper or {}),
                digits=digits_for(max(sizes, default=0.0)),
            )
        )
    return rows


def method_table(rows: Sequence[Row], *, title: str, base: str, threshold: float = math.nan) -> Table:
    """Methods on one task with intervals; columns that nothing is known for are left out."""
    digits = rows[0].digits if rows else 2
    end = min((row.result.steps for row in rows if len(row.cell.areas)), default=0)
    reach = {f"steps to {threshold:g}": [_reach(row) for row in rows]} if not math.isnan(threshold) else {}
    columns: dict[str, list[Entry]] = {
        "seeds": [Entry(str(len(row.cell.scores))) for row in rows],
        "steps": [Entry(f"{row.result.steps:,}") for row in rows],
        FINAL: [Entry(row.cell.mean, row.cell.error, digits=digits) for row in rows],
        "final, IQM [95 %]": [_interval(row.cell.iqm, digits) for row in rows],
        f"area to {end:,} [95 %]": [_interval(row.area, digits) for row in rows],
        **reach,
        f"P(final > {base})": [_interval(row.better, 2) for row in rows],
        f"P(area > {base})": [_interval(row.better_area, 2) for row in rows],
        TRAINED: [_last_tenth(row) for row in rows],
        AUTHORS: [Entry(row.authors, digits=digits) for row in rows],
        "paper, Table 1": [Entry(row.paper, digits=digits) for row in rows],
    }
    kept = {name: own for name, own in columns.items() if any(_known(entry) for entry in own)}
    best = best_mean(rows)
    table = []
    for index, row in enumerate(rows):
        entries = [own[index] for own in kept.values()]
        first = list(kept).index(FINAL) if FINAL in kept else -1
        entries = [own._replace(best=place == first and own.value == best) for place, own in enumerate(entries)]
        table.append((Entry(row.method, mark=marks(row.cell)), *entries))
    notes = marks_told(rows, "see below")
    if TRAINED in kept:
        notes += (
            f"{TRAINED}: mean return of the episodes of training, which explore, in the last tenth of the steps, "
            "from the evaluation before it on.",
        )
    if AUTHORS in kept:
        notes += (f"{AUTHORS}: the mean return in training that they logged when they had taken as many steps as we.",)
    return Table(title=title, columns=("method", *kept), rows=tuple(table), notes=notes)


def best_mean(rows: Sequence[Row]) -> float:
    """The highest final return among several runs of the same length; NaN where a longer one could be it for that."""
    if len(rows) < 2 or len({row.result.steps for row in rows}) > 1:
        return math.nan
    return max((row.cell.mean for row in rows if not math.isnan(row.cell.mean)), default=math.nan)


def gaps_and_remarks(results: Iterable[Result]) -> list[str]:
    """What is missing or odd, a line for all results of a task of which the same is to be said."""
    told: dict[tuple[str, str], list[str]] = {}
    for own in results:
        if words := "; ".join([*own.gaps, *own.remarks]):
            told.setdefault((own.task, words), []).append(f"`{own.method}`")
    return [f"- {', '.join(methods)} on {task}: {words}." for (task, words), methods in told.items()]


def marks(cell: Cell) -> str:
    """* for what is incomplete, ‡ for what goes without seeds that gave NaN."""
    return ("*" if cell.result.gaps else "") + ("‡" if cell.failed else "")


def marks_told(rows: Iterable[Row], where: str) -> tuple[str, ...]:
    """What the marks of these rows mean, and where more is said."""
    used = "".join(marks(row.cell) for row in rows)
    told = {"*": f"* incomplete, {where}.", "‡": "‡ without seeds that gave NaN."}
    return tuple(text for mark, text in told.items() if mark in used)


def like_paper(method: str, paper: Mapping[str, float]) -> float:
    """The paper's figure for a method, its presets and its variants counting as the method."""
    if method in paper:
        return paper[method]
    base = method.split("-")[0]
    return paper.get(base, math.nan) if base == "sasr" else math.nan


def figures_of(row: Row) -> dict[str, str]:
    """What a note can say about a row, as it stands in tables."""
    digits = row.digits
    return {
        "final": Entry(row.cell.mean, row.cell.error, digits=digits).text(),
        "iqm": _interval(row.cell.iqm, digits).text(),
        "auc": _interval(row.area, digits).text(),
        "reach": Entry(row.reach.value, low=row.reach.low, high=row.reach.high, digits=0).text(),
        "reached": str(row.reached),
        "better": _interval(row.better, 2).text(),
        "better_auc": _interval(row.better_area, 2).text(),
        "seeds": str(len(row.cell.scores)),
        "steps": f"{row.result.steps:,}",
        "trained": _last_tenth(row).text(),
        "authors": Entry(row.authors, digits=digits).text(),
        "paper": Entry(row.paper, digits=digits).text(),
    }


def figure_at(row: Row, step: int) -> str:
    """The evaluations after so many steps, mean ± standard error over seeds; empty where a seed has none there."""
    curves = [dict(zip(own.steps, own.returns, strict=True)) for own in row.result.seeds]
    if not curves or not all(step in own for own in curves):
        return ""
    mean, error = stats.mean_and_error(np.array([own[step] for own in curves]))
    return Entry(mean, error, digits=row.digits).text()


def areas_to(row: Row, until: int) -> stats.Scores:
    """The area under each seed's curve up to so many steps; empty where a seed does not go that far."""
    areas = cells_of(Collection([row.result]), until=until)[row.result.task, row.result.method].areas
    return areas if len(areas) == len(row.result.seeds) else areas[:0]


def figure_of_area(row: Row, until: int) -> str:
    """The area up to so many steps, mean over seeds with its interval; empty where a seed does not go that far."""
    areas = areas_to(row, until)
    return _interval(stats.estimate([areas], stats.mean_of_tasks), row.digits).text() if len(areas) else ""


def figure_of_duel(row: Row, other: Row, until: int) -> str:
    """The chance that a seed has the larger area up to so many steps; empty where a seed does not go that far."""
    ours, theirs = areas_to(row, until), areas_to(other, until)
    return _interval(chance([ours], [theirs], 0), 2).text() if len(ours) and len(theirs) else ""


def figure_of_training(row: Row, what: str, after: int, until: int, border: float = math.nan) -> str:
    """Of the episodes of training between two points of the curves; empty where a seed has no such points.

    Args:
        row: The method.
        what: "trained" for their returns, mean ± standard error over seeds; "lengths" for their mean length; "lowest",
            "highest" for the least and the most that a seed was paid; "above" for the number of seeds above `border`;
            "bonus" and "failures" for what shaping added and the share of failures that SASR retained, in the mean;
            "values" for the most that the critics of a seed said of a batch, "valued" for the number of seeds whose
            critics said more than `border`.
        after: A point, or 0.
        until: A later point.
        border: What returns or values are compared with.
    """
    found = [own.training(after, until) for own in row.result.seeds]
    parts = [own for own in found if own is not None and own.episodes]
    if not parts or len(parts) < len(found):
        return ""
    returns = np.array([own.ret for own in parts])
    if what == "trained":
        return Entry(*stats.mean_and_error(returns), digits=row.digits).text()
    if what == "above":
        return str(int((returns > border).sum()))
    if what in ("lowest", "highest"):
        return Entry(float(returns.min() if what == "lowest" else returns.max()), digits=row.digits).text()
    if what in ("values", "valued"):
        values = np.array([own.value for own in parts])
        if not np.isfinite(values).all():
            return ""
        return Entry(float(values.max()), digits=0).text() if what == "values" else str(int((values > border).sum()))
    name, digits = {"lengths": ("length", 0), "bonus": ("bonus", 3), "failures": ("failures", 2)}[what]
    value = float(np.mean([getattr(own, name) for own in parts]))
    return Entry(value, digits=digits).text() if math.isfinite(value) else ""


def _last_tenth(row: Row) -> Entry:
    """Returns in training from the last point on that leaves a tenth, mean ± standard error over seeds."""
    points = row.result.seeds[0].steps if row.result.seeds else ()
    before = max((own for own in points if own <= 0.9 * points[-1]), default=0)
    found = [own.training(before, points[-1]) for own in row.result.seeds] if points else []
    returns = np.array([own.ret for own in found if own is not None])
    if not len(returns) or len(returns) < len(found):
        return Entry(math.nan)
    return Entry(*stats.mean_and_error(returns), digits=row.digits)


def chance(ours: Sequence[stats.Scores], theirs: Sequence[stats.Scores], seed: int) -> Estimate:
    """That a seed of ours has more than one of theirs, both by task; NaN where a task has none."""
    if not ours or not all(map(len, [*ours, *theirs])):
        return NOTHING
    return stats.probability_of_improvement(ours, theirs, seed=seed)


def _area_until(results: Sequence[Result], base: str) -> int | None:
    """Up to where areas are taken: as far as half of the runs go, and the default, and what it is compared with.

    So a short run or two of some variants do not cut off what is known of the others.
    """
    if not results:
        return None
    half = sorted((own.steps for own in results), reverse=True)[(len(results) - 1) // 2]
    return min([half, *(own.steps for own in results if own.method in (base, DEFAULT))])


def _better_area(ours: Cell, theirs: Cell, seed: int) -> Estimate:
    if not len(ours.areas):
        pair = cells_of(Collection([ours.result, theirs.result]), seed=seed)
        ours, theirs = (pair[own.result.task, own.result.method] for own in (ours, theirs))
    return chance([ours.areas], [theirs.areas], seed)


def _as_long(one: Cell, other: Cell) -> bool:
    return one.result.steps == other.result.steps


def _interval(own: Estimate, digits: int) -> Entry:
    return Entry(own.value, low=own.low, high=own.high, digits=digits)


def _reach(row: Row) -> Entry:
    entry = Entry(row.reach.value, low=row.reach.low, high=row.reach.high, digits=0)
    return entry._replace(mark=f" ({row.reached} of {len(row.result.seeds)})") if _known(entry) else entry


def _known(entry: Entry) -> bool:
    return isinstance(entry.value, str) or not math.isnan(entry.value)
