"""Results of a grid, put into a store."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from sasr.experiments.grid import Grid
from sasr.experiments.plan import Cell
from sasr.report.read import from_run, is_run, told_apart
from sasr.report.store import Result, cut_short, read_result, write_result


def save_results(grid: Grid, results: Path, console: Console, save_stopped: bool) -> None:
    """Write every result that is complete, and with `save_stopped` those that were stopped as far as they came."""
    for path in write_complete(grid, results):
        console.print(Text(f"saved: {path}"), soft_wrap=True)
    for kind, cell in _unfinished(grid).items():
        result = _so_far(grid, kind) if save_stopped else None
        console.print(Text(_save_so_far(result, cell, results), "yellow"), soft_wrap=True)


def write_complete(grid: Grid, results: Path) -> list[Path]:
    """Each task and method whose cells are all done, as one file."""
    unfinished = _unfinished(grid)
    jobs = [status.job for status in grid.of("done") if status.job.cell.kind not in unfinished]
    complete = told_apart([from_run(job.folder) for job in jobs], [job.cell.id for job in jobs])
    return [write_result(result, results) for result in complete]


def _unfinished(grid: Grid) -> dict[str, Cell]:
    """A cell of each kind of which some cells are not done."""
    return {status.job.cell.kind: status.job.cell for status in grid.statuses.values() if status.state != "done"}


def _save_so_far(result: Result | None, cell: Cell, results: Path) -> str:
    """Write what was stopped, unless the store has more of it already; what was done, in words."""
    if result is None:
        return f"not saved: {cell.method.name} on {cell.task}, which is not complete"
    path = results / result.file
    stored = read_result(path).steps if path.exists() else 0
    if stored >= result.steps:
        return f"not saved: {result.steps:,} steps of {path}, which has {stored:,}"
    return f"saved: {write_result(result, results)}, {result.steps:,} of {cell.steps:,} steps"


def _so_far(grid: Grid, kind: str) -> Result | None:
    """What the cells of a kind have in common though some were stopped; None where one failed or has nothing yet."""
    statuses = [status for status in grid.statuses.values() if status.job.cell.kind == kind]
    if any(status.state not in ("done", "stopped") or not is_run(status.job.folder) for status in statuses):
        return None
    jobs = [status.job for status in statuses]
    joined = told_apart([from_run(job.folder) for job in jobs], [job.cell.id for job in jobs])
    return cut_short(joined[0]) if len(joined) == 1 else None
