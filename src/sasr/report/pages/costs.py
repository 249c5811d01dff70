"""Time and memory of whole runs beside the paper's tables."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sasr.experiments.plan_file import read_suite
from sasr.report.collect import Collection
from sasr.report.pages.inputs import Store, methods_of
from sasr.report.pages.notes import in_short
from sasr.report.pages.page import Page, provenance
from sasr.report.summary import summarise
from sasr.report.tables import Entry, Table, cost_table

COSTS = "costs"
_SINGLE = (
    "Ours are runs one after the other, evaluations and burn-in included, so a small difference means nothing. The "
    "memory of a run on a CPU is that of its whole process."
)
Figures = Mapping[str, Mapping[str, float]]


def costs_page(store: Store) -> Page:
    """The paper's three cost tables, with our rows above theirs where a suite has been run."""
    cost, kernel = store.groups["cost"], store.groups["rff-on-off"]
    hours: Figures = store.paper.get("hours", {})
    shares = {task: {name: own / row["sac"] for name, own in row.items()} for task, row in hours.items()}
    time = _beside("Training time of a step, sasr = 1", "cost", cost, "time", "sasr", store.paper.get("time", {}))
    memory = _beside("Peak memory of a run, sasr = 1", "cost", cost, "memory", "sasr", store.paper.get("memory", {}))
    features = _beside(
        "Training time of a step with random Fourier features and with exact kernel sums, sac = 1",
        "rff-on-off", kernel, "time", "sac", shares,
    )  # fmt: skip
    missing = [f"`sasr compare {name}`" for name, own in (("cost", cost), ("rff-on-off", kernel)) if not own.results]
    lines = [
        "# What runs cost",
        "",
        "Rows that end in *paper* are figures it prints, of whole runs on its GPUs, relative to the released SASR; "
        "those of the last table are hours on an RTX A6000, relative to its SAC. What one update costs with each "
        "shaper is on [another page](../shapers/costs.md).",
        "",
        *(
            [f"Not measured here yet: {' and '.join(missing)}; until then the rows are the paper's alone.", ""]
            if missing
            else []
        ),
        *(part for table in (time, memory, features) for part in (table.to_markdown(), "")),
        *([_SINGLE, "", "## Where our figures are from", ""] if cost.results or kernel.results else []),
        *(provenance([*cost.results, *kernel.results]) if cost.results or kernel.results else []),
    ]
    if COSTS in store.notes:
        lines += in_short(store.notes, COSTS, {})
    return Page(name=COSTS, lines=lines)


def _beside(title: str, suite: str, found: Collection, what: str, base: str, paper: Figures) -> Table:
    """A table by tasks with our row, where there is one, above the paper's."""
    order = list(methods_of(read_suite(suite)))
    ours: dict[str, dict[str, Entry]] = {}
    notes: tuple[str, ...] = ()
    if found.results:
        table = cost_table(summarise(found), what, base=base)
        notes = table.notes
        for row in table.rows:
            ours[str(row[0].value)] = dict(zip(("", *table.columns[1:]), row, strict=True))
        order += [name for name in table.columns[1:] if name not in order]
    rows = []
    for task in [*ours, *(own for own in paper if own not in ours)]:
        if task in ours:
            mark = ours[task][""].mark
            rows.append((Entry(task, mark=mark), *(ours[task].get(name, Entry()) for name in order)))
        if task in paper:
            rows.append((Entry(f"{task}, paper"), *(Entry(paper[task].get(name, math.nan)) for name in order)))
    return Table(title=title, columns=("task", *order), rows=tuple(rows), notes=notes)
