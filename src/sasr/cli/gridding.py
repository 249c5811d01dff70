"""What `sasr compare` does with its cells: try them, estimate them, or run them and save their results."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.experiments.estimate import Footprint, examine, measure
from sasr.experiments.grid import Grid, Status
from sasr.experiments.job import Job, is_done
from sasr.experiments.plan import Cell, seeds_in_words
from sasr.experiments.runners.protocol import Runner
from sasr.experiments.view import GridView, span
from sasr.report.read import told_apart
from sasr.report.runs import from_run, is_run
from sasr.report.store import Result, cut_short, read_result, write_result


def examine_all(cells: Sequence[Cell], console: Console) -> dict[str, Footprint]:
    """Make every kind of cell once, so that what can't work is told before anything runs."""
    kinds = {cell.kind: cell for cell in cells}
    found = {}
    with _progress(console) as progress:
        bar = progress.add_task("checking", total=len(kinds))
        for kind, cell in kinds.items():
            progress.update(bar, description=f"checking {cell.method.name} on {cell.task}")
            try:
                found[kind] = examine(cell)
            except (ValueError, TypeError, LookupError, ImportError) as error:
                raise ValueError(
                    f"{cell.method.name} on {cell.task}: {error.args[0] if error.args else error}"
                ) from error
            progress.advance(bar)
    return found


def estimate(jobs: Sequence[Job], at_once: int, console: Console) -> None:
    """Print the jobs with the time and memory that a short trial of each kind took."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("cell", "task", "method", "seeds"):
        table.add_column(column, no_wrap=column == "cell")
    for column in ("steps", "time", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    kinds = {(job.cell.kind, len(job.cell.seeds)): job for job in jobs}
    tried = {}
    with _progress(console) as progress:
        bar = progress.add_task("trying", total=len(kinds))
        for kind, job in kinds.items():
            progress.update(bar, description=f"trying {job.cell.method.name} on {job.cell.task}")
            tried[kind] = measure(job.cell, device=job.device, workers=job.workers, final_episodes=job.final_episodes)
            progress.advance(bar)
    total = 0.0
    for job in jobs:
        cell, took = job.cell, tried[job.cell.kind, len(job.cell.seeds)]
        done = is_done(job)
        total += 0.0 if done else took.seconds
        words = (cell.id, cell.task, cell.method.name, seeds_in_words(cell.seeds).removeprefix("seeds "))
        time = "done" if done else span(took.seconds)
        table.add_row(*map(Text, (*words, f"{cell.steps:,}", time, f"{took.bytes / 2**30:.2f} GiB")))
    console.print(table)
    console.print(
        f"{len(jobs)} cells, about {span(total)} one after the other, {span(total / at_once)} with {at_once} at a "
        "time; from a short trial on this machine. Nothing was run.",
        highlight=False,
        soft_wrap=True,
    )


def run_grid(
    grid: Grid, runner: Runner, out: Path, console: Console, results: Path | None, *, save_stopped: bool = False
) -> None:
    """Run what is left, save what is done, and exit with 1 or 130 where something failed or was stopped."""
    if grid.left:
        runner.check(grid.left)
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with GridView(grid, console) as view:
            if results is not None:
                grid.told = lambda status: _tell_and_save(grid, view, status, results)
            grid.run(runner)
    finally:
        signal.signal(signal.SIGTERM, before)
    failed, stopped = grid.of("failed"), grid.of("stopped")

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style), soft_wrap=True)

    done = len(grid.of("done"))
    say(f"{done} of {len(grid.statuses)} cells done: {out}")
    for status in failed:
        say(f"failed: {status.job.cell}: {status.why}; log: {status.job.log}", "bold red")
    if results is not None:
        _save(grid, results, console, save_stopped)
    if stopped:
        say(f"{len(stopped)} cells were stopped; give the same command again to go on", "yellow")
    if done:
        say(f"sasr report {out}")
    if failed or stopped:
        sys.exit(1 if failed else 130)


def _tell_and_save(grid: Grid, view: GridView, status: Status, results: Path) -> None:
    """Save with every cell that is done: a machine that is taken away before the last one takes nothing along."""
    if status.state == "done":
        _write(grid, results)
    view.told(status)


def _write(grid: Grid, results: Path) -> list[Path]:
    """Each task and method whose cells are all done, as one file."""
    unfinished = _unfinished(grid)
    jobs = [own.job for own in grid.of("done") if own.job.cell.kind not in unfinished]
    found = told_apart([from_run(job.folder) for job in jobs], [job.cell.id for job in jobs])
    return [write_result(result, results) for result in found]


def _unfinished(grid: Grid) -> dict[str, Cell]:
    return {own.job.cell.kind: own.job.cell for own in grid.statuses.values() if own.state != "done"}


def _save(grid: Grid, results: Path, console: Console, save_stopped: bool) -> None:
    for path in _write(grid, results):
        console.print(Text(f"saved: {path}"), soft_wrap=True)
    for kind, cell in _unfinished(grid).items():
        found = _so_far(grid, kind) if save_stopped else None
        line = f"not saved: {cell.method.name} on {cell.task}, which is not complete"
        if found is not None and (known := _steps_stored(results / found.file)) >= found.steps:
            line = f"not saved: {found.steps:,} steps of {results / found.file}, which has {known:,}"
        elif found is not None:
            line = f"saved: {write_result(found, results)}, {found.steps:,} of {cell.steps:,} steps"
        console.print(Text(line, "yellow"), soft_wrap=True)


def _steps_stored(path: Path) -> int:
    return read_result(path).steps if path.exists() else 0


def _so_far(grid: Grid, kind: str) -> Result | None:
    """What the cells of a kind have in common though some were stopped; None where one failed or has nothing yet."""
    own = [status for status in grid.statuses.values() if status.job.cell.kind == kind]
    if any(status.state not in ("done", "stopped") or not is_run(status.job.folder) for status in own):
        return None
    found = told_apart([from_run(status.job.folder) for status in own], [status.job.cell.id for status in own])
    return cut_short(found[0]) if len(found) == 1 else None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
    )


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
