"""`sasr report`: an HTML report on runs and results."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from sasr.experiments.plan import built_in_methods
from sasr.files import check_writable
from sasr.report import figures as drawing
from sasr.report.page import need_page, write_page
from sasr.report.read import Collection, References, StatesOfRun, collect, joined_states, read_reference
from sasr.report.store import slug
from sasr.report.summary import Summary, summarise
from sasr.report.tables import report_tables
from sasr.settings import check_seed
from sasr.terminal import Terminal


def report(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")],
    *,
    out: Path | None = None,
    reference: Path | None = None,
    figures: Path | None = None,
    title: str = "",
    seed: int = 0,
    open: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Write an HTML report on runs and results, one file that works offline.

    Args:
        folder: A results store, a run folder, or a folder with any number of both.
        out: The HTML file; None is DIR/report.html.
        reference: CSV file with curves to compare with; its columns are task, variant, step, mean, spread.
        figures: Also write figures (PNG, PDF) and tables (Markdown, LaTeX, CSV) into this folder.
        title: Headline of the report.
        seed: Seed of the bootstrap intervals.
        open: Open the report in the browser.
    """
    check_seed(seed)
    path = out or folder / "report.html"
    if folder.is_dir() or out:  # otherwise DIR is wrong, and must not be made here
        check_writable(path.parent)
    if figures:
        check_writable(figures, flag="--figures")
    need_page()  # before the work, not after it
    curves = read_reference(reference) if reference else None
    console = Terminal()
    with console.status("reading"):
        collection = collect(folder, leave_out=figures)
        summary = summarise(collection, seed=seed)
    with console.status("writing the page"):
        command = shlex.join(["sasr", *sys.argv[1:]])
        write_page(collection, path, title=title, command=command, reference=curves, summary=summary, seed=seed)
    if figures:
        with console.status("drawing"):
            write_figures(collection, summary, figures, reference=curves)
    _print_collection(collection, console)
    console.print_line(f"page: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if figures:
        console.print_line(f"figures and tables: {figures}")
    if open:
        webbrowser.open(path.resolve().as_uri())


def write_figures(collection: Collection, summary: Summary, folder: Path, *, reference: References | None) -> None:
    """Write every figure and table of a report."""
    # Reference files may have variants of settings too: of what was not run, only whole methods are drawn.
    panels = drawing.panels_of(collection)
    drawn = {"curves": drawing.learning_curves(panels, reference=reference, rivals=[*built_in_methods()])}
    if summary.learned:
        drawn["intervals"] = drawing.interval_bars(summary)
        profiles = {method.method: method.profile for method in summary.aggregates if method.profile}
        drawn["profiles"] = drawing.profiles(profiles)
    drawn |= _state_figures(collection)
    for name, figure in drawn.items():
        drawing.save(figure, folder / name)
    for name, table in report_tables(summary).items():
        for suffix, text in ((".md", table.to_markdown()), (".tex", table.to_latex()), (".csv", table.to_csv())):
            (folder / f"{name}{suffix}").write_text(text, encoding="utf-8")


def _state_figures(collection: Collection) -> dict[str, Any]:
    """Figures of runs that logged visited states, by the names of their files."""
    drawn = {}
    by_task: dict[str, dict[str, StatesOfRun]] = {}
    runs_with_states = joined_states(collection.states)
    runs_with_states.sort(key=lambda run: collection.methods.index(run.method))
    for run in runs_with_states:
        if run.states.visits.size:
            by_task.setdefault(run.task, {})[run.method] = run
    for task, runs in by_task.items():
        drawn[f"visits-{slug(task)}"] = _visit_figure(runs)
    for run in runs_with_states:
        if np.isfinite(run.states.bonus).all() and run.states.bonus.size:
            result = collection.result(run.task, run.method)
            drawn[f"bonus-{slug(run.task)}-{slug(run.method)}"] = drawing.bonus_along_feature(
                steps=run.states.steps.tolist(),
                feature=run.states.feature.reshape(len(run.states.steps), -1),
                bonus=run.states.bonus.reshape(len(run.states.steps), -1),
                name=run.axes[0],
                seeds=result.seeds if result else (),
            )
    return drawn


def _visit_figure(runs: Mapping[str, StatesOfRun]) -> Any:
    """Visited states of the methods on one task, in periods that all of them have."""
    first = next(iter(runs.values()))
    periods = min(len(run.states.steps) for run in runs.values())
    return drawing.visit_density(
        {method: run.density[:periods] for method, run in runs.items()},
        x=first.states.x,
        y=first.states.y,
        steps=[0, *first.states.steps[:periods].tolist()],
        axes=first.axes,
    )


def _print_collection(collection: Collection, console: Terminal) -> None:
    """Print what the report has, and what is incomplete or could not be read."""
    seeds = sum(len(result.seeds) for result in collection.results)
    tasks, methods = len(collection.tasks), len(collection.methods)
    console.print_line(f"{tasks} task(s), {methods} method(s), {seeds} run(s)")
    for result in collection.results:
        if result.gaps:
            console.print_line(f"incomplete: {result.method} on {result.task}: {'; '.join(result.gaps)}", "yellow")
    for problem in collection.problems:
        console.print_line(f"left out: {problem.path} {problem.text}", "red")
