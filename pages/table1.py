"""The paper's Table 1 beside ours: what the suite `table1` asks for, as far as it was run for as many steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pages.markdown import Block, Blocks, Picture, details, digest, picture
from pages.rows import BASE, DEFAULT, PAPERS_BASE, PAPERS_DEFAULT, marks, marks_explained, rows_of, sources
from pages.store import MAIN_SUITE, Store
from sasr.experiments.plan import GridRun
from sasr.experiments.plan_file import read_suite
from sasr.report import figures
from sasr.report.read import Collection, Reference, family
from sasr.report.seeds import SeedResult
from sasr.report.stats import area_under_curve
from sasr.report.store import Result, cut_at
from sasr.report.summary import Summary, statistics_of, summarise
from sasr.report.tables import Entry, Table, aggregate_table, area_entry, digits_for, final_entry, table_by_task

_PAPERS_AGENT = (PAPERS_DEFAULT, "sasr-authors", PAPERS_BASE)
"""Methods with the paper's agent: measured, but no part of a row that has ours."""
_NO_ROW = "*No row is complete yet. What is said over all tasks is said of complete rows alone.*"


@dataclass(frozen=True)
class Table1:
    """The runs of the suite, and the results that fill them."""

    plan: Sequence[GridRun]
    results: Mapping[tuple[str, str], Result]
    """By task and method; seeds that the suite asks for and that were not run are missing in them."""
    stored: Sequence[Result]
    """What they were made of."""
    others: Sequence[Result]
    """Of the same tasks and methods, but with the paper's agent or for fewer steps."""

    @property
    def steps(self) -> dict[str, int]:
        """Steps of each task, in the suite's order."""
        return {run.task: run.steps for run in self.plan}

    @property
    def methods(self) -> list[str]:
        """The suite's methods in its order."""
        return list(dict.fromkeys(run.method.name for run in self.plan))

    @property
    def complete(self) -> list[str]:
        """Tasks on which every method has run all of its seeds to the end."""
        complete = []
        for task in self.steps:
            row = [self.results.get((task, method)) for method in self.methods]
            if all(result is not None and result.finished for result in row):
                complete.append(task)
        return complete


def table1_of(store: Store) -> Table1:
    """The results of the suite that are in a store, or of another plan: as long, or the first steps of longer runs."""
    plan = read_suite(MAIN_SUITE).runs
    results: dict[tuple[str, str], Result] = {}
    stored: list[Result] = []
    for run in plan:
        result = store.groups[MAIN_SUITE].result(run.task, run.method.name)
        if result is None:
            result = store.main.result(run.task, run.method.name)
        if result is not None and _goes_through(result, run.steps):
            stored.append(result)
            if result.steps > run.steps:
                result = cut_at(result, run.steps)
            planned = tuple(sorted({*result.planned, *run.seeds}))
            results[run.task, run.method.name] = replace(result, planned=planned)
    table1 = Table1(plan, _alike_at_the_end(results), stored, ())
    names = [*table1.methods, *_PAPERS_AGENT]
    others = []
    for task in table1.steps:
        for name in names:
            result = store.main.result(task, name)
            if result is not None and (task, name) not in results:
                others.append(result)
    return replace(table1, others=others)


def _goes_through(result: Result, steps: int) -> bool:
    """Whether a result ends at a step, or all of its seeds were evaluated there."""
    longer = result.steps > steps and all(steps in seed.steps for seed in result.seeds)
    return result.steps == steps or longer


def _alike_at_the_end(results: Mapping[tuple[str, str], Result]) -> dict[tuple[str, str], Result]:
    """The same kind of return for a whole row: the curves' last points where some have no final evaluation."""
    unlike = {task for (task, _), result in results.items() if not all(seed.final for seed in result.seeds)}
    alike = {}
    for (task, method), result in results.items():
        if task in unlike and all(seed.steps for seed in result.seeds):
            seeds = [replace(seed, final=seed.returns[-1:], final_success=math.nan) for seed in result.seeds]
            result = replace(result, seeds=tuple(seeds))
        alike[task, method] = result
    return alike


def blocks_of(store: Store) -> Blocks:
    """The parts of the page about Table 1."""
    table1 = table1_of(store)
    paper: Mapping[str, Mapping[str, float]] = store.paper.get(MAIN_SUITE, {})
    return {
        f"table: {MAIN_SUITE}": lambda: Block(beside_paper(table1, paper).to_markdown()),
        f"table: {MAIN_SUITE} area": lambda: Block(areas(table1).to_markdown()),
        f"table: {MAIN_SUITE} measured": lambda: Block(measured(table1, paper).to_markdown()),
        f"table: {MAIN_SUITE} over all tasks": lambda: _over_all_tasks(table1),
        f"picture: {MAIN_SUITE}": partial(_curves, table1, store.reference),
        f"picture: {MAIN_SUITE} intervals": lambda: _aggregate_picture(table1, "intervals"),
        f"picture: {MAIN_SUITE} profiles": lambda: _aggregate_picture(table1, "profiles"),
        f"sources: {MAIN_SUITE}": lambda: Block(details("Where the figures are from", _sources(table1))),
    }


def beside_paper(table1: Table1, paper: Mapping[str, Mapping[str, float]]) -> Table:
    """Our row of each task above the paper's; an incomplete row of ours is marked and not ranked."""
    statistics = statistics_of(Collection(list(table1.results.values())))
    ours = table_by_task("Final return", list(table1.steps), table1.methods, statistics, final_entry)
    rows = []
    for row, (task, steps) in zip(ours.rows, table1.steps.items(), strict=True):
        name = row[0]._replace(value=f"{task}, {steps:,} steps")
        rows += [(name, *row[1:]), _paper_row(task, table1.methods, paper.get(task, {}))]
    extent = f"{len(table1.results)} of {len(table1.plan)} cells are measured, {len(table1.complete)} of "
    extent += f"{len(table1.steps)} rows are complete."
    ours_is = "Ours: mean ± standard error over seeds, of a final evaluation; of the last one of the curve where runs "
    ours_is += "were longer or stopped. Paper: the mean that its Table 1 prints."
    notes = (extent, *ours.notes, ours_is)
    return replace(ours, rows=tuple(rows), notes=notes)


def areas(table1: Table1) -> Table:
    """The areas under the curves of every task with a result."""
    results = list(table1.results.values())
    tasks = list(dict.fromkeys(result.task for result in results))
    statistics = statistics_of(Collection(results))
    return table_by_task("Area under the curve of evaluations", tasks, table1.methods, statistics, area_entry)


def measured(table1: Table1, paper: Mapping[str, Mapping[str, float]]) -> Table:
    """Every result, with the agent that it has and whether it is in its row."""
    rows = []
    for task, steps in table1.steps.items():
        everything = [*table1.results.values(), *table1.others]
        for row in rows_of([own for own in everything if own.task == task], base=BASE, paper=paper.get(task)):
            in_row = row.method in table1.methods and row.result.steps == steps
            rows.append(
                (
                    Entry(task),
                    Entry(row.method, mark=marks(row.statistics)),
                    Entry(agent_in_words(row.result.config)),
                    Entry(f"{row.result.steps:,}"),
                    Entry(str(len(row.statistics.scores))),
                    Entry(row.statistics.mean, row.statistics.error, digits=row.digits),
                    Entry(row.paper, digits=row.digits),
                    Entry("yes" if in_row else "no"),
                )
            )
    columns = ("task", "method", "agent", "steps", "seeds", "final, mean ± s.e.", "paper", "in the row")
    everyone = Collection([*table1.results.values(), *table1.others])
    notes = marks_explained(_rows(everyone), "see below") if rows else ("Nothing is measured yet.",)
    return Table(title="What is measured, and with which agent", columns=columns, rows=tuple(rows), notes=notes)


def agent_in_words(config: Mapping[str, Any]) -> str:
    """The agent of a result by its stored settings.

    >>> agent_in_words({"agent": "sac", "agent_config": {"critic_norm": "layer", "n_step": 3}})
    'SAC, normalised critics, 3-step returns'
    >>> agent_in_words({"agent": "sac", "agent_config": {}})
    'SAC, plain critics'
    """
    settings = config.get("agent_config") or {}
    words = [str(config.get("agent", "unknown")).upper().replace("_", " ")]
    if words != ["PPO"]:
        plain = settings.get("critic_norm", "none") == "none"
        words.append("plain critics" if plain else "normalised critics")
    if settings.get("n_step", 1) > 1:
        words.append(f"{settings['n_step']}-step returns")
    return ", ".join(words)


def _paper_row(task: str, methods: Sequence[str], figures_of_paper: Mapping[str, float]) -> tuple[Entry, ...]:
    values = figures_of_paper.values()
    best = max(values, default=0.0)
    only = list(values).count(best) == 1  # of equals none is best
    digits = digits_for(max((abs(value) for value in values), default=0.0))
    entries = [Entry(f"{task}, paper")]
    for method in methods:
        if method in figures_of_paper:
            value = figures_of_paper[method]
            entries.append(Entry(value, digits=digits, best=only and value == best))
        else:
            entries.append(Entry())
    return tuple(entries)


def _rows(found: Collection) -> list[Any]:
    rows = []
    for task in found.tasks:
        rows += rows_of([own for own in found.results if own.task == task], base=BASE)
    return rows


# ------------------------------------------------------------- over all tasks


def _in_complete_rows(table1: Table1) -> list[Result]:
    return [table1.results[task, method] for task in table1.complete for method in table1.methods]


def _summary(table1: Table1) -> Summary | None:
    """Of complete rows; None where there is none."""
    results = _in_complete_rows(table1)
    if not results:
        return None
    return summarise(Collection(results))


def _over_all_tasks(table1: Table1) -> Block:
    """Methods over all tasks, by their final returns and by the areas under their curves."""
    summary = _summary(table1)
    if summary is None:
        return Block(_NO_ROW)
    final = replace(aggregate_table(summary), title="Final return over all tasks")
    by_area = summarise(Collection(list(map(_scored_by_area, _in_complete_rows(table1)))))
    area = replace(aggregate_table(by_area), title="Area under the curve over all tasks")
    rows = f"Complete rows: {', '.join(summary.tasks)}; {len(summary.tasks)} of {len(table1.steps)}."
    return Block(f"{final.to_markdown()}\n{area.to_markdown()}\n{rows}")


def _scored_by_area(result: Result) -> Result:
    """The same with the mean height of each seed's curve in the place of its final returns."""
    seeds = []
    for seed in result.seeds:
        height = area_under_curve(seed.steps, seed.returns, until=result.steps)
        seeds.append(replace(seed, final=(height,)))
    return replace(result, seeds=tuple(seeds))


def _aggregate_picture(table1: Table1, name: str) -> Block:
    summary = _summary(table1)
    if summary is None:
        return Block(_NO_ROW)
    scores = [[task, method, statistics.scores.tolist()] for (task, method), statistics in summary.statistics.items()]
    data = digest(MAIN_SUITE, name, scores)
    if name == "intervals":
        drawn = Picture(f"{MAIN_SUITE}-intervals.png", data, lambda: figures.interval_bars(summary))
        return picture(drawn, "Interquartile mean of the normalised return over complete rows, with 95 % intervals.")
    profiles = {own.method: own.profile for own in summary.aggregates if own.profile}
    drawn = Picture(f"{MAIN_SUITE}-profiles.png", data, lambda: figures.profiles(profiles))
    return picture(drawn, "Performance profiles over complete rows: the share of runs above each normalised return.")


# -------------------------------------------------------------------- Figure 3


def _curves(table1: Table1, reference: Mapping[str, Mapping[str, Reference]]) -> Block:
    """A panel for each task; where SASR or SAC of a row is missing, others stand in."""
    panels: dict[str, dict[str, Sequence[SeedResult]]] = {task: {} for task in table1.steps}
    for (task, method), result in table1.results.items():
        panels[task][method] = _with_curve(result)
    for method in (DEFAULT, BASE, PAPERS_DEFAULT, PAPERS_BASE):
        for result in table1.others:
            if result.method == method and family(method) not in map(family, panels[result.task]):
                panels[result.task][method] = _with_curve(result)
    shown = {task: {name: seeds for name, seeds in panel.items() if seeds} for task, panel in panels.items()}
    theirs = {}
    for task in shown:
        theirs[task] = {name: curve for name, curve in reference.get(task, {}).items() if name in table1.methods}
    drawn = [[task, name, [[own.steps, own.returns] for own in seeds]] for task, name, seeds in _each(shown)]
    data = digest(MAIN_SUITE, list(shown), drawn, theirs, table1.methods)
    make = partial(figures.learning_curves, shown, reference=theirs, rivals=table1.methods)
    return picture(
        Picture(f"{MAIN_SUITE}.png", data, make),
        "Return of evaluations, mean ± standard error over seeds. Dashed: the authors' logged curves, returns in "
        "training, as far as our runs go, and in full where there are none.",
    )


def _with_curve(result: Result) -> list[SeedResult]:
    return [seed for seed in result.seeds if seed.steps]


def _each(
    panels: Mapping[str, Mapping[str, Sequence[SeedResult]]],
) -> Iterable[tuple[str, str, Sequence[SeedResult]]]:
    for task, methods in panels.items():
        for name, seeds in methods.items():
            yield task, name, seeds


def _sources(table1: Table1) -> list[str]:
    lines = sources([*table1.stored, *table1.others])
    return lines or ["Nothing is measured yet."]
