"""Results of a grid, written into a results store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sasr.experiments.grid import Grid, Status
from sasr.experiments.plan import GridRun
from sasr.report.read import from_run, is_run, with_unique_names
from sasr.report.store import Result, cut_short, read_result, write_result
from sasr.terminal import Terminal


def save_results(grid: Grid, results: Path, console: Terminal, save_stopped: bool) -> None:
    """Write every complete result, and with `save_stopped` the common part of those that were stopped."""
    for path in write_complete(grid, results):
        console.print_line(f"saved: {path}")
    for digest, run in _unfinished(grid).items():
        line = f"not saved: {run.method.name} on {run.task}, which is not complete"
        if save_stopped and (result := _common_part(grid, digest)):
            line = _save_stopped(result, run, results)
        console.print_line(line, "yellow")


def write_complete(grid: Grid, results: Path) -> list[Path]:
    """Write one file for each task and method whose runs are all done."""
    unfinished = _unfinished(grid)
    done = [status for status in grid.of("done") if status.job.run.settings_digest not in unfinished]
    return [write_result(result, results) for result in _results_of(done)]


def _results_of(statuses: Sequence[Status]) -> list[Result]:
    return with_unique_names((from_run(status.job.folder), status.job.run.id) for status in statuses)


def _unfinished(grid: Grid) -> dict[str, GridRun]:
    """The runs that are not done, one for each settings digest."""
    unfinished = grid.of("waiting", "running", "failed", "stopped")
    return {status.job.run.settings_digest: status.job.run for status in unfinished}


def _save_stopped(result: Result, run: GridRun, results: Path) -> str:
    """Write the result of stopped runs, unless the store has more steps of it; returns a line about it."""
    path = results / result.file
    steps_in_store = 0
    if path.exists():
        steps_in_store = read_result(path).steps
    if steps_in_store >= result.steps:
        return f"not saved: {result.steps:,} steps of {path}, which has {steps_in_store:,}"
    return f"saved: {write_result(result, results)}, {result.steps:,} of {run.steps:,} steps"


def _common_part(grid: Grid, settings_digest: str) -> Result | None:
    """The steps that all seeds of a method reached; None if a run failed or has no metrics yet."""
    statuses = [status for status in grid.statuses.values() if status.job.run.settings_digest == settings_digest]
    for status in statuses:
        if status.state not in ("done", "stopped") or not is_run(status.job.folder):
            return None
    joined = _results_of(statuses)
    if len(joined) > 1:
        return None
    return cut_short(joined[0])
