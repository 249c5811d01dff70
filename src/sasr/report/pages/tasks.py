"""The index, and a page for each task: our curves over the authors', a table with intervals, where it is all from."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sasr.report.figures import in_training, over_authors
from sasr.report.pages.guard import guard_picture, guard_table
from sasr.report.pages.inputs import Store
from sasr.report.pages.notes import in_short
from sasr.report.pages.page import Page, Picture, curves_drawn, digest, file_name, provenance
from sasr.report.pages.rows import Row, best_mean, gaps_and_remarks, marks, marks_told, method_table, rows_of
from sasr.report.reference import Reference
from sasr.report.tables import Entry, Table
from sasr.tasks.catalogue import BY_NAME, VARIANTS, full_id

BASE = "sac"
"""The method that others are compared with: the plain agent."""
INDEX = "README"
_ADD = """\
Everything here is drawn by `make results` from [results/](../../results/README.md), which `sasr compare --save` writes
to. Intervals are 95 % bootstrap intervals over seeds, *s.e.* is the standard error over seeds, *IQM* the interquartile
mean; the final return of a seed is its mean over episodes of evaluation after training, 100 if not said otherwise.\
"""
_CHANCES = """\
Chance that a seed of the default has the larger area under the curve, with its 95 % interval. \
Where the interval is on one side of 0.5 it is coloured: there the seeds tell the two apart.\
"""


def tasks_of(store: Store) -> list[str]:
    """Tasks that have results, those of the catalogue first and in its order."""
    order = {name: number for number, name in enumerate(BY_NAME)}
    return sorted(store.main.tasks, key=lambda task: (order.get(task, len(order)), task))


def rows_by_task(store: Store) -> dict[str, list[Row]]:
    """The rows of every task's page."""
    return {
        task: rows_of(
            [own for name in store.main.methods if (own := store.main.cell(task, name))],
            base=BASE,
            threshold=store.thresholds.get(task, math.nan),
            curves=store.reference.get(task),
            paper=store.paper.get("table1", {}).get(task),
        )
        for task in tasks_of(store)
    }


def placeholders(rows: Mapping[str, list[Row]], task: str = "") -> dict[str, Row]:
    """What notes call rows: TASK/METHOD anywhere, METHOD alone on the task's own page."""
    far = {f"{name}/{row.method}": row for name, own in rows.items() for row in own}
    return {row.method: row for row in rows.get(task, ())} | far


def task_page(store: Store, task: str, rows: Mapping[str, list[Row]], quoted: Mapping[str, Row]) -> Page:
    """The page of one task; its note may quote rows of plans too, as TASK/METHOD."""
    own, threshold = rows[task], store.thresholds.get(task, math.nan)
    methods = {row.method: row.result.seeds for row in own if any(seed.steps for seed in row.result.seeds)}
    authors = authors_beside(store.reference.get(task, {}), methods)
    trained = in_training(methods)
    picture = Picture(
        f"{file_name(task)}.png",
        digest("over authors", task, curves_drawn(methods), authors, *([curves_drawn(trained)] if trained else [])),
        lambda: over_authors(methods, authors, title=task),
    )
    caption = "Return of evaluations" + (", beside it of training," if trained else ",")
    caption += " mean ± standard error over seeds."
    if authors:
        caption += (
            " Dashed: the authors' logged curves, returns in training, in the colour of the method they belong to."
        )
    table = method_table(own, title="Final and over the whole run", base=BASE, threshold=threshold)
    odd = gaps_and_remarks(row.result for row in own)
    return Page(
        name=file_name(task),
        lines=[
            f"# {task}",
            "",
            *_about(task),
            *picture.markdown(caption),
            table.to_markdown(),
            *([f"A seed has learned the task at a return of {threshold:g}.", ""] if not math.isnan(threshold) else []),
            *(["What is missing or odd:", "", *odd, ""] if odd else []),
            "## Where the figures are from",
            "",
            *provenance(row.result for row in own),
            *in_short(store.notes, file_name(task), {**quoted, **placeholders(rows, task)}),
        ],
        pictures=(picture,),
    )


def authors_beside(curves: Mapping[str, Reference], methods: Mapping[str, object]) -> dict[str, Reference]:
    """The authors' curves of methods that are shown, each under the one method that it belongs to most."""
    found = {}
    for name, curve in curves.items():
        # Theirs is the released code: its preset comes first, then the method's own name.
        wanted = (f"{name}-authors", name, f"{name}-paper")
        match = next((own for own in wanted if own in methods), None)
        if match:
            found[match] = curve
    return found


def index_page(
    store: Store, rows: Mapping[str, list[Row]], others: Mapping[str, str], quoted: Mapping[str, Row]
) -> Page:
    """All tasks in one table, and the way to everything else.

    `others` are further pages with what they show, `quoted` the rows that its note may quote, as TASK/METHOD.
    """
    lines, pictures = ["# Results", "", _ADD, ""], []
    if rows:
        lines += [_overview(rows).to_markdown(), ""]
        lines += ["Each task's page has the curves, the area under them, comparisons, and where every row is from."]
        if guard := guard_table(rows):
            lines += ["", guard.to_markdown()]
        if picture := guard_picture(rows):
            lines += ["", *picture.markdown(_CHANCES)]
            pictures.append(picture)
    else:
        lines += ["No task has been measured for these pages yet: `results/` holds no results of the main comparison."]
    lines += ["", *(f"- [{page}]({page}.md): {about}" for page, about in others.items()), ""]
    if INDEX in store.notes:
        lines += in_short(store.notes, INDEX, quoted)
    return Page(name=INDEX, lines=lines, pictures=tuple(pictures))


def _overview(rows: Mapping[str, list[Row]]) -> Table:
    lines = []
    for task, own in rows.items():
        best = best_mean(own)
        for index, row in enumerate(own):
            cell, iqm = row.cell, row.cell.iqm
            lines.append(
                (
                    Entry(f"[{task}]({file_name(task)}.md)" if index == 0 else ""),
                    Entry(row.method, mark=marks(cell)),
                    Entry(cell.mean, cell.error, digits=row.digits, best=cell.mean == best),
                    Entry(iqm.value, low=iqm.low, high=iqm.high, digits=row.digits),
                    Entry(str(len(cell.scores))),
                    Entry(f"{row.result.steps:,}"),
                )
            )
    return Table(
        title="Final return",
        columns=("task", "method", "mean ± s.e.", "IQM [95 %]", "seeds", "steps"),
        rows=tuple(lines),
        notes=marks_told([row for own in rows.values() for row in own], "the task's page says in what"),
    )


def _about(task: str) -> list[str]:
    variant = VARIANTS.get(full_id(task))
    if variant is None:
        return []
    limit = f"an episode ends after {variant.horizon} steps"
    early = "" if variant.ends == "never early" else f", or sooner: {variant.ends}"
    return [f"Paid when: {variant.success}; {limit}{early} ([all tasks](../tasks.md)).", ""]
