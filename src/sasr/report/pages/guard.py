"""The default against plain SAC and against the released code's settings: is it ever worse, and how often better?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sasr.report.collect import Collection
from sasr.report.figures import chances
from sasr.report.pages.page import Picture, digest
from sasr.report.pages.rows import DEFAULT, Row, chance
from sasr.report.stats import Estimate
from sasr.report.summary import cells_of
from sasr.report.tables import Entry, Table
from sasr.tasks.catalogue import BY_NAME

RIVALS = {"sac": "plain SAC", "sasr-authors": "the released code's settings"}
"""What the default must not be worse than, and what it should mostly be better than."""
ALL = "all of the catalogue"
"""The last line; a task of another origin may be one of these under another name and would weigh twice."""


class Duel(NamedTuple):
    """The default against another method on a task, or over tasks."""

    task: str
    rival: str
    steps: int
    """As far as both go; 0 over tasks."""
    better: Estimate
    """Chance that the area under the curve of a seed of the default is above that of a seed of the other."""

    @property
    def verdict(self) -> str:
        """Better or worse where the whole interval says so."""
        if math.isnan(self.better.value):
            return "not compared"
        if math.isnan(self.better.low):
            return "one seed"
        return "better" if self.better.low > 0.5 else "worse" if self.better.high < 0.5 else "not told apart"


def duels(rows: Mapping[str, Sequence[Row]], rival: str, *, seed: int = 0) -> list[Duel]:
    """The default against a rival on every task that both were run on, and over those of the catalogue."""
    found, ours, theirs = [], [], []
    for task, own in rows.items():
        by_method = {row.method: row.result for row in own}
        if not {DEFAULT, rival} <= by_method.keys():
            continue
        pair = cells_of(Collection([by_method[DEFAULT], by_method[rival]]), seed=seed)
        one, other = (pair[task, name].areas for name in (DEFAULT, rival))
        steps = min(by_method[name].steps for name in (DEFAULT, rival))
        found.append(Duel(task, rival, steps, chance([one], [other], seed)))
        if len(one) and len(other) and task in BY_NAME:
            ours.append(one)
            theirs.append(other)
    return [*found, Duel(ALL, rival, 0, chance(ours, theirs, seed))] if len(ours) > 1 else found


def guard_table(rows: Mapping[str, Sequence[Row]]) -> Table | None:
    """All of these, a line for each task; None where the default meets none of its rivals."""
    met = {rival: {duel.task: duel for duel in duels(rows, rival)} for rival in RIVALS}
    names = [name for name in (*rows, ALL) if any(name in own for own in met.values())]
    lines = [_line(name, [own.get(name) for own in met.values()]) for name in names]
    if not lines:
        return None
    columns = ("task", *(word for rival in RIVALS for word in ("to", f"P(area > {rival})", "verdict")))
    return Table(
        title="The default against plain SAC and the released code's settings",
        columns=columns,
        rows=tuple(lines),
        notes=(
            "P(area > …): chance that a seed of the default has the larger area under the curve, as far as both go. "
            "Better or worse is said where the whole interval is on one side of 0.5. The last line is over the tasks "
            "of the catalogue, each of which weighs the same.",
        ),
    )


def guard_picture(rows: Mapping[str, Sequence[Row]]) -> Picture | None:
    """The same to look at; None where the default meets none of its rivals, or no interval is known."""
    met = {
        f"against {words}": {duel.task: duel.better for duel in duels(rows, rival) if not math.isnan(duel.better.low)}
        for rival, words in RIVALS.items()
    }
    panels = {title: own for title, own in met.items() if own}
    return Picture("guard.png", digest("guard", panels), lambda: chances(panels)) if panels else None


def _line(name: str, own: Sequence[Duel | None]) -> tuple[Entry, ...]:
    entries = [Entry(name)]
    for duel in own:
        if duel is None:
            entries += [Entry(math.nan)] * 3
            continue
        value, low, high = duel.better
        steps = Entry(f"{duel.steps:,}") if duel.steps else Entry("")
        entries += [steps, Entry(value, low=low, high=high, digits=2), Entry(duel.verdict)]
    return tuple(entries)
