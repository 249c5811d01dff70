"""The default against other methods, task by task: how often better, and what it promises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from pages.rows import BASE, DEFAULT, PAPERS_BASE, Row, chance, interval, mean_area
from sasr.report.read import Collection
from sasr.report.stats import Estimate
from sasr.report.store import Result
from sasr.report.summary import NOTHING, statistics_of
from sasr.report.tables import Entry, Table
from sasr.shaping.presets import PRESETS
from sasr.tasks.catalogue import BY_NAME

RIVALS = {BASE: "plain SAC"}
"""What the default must not be worse than."""
PAPERS_RIVALS = {PAPERS_BASE: "plain SAC", "sasr-authors": "the released code's settings"}
"""The same for the default with the paper's agent."""
ALL = "all of the catalogue"
"""The last line; a task of another origin may be one of these under another name and would weigh twice."""
Rows = Mapping[str, Sequence[Row]]
"""By task."""


class Comparison(NamedTuple):
    """A method against another on a task, or over tasks."""

    steps: int
    """As far as both go; 0 over tasks."""
    areas: tuple[Estimate, Estimate]
    """Of both, as far as both go."""
    better: Estimate
    """Chance that the area under the curve of a seed of the first is above that of a seed of the other."""

    @property
    def verdict(self) -> str:
        """Better or worse where the whole interval says so."""
        value, low, high = self.better
        if math.isnan(value):
            return "not compared"
        if math.isnan(low):
            return "one seed"
        if low > 0.5:
            return "better"
        return "worse" if high < 0.5 else "not told apart"


def comparisons(rows: Rows, ours: str, theirs: str) -> dict[str, Comparison]:
    """A method against another on every task that both were run on, and over those of the catalogue."""
    by_task: dict[str, Comparison] = {}
    areas = []
    for task, task_rows in rows.items():
        results = {row.method: row.result for row in task_rows if row.method in (ours, theirs)}
        if len(results) < 2:
            continue
        statistics = statistics_of(Collection([results[ours], results[theirs]]))
        one, other = (statistics[task, method].areas for method in (ours, theirs))
        steps = min(result.steps for result in results.values())
        by_task[task] = Comparison(steps, (mean_area(one), mean_area(other)), chance([one], [other]))
        if len(one) and len(other) and task in BY_NAME:
            areas.append((one, other))
    if len(areas) > 1:
        together = chance([one for one, _ in areas], [other for _, other in areas])
        by_task[ALL] = Comparison(0, (NOTHING, NOTHING), together)
    return by_task


def rivals_table(rows: Rows, ours: str, rivals: Mapping[str, str]) -> Table:
    """A method against its rivals, a line for each task."""
    by_rival = [comparisons(rows, ours, rival) for rival in rivals]
    columns = ["task"]
    for rival in rivals:
        columns += ["to", f"P(area > {rival})", "verdict"]
    lines = []
    for task in (*rows, ALL):
        entries: list[Entry] = []
        for by_task in by_rival:
            entries += _entries(by_task.get(task))
        if any(task in by_task for by_task in by_rival):
            lines.append((Entry(task), *entries))
    return Table(
        title=f"{ours} against {' and '.join(rivals.values())}",
        columns=tuple(columns),
        rows=tuple(lines),
        notes=(
            "P(area > …): chance that a seed of the first has the larger area under the curve, as far as both go. "
            "Better or worse is said where the whole interval is on one side of 0.5. The last line is over the tasks "
            "of the catalogue, each of which weighs the same.",
        ),
    )


def comparison_table(rows: Rows, ours: str, theirs: str, *, title: str) -> Table:
    """Areas of two methods as far as both go, and the chance that a seed of the first has the larger."""
    lines = []
    for task, comparison in comparisons(rows, ours, theirs).items():
        if task == ALL:
            continue
        digits = rows[task][0].digits
        areas = [interval(area, digits) for area in comparison.areas]
        lines.append((Entry(task), Entry(f"{comparison.steps:,}"), *areas, interval(comparison.better, 2)))
    columns = ("task", "to", f"area: {ours}", f"area: {theirs}", f"P({ours} > {theirs})")
    return Table(title=title, columns=columns, rows=tuple(lines))


def promises(rows: Rows) -> list[str]:
    """How the default stands in what it should hold, a line each; new results may break them, and that is no error."""
    lines = []
    for rival, words in RIVALS.items():
        tasks_by_verdict: dict[str, list[str]] = {"worse": [], "better": []}
        for task, comparison in comparisons(rows, DEFAULT, rival).items():
            tasks_by_verdict.setdefault(comparison.verdict, []).append(task)
        worse, better = map(_listed, (tasks_by_verdict["worse"], tasks_by_verdict["better"]))
        lines.append(f"the default against {words}: worse on {worse}; better on {better}")
    results = {task: row.result for task, task_rows in rows.items() for row in task_rows if row.method == DEFAULT}
    if "MountainCar" in results:
        seeds = results["MountainCar"].seeds
        solved = [seed for seed in seeds if any(_reached(seed.steps, seed.returns, 40_000, 0.9))]
        lines.append(f"MountainCar at 0.9 by 40,000 steps: {len(solved)} of {len(seeds)} seeds of the default")
    if "HumanKeep" in results:
        seeds = results["HumanKeep"].seeds
        solved = [seed for seed in seeds if any(_reached(seed.steps, seed.returns, 100_000, 190.0))]
        lines.append(f"HumanKeep at 190 by 100,000 steps: {len(solved)} of {len(seeds)} seeds of the default")
    settings = asdict(PRESETS["auto"])
    old = [task for task, result in results.items() if not _has_settings(result, settings)]
    lines.append(f"stored runs of the default that are not of today's settings: {_listed(old)}")
    return lines


def _entries(comparison: Comparison | None) -> list[Entry]:
    if comparison is None:
        return [Entry()] * 3
    steps = f"{comparison.steps:,}" if comparison.steps else ""
    return [Entry(steps), interval(comparison.better, 2), Entry(comparison.verdict)]


def _has_settings(result: Result, settings: Mapping[str, Any]) -> bool:
    """Whether a result was run with these settings of its shaper, whatever others the code had then."""
    stored = result.config.get("shaper_config") or {}
    return {name: stored.get(name) for name in settings} == settings


def _reached(steps: Sequence[int], returns: Sequence[float], until: int, level: float) -> list[bool]:
    return [value >= level for step, value in zip(steps, returns, strict=True) if step <= until]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
