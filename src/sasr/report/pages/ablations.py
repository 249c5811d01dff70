"""The paper's six ablations, and plans of our own that change one thing at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sasr.experiments.method import Method, built_in_methods
from sasr.experiments.plan_file import read_suite, suites
from sasr.report.collect import Collection
from sasr.report.figures import ablation_grid, change_grid
from sasr.report.pages.inputs import Store, authors_name, methods_of
from sasr.report.pages.notes import in_short
from sasr.report.pages.page import Page, Picture, curves_drawn, digest, file_name, provenance
from sasr.report.pages.rows import Row, gaps_and_remarks, method_table, rows_of
from sasr.report.reference import Reference
from sasr.report.seeds import SeedResult
from sasr.report.store import Result
from sasr.report.summary import cells_of
from sasr.report.tables import Entry, Table, ablation_table, area_entry, digits_for

ABLATIONS = "ablations"
SUITES = tuple(name for name in sorted(suites(), key=lambda own: suites()[own]) if name.startswith("ablation-"))
"""In the paper's order."""
Seeds = dict[str, dict[str, Sequence[SeedResult]]]


def ablations_page(store: Store, quoted: Mapping[str, Row]) -> Page | None:
    """The page of the paper's ablations; None while none has results.

    Its note may quote rows of all other pages too, as TASK/METHOD.
    """
    lines = [
        "# The paper's ablations",
        "",
        "One setting of the preset `paper` is changed at a time (`sasr compare ablation-…`, "
        "[suites](../experiments.md#suites)). Rows that end in *paper* are the figures it prints.",
        "",
    ]
    pictures = []
    parts = _whole(store.suites(*SUITES))
    for name, found in parts.items():
        part, picture = _section(store, name, found)
        lines += part
        pictures.append(picture)
    if not pictures:
        return None
    rows = {name: _rows_by_task(found, _first(name).name) for name, found in parts.items()}
    known = {f"{task}/{row.method}": row for tasks in rows.values() for task, own in tasks.items() for row in own}
    lines += in_short(store.notes, ABLATIONS, {**quoted, **known})
    return Page(name=ABLATIONS, lines=lines, pictures=tuple(pictures))


def _whole(parts: Mapping[str, Collection]) -> dict[str, Collection]:
    """Suites' results; where one has not run its first method on a task, those of another that has the same settings.

    All six start from the paper's own settings, so that these need to be run but once.
    """
    return {name: Collection([*own.results, *_run_elsewhere(name, parts)]) for name, own in parts.items()}


def _run_elsewhere(name: str, parts: Mapping[str, Collection]) -> list[Result]:
    first, own = _first(name), parts[name]
    lengths = {(result.task, result.steps) for result in own.results if own.cell(result.task, first.name) is None}
    found: dict[str, Result] = {}
    for other, results in parts.items():
        same = [method.name for method in methods_of(read_suite(other)).values() if method.content() == first.content()]
        for result in results.results:
            if result.method in same and (result.task, result.steps) in lengths:
                note = f"run as `{result.method}`, which has the same settings"
                taken = dataclasses.replace(result, method=first.name, notes=(*result.notes, note))
                found.setdefault(result.task, taken)
    return list(found.values())


def _section(store: Store, name: str, found: Collection) -> tuple[list[str], Picture]:
    methods = methods_of(read_suite(name))
    order = [own for own in methods if own in found.methods]
    order += [own for own in found.methods if own not in methods]
    cells = cells_of(found)
    variants = {
        method: {task: cells[task, method] for task in found.tasks if (task, method) in cells} for method in order
    }
    seeds = _seeds(found, order)
    reference = {task: _authors(store.reference.get(task, {}), methods) for task in seeds}
    picture = Picture(
        f"{name}.png",
        digest(name, [[task, curves_drawn(own)] for task, own in seeds.items()], reference),
        lambda: ablation_grid({name: seeds}, reference=reference),
    )
    final = _with_paper(ablation_table("Final return, mean ± standard error", variants), store.paper.get(name, {}))
    area = ablation_table("Area under the learning curve, mean ± standard error", variants, area_entry)
    caption = "Return of evaluations, mean ± standard error over seeds. Dashed: the authors' logged curves."
    lines = [f"## {suites()[name]}", "", *picture.markdown(caption), final.to_markdown(), area.to_markdown()]
    return [*lines, *_closing(found.results)], picture


def plan_rows(store: Store, name: str) -> dict[str, list[Row]]:
    """The rows of a plan's page by task: its methods in its order, then results that it no longer has a method for."""
    plan, group, both = store.plans[name], store.groups[name], _with_main(store, name)
    order = list(methods_of(plan))
    tasks = [task for task in dict.fromkeys(cell.task for cell in plan.cells) if task in group.tasks]
    tasks += [task for task in group.tasks if task not in tasks]
    names = order + [own for own in group.methods if own not in order]
    found = {task: [own for method in names if (own := both.cell(task, method))] for task in tasks}
    return {task: rows_of(own, base=order[0]) for task, own in found.items()}


def plan_page(
    store: Store, name: str, about: str, rows: Mapping[str, list[Row]], quoted: Mapping[str, Row]
) -> Page | None:
    """The page of a plan: its first method, and others that change one thing in it; None without results.

    Its note may quote rows of all other pages too, as TASK/METHOD, of tasks and methods that the plan has not.
    """
    if not rows:
        return None
    base, *others = methods_of(store.plans[name])
    known = [own for own in others if own in built_in_methods()]
    beside = [f"`{own}` (the default)" if own == "sasr" else f"`{own}`" for own in known]
    but = f", but for {', '.join(beside)}, to compare with" if beside else ""
    lines = [
        f"# {about}",
        "",
        f"`results/plans/{name}.toml`: every row changes in `{base}` what its name says{but}.",
        "",
    ]
    both = _with_main(store, name)
    pictures = []
    for task, lot in rows.items():
        table = method_table(lot, title="Final and over the whole run", base=base)
        lines += [f"## {task}", ""]
        changes = {row.method: _pair(both, task, base, row.method) for row in lot if row.method != base}
        drawn = {own: pair for own, pair in changes.items() if len(pair) == 2}
        if drawn:
            pictures.append(_changes_picture(f"{file_name(name)}-{file_name(task)}", drawn))
            lines += pictures[-1].markdown(
                f"Return of evaluations, mean ± standard error over seeds: `{base}`, changed."
            )
        lines += [table.to_markdown(), *_closing([row.result for row in lot])]
    own = {f"{task}/{row.method}": row for task, lot in rows.items() for row in lot}
    lines += in_short(store.notes, file_name(name), {**quoted, **own})
    return Page(name=file_name(name), lines=lines, pictures=tuple(pictures))


def _with_main(store: Store, name: str) -> Collection:
    """A plan's results; its built-in methods are the main comparison's, unless the plan's own folder has them."""
    order = methods_of(store.plans[name])
    return Collection([*store.groups[name].results, *(own for own in store.main.results if own.method in order)])


def _changes_picture(name: str, changes: Mapping[str, Mapping[str, Sequence[SeedResult]]]) -> Picture:
    data = digest(name, [[own, curves_drawn(pair)] for own, pair in changes.items()])
    return Picture(f"{name}.png", data, lambda: change_grid(changes))


def _pair(found: Collection, task: str, base: str, method: str) -> dict[str, Sequence[SeedResult]]:
    cells = [(name, found.cell(task, name)) for name in (base, method)]
    drawn = {name: [seed for seed in own.seeds if seed.steps] for name, own in cells if own}
    return {name: seeds for name, seeds in drawn.items() if seeds}


def _seeds(found: Collection, order: Sequence[str]) -> Seeds:
    cells = {task: [(method, found.cell(task, method)) for method in order] for task in found.tasks}
    drawn = {
        task: {method: [seed for seed in own.seeds if seed.steps] for method, own in row if own}
        for task, row in cells.items()
    }
    return {
        task: {name: seeds for name, seeds in row.items() if seeds} for task, row in drawn.items() if any(row.values())
    }


def _authors(curves: Mapping[str, Reference], methods: Mapping[str, Method]) -> dict[str, Reference]:
    names = {variant: authors_name(own, curves) for variant, own in methods.items()}
    return {variant: curves[name] for variant, name in names.items() if name in curves}


def _with_paper(table: Table, paper: Mapping[str, Any]) -> Table:
    """The paper's figures below each task's own."""
    rows = []
    for row in table.rows:
        rows.append(row)
        task = str(row[0].value)
        if task in paper:
            figures = [paper[task].get(name, (float("nan"), float("nan"))) for name in table.columns[1:]]
            digits = digits_for(max(abs(mean) for mean, _ in paper[task].values()))
            told = (Entry(float(mean), float(error), digits=digits) for mean, error in figures)
            rows.append((Entry(f"{task}, paper"), *told))
    return dataclasses.replace(table, rows=tuple(rows))


def _rows_by_task(found: Collection, base: str) -> dict[str, list[Row]]:
    return {
        task: rows_of([own for name in found.methods if (own := found.cell(task, name))], base=base)
        for task in found.tasks
    }


def _first(suite: str) -> Method:
    return next(iter(methods_of(read_suite(suite)).values()))


def _closing(results: Sequence[Result]) -> list[str]:
    odd = gaps_and_remarks(results)
    missing = ["What is missing or odd:", "", *odd, ""] if odd else []
    return [*missing, "Where the figures are from:", "", *provenance(results)]
