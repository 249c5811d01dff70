"""A look at every kind of run before any starts, and the table of `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.errors import ActionSpaceError
from sasr.experiments.estimate import Trial, kind_of_run
from sasr.experiments.job import Job, is_done
from sasr.experiments.plan import Cell, seeds_in_words
from sasr.experiments.view import span

T = TypeVar("T")


def for_each_kind(
    cells: Sequence[Cell], look: Callable[[Cell], T], console: Console, *, title: str
) -> tuple[dict[str, T], dict[str, ActionSpaceError]]:
    """What `look` returns for one cell of each kind of run, and whose agents cannot act; both by `Cell.kind`.

    Anything else that is wrong with a kind is an error that names it.
    """
    by_kind: dict[str, list[Cell]] = {}
    for cell in cells:
        with _naming(cell):
            by_kind.setdefault(kind_of_run(cell), []).append(cell)
    results: dict[str, T] = {}
    cannot_act: dict[str, ActionSpaceError] = {}
    with _progress(console) as progress:
        bar = progress.add_task(title, total=len(by_kind))
        for alike in by_kind.values():
            first = alike[0]
            progress.update(bar, description=f"{title} {first.method.name} on {first.task}")
            try:
                with _naming(first):
                    result = look(first)
                results |= {cell.kind: result for cell in alike}
            except ActionSpaceError as error:
                cannot_act |= {cell.kind: error for cell in alike}
            progress.advance(bar)
    return results, cannot_act


@contextmanager
def _naming(cell: Cell) -> Iterator[None]:
    """Name the method and the task in an error about them."""
    try:
        yield
    except ActionSpaceError:
        raise
    except (ValueError, TypeError, LookupError, ImportError) as error:
        message = error.args[0] if error.args else error
        raise ValueError(f"{cell.method.name} on {cell.task}: {message}") from error


def print_estimate(jobs: Sequence[Job], trials: Mapping[str, Trial], at_once: int, console: Console) -> None:
    """Print the jobs with the time and memory that they take by the trials of their kinds."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    # The id of a cell begins with its task and its method: columns of their own would not fit a narrow terminal.
    table.add_column("cell", overflow="fold")
    table.add_column("seeds", no_wrap=True)
    for column in ("steps", "time", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    total = 0.0
    for job in jobs:
        cell, time, memory = job.cell, "done", ""
        if not is_done(job):
            trial = trials[cell.kind]
            seconds = trial.seconds(cell, final_episodes=job.final_episodes)
            total += seconds
            time, memory = span(seconds), f"{trial.footprint.of(cell) / 2**30:.2f} GiB"
        words = (cell.id, seeds_in_words(cell.seeds).removeprefix("seeds "))
        table.add_row(*map(Text, (*words, f"{cell.steps:,}", time, memory)))
    console.print(table)
    console.print(
        f"{len(jobs)} cells, about {span(total)} one after the other, {span(total / at_once)} with {at_once} at a "
        "time; from a short trial of each kind of run with one seed on this machine. Nothing was run.",
        highlight=False,
        soft_wrap=True,
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
    )
