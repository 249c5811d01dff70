"""`sasr report`: one page about runs and results."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from sasr.experiments.plan import built_in_methods
from sasr.files import check_writable
from sasr.report import figures as drawing
from sasr.report.page import plotly_script, write_page
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
    """Write one HTML page about runs and results, which opens from disk, offline.

    Args:
        folder: A results store, a run's folder, or a folder with any number of both in it.
        out: The HTML file; DIR/report.html where this is not given.
        reference: CSV file of curves to compare with: task, variant, step, mean, spread.
        figures: Also write figures (PNG, PDF) and tables (Markdown, LaTeX, CSV) into this folder.
        title: Headline of the page.
        seed: Of the bootstrap intervals: the same seed, the same intervals.
        open: Show the page in the browser.
    """
    check_seed(seed)
    path = out or folder / "report.html"
    if folder.is_dir() or out:  # otherwise the mistake is in the folder, and nothing is to be made there
        check_writable(path.parent)
    if figures:
        check_writable(figures)
    plotly_script()  # a missing package is told before the work, not after it
    curves = read_reference(reference) if reference else None
    console = Terminal()
    with console.status("reading"):
        found = collect(folder, leave_out=figures)
        summary = summarise(found, seed=seed)
    with console.status("writing the page"):
        command = shlex.join(["sasr", *sys.argv[1:]])
        write_page(found, path, title=title, command=command, reference=curves, summary=summary, seed=seed)
    if figures:
        with console.status("drawing"):
            write_figures(found, summary, figures, reference=curves)
    _print_found(found, console)
    console.print(Text(f"page: {path} ({path.stat().st_size / 1e6:.1f} MB)"), soft_wrap=True)
    if figures:
        console.print(Text(f"figures and tables: {figures}"), soft_wrap=True)
    if open:
        webbrowser.open(path.resolve().as_uri())


def write_figures(found: Collection, summary: Summary, folder: Path, *, reference: References | None) -> list[Path]:
    """Every figure and table of a report as files; their paths."""
    # Reference files may have variants of settings too: of what was not run, only whole methods are drawn.
    curves = drawing.learning_curves(drawing.panels_of(found), reference=reference, rivals=[*built_in_methods()])
    drawn = {"curves": curves}
    if summary.learned:
        drawn["intervals"] = drawing.interval_bars(summary)
        drawn["profiles"] = drawing.profiles({own.method: own.profile for own in summary.aggregates if own.profile})
    drawn |= _state_figures(found)
    written = []
    for name, figure in drawn.items():
        written += drawing.save(figure, folder / name)
    for name, table in report_tables(summary).items():
        for suffix, text in ((".md", table.to_markdown()), (".tex", table.to_latex()), (".csv", table.to_csv())):
            path = folder / f"{name}{suffix}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def _state_figures(found: Collection) -> dict[str, Any]:
    """Figures of runs that logged visited states, by the names of their files."""
    drawn = {}
    by_task: dict[str, dict[str, StatesOfRun]] = {}
    runs_with_states = sorted(joined_states(found.states), key=lambda run: found.methods.index(run.method))
    for run in runs_with_states:
        if run.states.visits.size:
            by_task.setdefault(run.task, {})[run.method] = run
    for task, runs in by_task.items():
        drawn[f"visits-{slug(task)}"] = _visit_figure(runs)
    for run in runs_with_states:
        if np.isfinite(run.states.bonus).all() and run.states.bonus.size:
            result = found.cell(run.task, run.method)
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


def _print_found(found: Collection, console: Console) -> None:
    """Print what is in the page, and what is incomplete or could not be read."""
    runs = sum(len(own.seeds) for own in found.results)
    tasks, methods = len(found.tasks), len(found.methods)
    console.print(f"{tasks} task(s), {methods} method(s), {runs} run(s)", highlight=False)
    for own in found.results:
        if own.gaps:
            console.print(
                Text(f"incomplete: {own.method} on {own.task}: {'; '.join(own.gaps)}", "yellow"), soft_wrap=True
            )
    for problem in found.problems:
        console.print(Text(f"left out: {problem.path} {problem.text}", "red"), soft_wrap=True)
