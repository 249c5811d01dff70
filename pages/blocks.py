"""Every table, picture and list of sources that a folder of results gives, by the name that its marker has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import Any

from pages.comparison import ALL, PAPERS_RIVALS, RIVALS, comparison_table, comparisons, rivals_table
from pages.markdown import Block, Blocks, Picture, details, digest, picture, table
from pages.pictures import ablation, chances, changes, over_authors
from pages.rows import (
    BASE,
    DEFAULT,
    PAPERS_BASE,
    PAPERS_DEFAULT,
    Row,
    base_of,
    best_mean,
    interval,
    marks,
    marks_explained,
    method_table,
    rows_of,
    sources,
)
from pages.store import Store, methods_of
from sasr.experiments.plan import Method, built_in_methods
from sasr.experiments.plan_file import read_suite, suites
from sasr.report.read import Collection, Reference
from sasr.report.seeds import SeedResult
from sasr.report.stats import Estimate
from sasr.report.store import Result, slug
from sasr.report.summary import statistics_of, summarise
from sasr.report.tables import Entry, Table, area_entry, cost_table, digits_for, final_entry, table_by_task
from sasr.tasks.catalogue import BY_NAME

BOUND = f"{PAPERS_BASE}, time limits terminal"
"""The plain agent as the released code has it: a time limit is taken for the task's end."""
ABLATIONS = tuple(name for name in sorted(suites(), key=lambda name: suites()[name]) if name.startswith("ablation-"))
"""In the paper's order."""
WITH_PAPERS_AGENT = (PAPERS_BASE, "sasr-paper", "sasr-authors")
OTHERS = "With the paper's agent, or an earlier default"
_CURVES = "Return of evaluations, mean ± standard error over seeds."
_BOUND_TITLE = "Plain SAC, and plain SAC that takes a time limit for the task's end"
Seeds = Mapping[str, Mapping[str, Sequence[SeedResult]]]
"""By task and method."""
Figures = Mapping[str, Mapping[str, float]]
Makers = dict[str, Callable[[], Block]]
"""Blocks that are yet to be made, by their markers' names."""


def blocks_of(store: Store) -> Blocks:
    """All blocks of a store; nothing is drawn before it is asked for."""
    rows = rows_by_task(store)
    blocks: Makers = {}
    if rows:
        blocks |= _comparison(store, rows)
    for name in store.plans:
        blocks |= _plan(store, name)
    suites_with_results = {name: group for name in ABLATIONS if (group := store.groups[name]).results}
    for name, group in _with_shared_runs(suites_with_results).items():
        blocks |= _ablation(store, name, group)
    blocks |= _costs(store)
    return blocks


def rows_by_task(store: Store) -> dict[str, list[Row]]:
    """The rows of the main comparison, tasks of the catalogue first and in its order."""
    order = {name: number for number, name in enumerate(BY_NAME)}
    tasks = sorted(store.main.tasks, key=lambda task: (order.get(task, len(order)), task))
    rows = {}
    for task in tasks:
        results = [result for name in store.main.methods if (result := store.main.result(task, name))]
        rows[task] = rows_of(
            results,
            base=base_of(result.method for result in results),
            threshold=store.thresholds.get(task, math.nan),
            curves=store.reference.get(task),
            paper=store.paper.get("table1", {}).get(task),
        )
    return rows


def _comparison(store: Store, rows: Mapping[str, list[Row]]) -> Makers:
    blocks: Makers = {
        "table: in short": lambda: Block(_in_short(rows)),
        "table: final": lambda: _overview(rows),
        "table: default against others": lambda: Block(rivals_table(rows, DEFAULT, RIVALS).to_markdown()),
        "table: paper's agent against others": lambda: Block(
            rivals_table(rows, PAPERS_DEFAULT, PAPERS_RIVALS).to_markdown()
        ),
        "picture: default against others": lambda: _rivals_picture(rows),
        "table: authors": lambda: Block(_authors_table(rows).to_markdown()),
        "table: time limits": lambda: _time_limits(rows),
    }
    for task, task_rows in rows.items():
        threshold = store.thresholds.get(task, math.nan)
        blocks[f"picture: {task}"] = partial(_task_picture, store, task, task_rows)
        base = base_of(row.method for row in task_rows)
        blocks[f"table: final {task}"] = partial(_task_block, task_rows, base, threshold)
        blocks[f"sources: {task}"] = partial(_sources, [row.result for row in task_rows])
    return blocks


def _in_short(rows: Mapping[str, list[Row]]) -> str:
    """The default beside plain SAC, with links from the repository's root."""
    lines = []
    for task, comparison in comparisons(rows, DEFAULT, BASE).items():
        if task not in rows:  # the line over all tasks
            continue
        areas = [interval(area, rows[task][0].digits) for area in comparison.areas]
        entries = [entry.text() for entry in (*areas, interval(comparison.better, 2))]
        lines.append([f"[{task}](docs/results/{slug(task)}.md)", f"{comparison.steps:,}", *entries])
    return table(["task", "steps", "SASR", "SAC", "P(SASR > SAC)"], lines)


def _time_limits(rows: Mapping[str, list[Row]]) -> Block:
    return Block(comparison_table(rows, PAPERS_BASE, BOUND, title=_BOUND_TITLE).to_markdown())


def _with_our_agent(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The methods of today on our agent, or on their own; and the others: the paper's agent, earlier defaults."""
    ours = [row for row in rows if row.method in built_in_methods() and row.method not in WITH_PAPERS_AGENT]
    return ours, [row for row in rows if row not in ours]


def _overview(rows: Mapping[str, list[Row]]) -> Block:
    ours: dict[str, list[Row]] = {}
    others: dict[str, list[Row]] = {}
    for task, task_rows in rows.items():
        ours[task], others[task] = _with_our_agent(task_rows)
    folded = details(OTHERS, [_final_table(others, OTHERS).to_markdown()])
    return Block(f"{_final_table(ours, 'Final return').to_markdown()}\n{folded}")


def _final_table(rows: Mapping[str, list[Row]], title: str) -> Table:
    lines = []
    for task, task_rows in rows.items():
        best = best_mean(task_rows)
        for index, row in enumerate(task_rows):
            statistics = row.statistics
            lines.append(
                (
                    Entry(f"[{task}]({slug(task)}.md)" if index == 0 else ""),
                    Entry(row.method, mark=marks(statistics)),
                    Entry(statistics.mean, statistics.error, digits=row.digits, best=statistics.mean == best),
                    interval(statistics.iqm, row.digits),
                    Entry(str(len(statistics.scores))),
                    Entry(f"{row.result.steps:,}"),
                )
            )
    return Table(
        title=title,
        columns=("task", "method", "mean ± s.e.", "IQM [95 %]", "seeds", "steps"),
        rows=tuple(lines),
        notes=marks_explained(list(chain.from_iterable(rows.values())), "the task's page says in what"),
    )


def _authors_table(rows: Mapping[str, list[Row]]) -> Table:
    """Where our runs with the released settings and of plain SAC end, beside the authors' curves there."""
    lines = []
    for task, task_rows in rows.items():
        by_name = {row.method: row for row in task_rows}
        pair = [by_name.get(name) for name in ("sasr-authors", PAPERS_BASE)]
        if not any(row and not math.isnan(row.authors) for row in pair):
            continue
        entries = []
        for row in pair:
            final = Entry(row.statistics.mean, row.statistics.error, digits=row.digits) if row else Entry()
            entries += [
                Entry(row.authors, digits=row.digits) if row else Entry(),
                final,
                row.trained if row else Entry(),
            ]
        lines.append((Entry(task), *entries))
    columns = ("task", "SASR: theirs", "ours", "in training", "SAC: theirs", "ours", "in training")
    return Table(title="The authors' curves and ours after as many steps", columns=columns, rows=tuple(lines))


def _rivals_picture(rows: Mapping[str, list[Row]]) -> Block:
    shown: dict[str, dict[str, Estimate]] = {}
    for ours, rivals in ((DEFAULT, RIVALS), (PAPERS_DEFAULT, PAPERS_RIVALS)):
        for rival, description in rivals.items():
            for task, comparison in comparisons(rows, ours, rival).items():
                if not math.isnan(comparison.better.low):
                    shown.setdefault(f"{ours}\nagainst {description}", {})[task] = comparison.better
    if not shown:
        return Block("*No task has two seeds of the default and of what it is compared with.*")
    drawn = Picture("guard.png", digest("guard", shown), lambda: chances(shown, [*rows, ALL]))
    return picture(
        drawn,
        "Chance that a seed of the default has the larger area under the curve, with its 95 % interval. "
        "Where the interval is on one side of 0.5 it is coloured: there the seeds tell the two apart.",
    )


def _task_picture(store: Store, task: str, task_rows: Sequence[Row]) -> Block:
    begun = [row for row in task_rows if any(seed.steps for seed in row.result.seeds)]
    ours, others = ({row.method: row.result.seeds for row in rows} for rows in _with_our_agent(begun))
    authors = _authors_beside(store.reference.get(task, {}), {**others, **ours})
    data = digest("over authors", task, _drawn(ours), _drawn(others), authors)
    caption = "Return of evaluations, mean ± standard error over seeds."
    if authors:
        caption += " Dashed: the authors' logged curves, returns in training, in the colour of their method."
    drawn = Picture(f"{slug(task)}.png", data, lambda: over_authors(ours, others, authors, title=task))
    return picture(drawn, caption)


def _authors_beside(curves: Mapping[str, Reference], methods: Mapping[str, object]) -> dict[str, Reference]:
    """The authors' curves of methods that are shown, each under the one method that it belongs to most."""
    beside = {}
    for name, curve in curves.items():
        # Theirs is the released code: its preset comes first, then the method's own name.
        wanted = (f"{name}-authors", name, f"{name}-paper")
        if match := next((method for method in wanted if method in methods), None):
            beside[match] = curve
    return beside


def _task_block(task_rows: Sequence[Row], base: str, threshold: float) -> Block:
    ours, others = _with_our_agent(task_rows)
    make = partial(method_table, base=base, threshold=threshold)
    parts = []
    if ours:
        parts.append(make(ours, title="With today's agent").to_markdown())
    if not math.isnan(threshold):
        parts.append(f"A seed has learned the task at a return of {threshold:g}.\n")
    if others:
        table_of_others = make(others, title=OTHERS).to_markdown()
        parts.append(details(OTHERS, [table_of_others]) if ours else table_of_others)
    return Block("\n".join(parts))


def _plan_block(rows: Sequence[Row], base: str) -> Block:
    return Block(method_table(rows, title="Over the whole run and at its end", base=base).to_markdown())


def _sources(results: Sequence[Result]) -> Block:
    return Block(details("Where the figures are from", sources(results)))


def _plan(store: Store, name: str) -> Makers:
    """A plan's methods on each of its tasks; its built-in ones are the main comparison's, unless it has its own."""
    plan, group = store.plans[name], store.groups[name]
    order = list(methods_of(plan))
    names = order + [method for method in group.methods if method not in order]
    both = Collection([*group.results, *(result for result in store.main.results if result.method in order)])
    planned = dict.fromkeys(run.task for run in plan.runs)
    own = [method for method in order if method not in built_in_methods()]
    tasks = [task for task in planned if any(both.result(task, method) for method in own)]
    tasks += [task for task in group.tasks if task not in tasks]
    blocks: Makers = {}
    for task in tasks:
        results = {method: result for method in names if (result := both.result(task, method))}
        task_rows = rows_of(list(results.values()), base=order[0])
        blocks[f"table: {name} {task}"] = partial(_plan_block, task_rows, order[0])
        blocks[f"sources: {name} {task}"] = partial(_sources, list(results.values()))
        pairs = _changes(results, order[0])
        if pairs:
            blocks[f"picture: {name} {task}"] = partial(_changes_picture, f"{slug(name)}-{slug(task)}", order[0], pairs)
    return blocks


def _changes(results: Mapping[str, Result], base: str) -> Seeds:
    """Curves of the base beside those of each other method, where both have any."""
    curves = _curves(results)
    if base not in curves:
        return {}
    others = [method for method in curves if method != base]
    return {method: {base: curves[base], method: curves[method]} for method in others}


def _changes_picture(name: str, base: str, pairs: Seeds) -> Block:
    data = digest(name, [[method, _drawn(pair)] for method, pair in pairs.items()])
    return picture(Picture(f"{name}.png", data, lambda: changes(pairs)), f"{_CURVES[:-1]}: `{base}`, changed.")


@cache
def _suite(name: str) -> dict[str, Method]:
    return methods_of(read_suite(name))


def _with_shared_runs(groups: Mapping[str, Collection]) -> dict[str, Collection]:
    """Suites' results; where one has not run its first method on a task, those of another that has the same settings.

    All six start from the paper's own settings, so that these need to be run but once.
    """
    completed = {}
    for name, group in groups.items():
        completed[name] = Collection([*group.results, *_run_elsewhere(name, groups)])
    return completed


def _run_elsewhere(name: str, groups: Mapping[str, Collection]) -> list[Result]:
    first = next(iter(_suite(name).values()))
    here = groups[name]
    lacking = {(result.task, result.steps) for result in here.results if not here.result(result.task, first.name)}
    taken: dict[str, Result] = {}
    for other, group in groups.items():
        same = [method.name for method in _suite(other).values() if method.content() == first.content()]
        for result in group.results:
            if result.method in same and (result.task, result.steps) in lacking:
                note = f"run as `{result.method}`, which has the same settings"
                renamed = replace(result, method=first.name, notes=(*result.notes, note))
                taken.setdefault(result.task, renamed)
    return list(taken.values())


def _ablation(store: Store, name: str, group: Collection) -> Makers:
    methods = _suite(name)
    order = [method for method in methods if method in group.methods]
    order += [method for method in group.methods if method not in methods]
    statistics = statistics_of(group)
    final = table_by_task("Final return, mean ± standard error", group.tasks, order, statistics, final_entry)
    title = "Area under the learning curve, mean ± standard error"
    area = table_by_task(title, group.tasks, order, statistics, area_entry)
    final = _with_paper(final, store.paper.get(name, {}))
    return {
        f"picture: {name}": partial(_ablation_picture, store, name, group, order, methods),
        f"table: {name}": lambda: Block(f"{final.to_markdown()}\n{area.to_markdown()}"),
        f"sources: {name}": partial(_sources, group.results),
    }


def _ablation_picture(
    store: Store, name: str, group: Collection, order: Sequence[str], methods: Mapping[str, Method]
) -> Block:
    panels = {}
    for task in group.tasks:
        curves = _curves({method: result for method in order if (result := group.result(task, method))})
        if curves:
            panels[task] = curves
    reference = {task: _authors_variants(store.reference.get(task, {}), methods) for task in panels}
    data = digest(name, [[task, _drawn(curves)] for task, curves in panels.items()], reference)
    drawn = Picture(f"{name}.png", data, lambda: ablation(panels, reference))
    return picture(drawn, f"{_CURVES} Dashed: the authors' logged curves.")


def _authors_variants(curves: Mapping[str, Reference], methods: Mapping[str, Method]) -> dict[str, Reference]:
    """The authors' curves by our names: of a variant, or of sasr for the method without changes."""
    by_name = {}
    for name, method in methods.items():
        unchanged = method.shaper == "sasr" and not method.shaper_settings
        theirs = name if name in curves else "sasr"
        if theirs in curves and (name in curves or unchanged):
            by_name[name] = curves[theirs]
    return by_name


def _with_paper(final: Table, paper: Mapping[str, Any]) -> Table:
    """The paper's figures below each task's own."""
    rows = []
    for row in final.rows:
        rows.append(row)
        task = str(row[0].value)
        if task in paper:
            figures = [paper[task].get(name, (math.nan, math.nan)) for name in final.columns[1:]]
            digits = digits_for(max(abs(mean) for mean, _ in paper[task].values()))
            entries = (Entry(float(mean), float(error), digits=digits) for mean, error in figures)
            rows.append((Entry(f"{task}, paper"), *entries))
    return replace(final, rows=tuple(rows))


def _costs(store: Store) -> Makers:
    """The paper's three cost tables, with our rows above theirs where a suite has been run."""
    hours: Figures = store.paper.get("hours", {})
    shares = {}
    for task, row in hours.items():
        shares[task] = {name: value / row["sac"] for name, value in row.items()}
    time = store.paper.get("time", {})
    memory = store.paper.get("memory", {})
    title = "Training time of a step with random Fourier features and with exact kernel sums, sac = 1"
    blocks: Makers = {
        "table: cost time": partial(_beside, "Training time of a step, sasr = 1", store, "cost", "time", "sasr", time),
        "table: cost memory": partial(
            _beside, "Peak memory of a run, sasr = 1", store, "cost", "memory", "sasr", memory
        ),
        "table: rff-on-off": partial(_beside, title, store, "rff-on-off", "time", "sac", shares),
    }
    for suite in ("cost", "rff-on-off"):
        if store.groups[suite].results:
            blocks[f"sources: {suite}"] = partial(_sources, store.groups[suite].results)
    return blocks


def _beside(title: str, store: Store, suite: str, what: str, base: str, paper: Figures) -> Block:
    """A table by tasks with our row, where there is one, above the paper's."""
    # Cost tables are the paper's, and so are their names: what was measured had the paper's agent.
    names = {PAPERS_DEFAULT: "sasr", PAPERS_BASE: "sac"}
    measured = store.groups[suite].results
    group = Collection([replace(result, method=names.get(result.method, result.method)) for result in measured])
    order = list(_suite(suite))
    ours: dict[str, dict[str, Entry]] = {}
    notes: tuple[str, ...] = (f"Not measured here yet: `sasr compare {suite}`.",)
    if group.results:
        costs = cost_table(summarise(group), what, base=base)
        notes = costs.notes
        order += [name for name in costs.columns[1:] if name not in order]
        for row in costs.rows:
            ours[str(row[0].value)] = dict(zip(("", *costs.columns[1:]), row, strict=True))
    rows = []
    for task in dict.fromkeys([*ours, *paper]):
        if task in ours:
            mark = ours[task][""].mark
            measured_row = [ours[task].get(name, Entry()) for name in order]
            rows.append((Entry(task, mark=mark), *measured_row))
        if task in paper:
            paper_row = [Entry(paper[task].get(name, math.nan)) for name in order]
            rows.append((Entry(f"{task}, paper"), *paper_row))
    return Block(Table(title=title, columns=("task", *order), rows=tuple(rows), notes=notes).to_markdown())


def _curves(results: Mapping[str, Result]) -> dict[str, list[SeedResult]]:
    """Seeds that have a curve, of methods that have such a seed."""
    curves = {}
    for method, result in results.items():
        seeds = [seed for seed in result.seeds if seed.steps]
        if seeds:
            curves[method] = seeds
    return curves


def _drawn(methods: Mapping[str, Sequence[SeedResult]]) -> list[Any]:
    """What a digest of learning curves is taken of."""
    drawn = []
    for name, seeds in methods.items():
        curves = [[seed.steps, seed.returns] for seed in seeds]
        drawn.append([name, curves])
    return drawn
