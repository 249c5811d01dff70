"""The check of a grid's runs before any starts, and the table of `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.errors import ActionSpaceError
from sasr.experiments.estimate import Trial, cost_class
from sasr.experiments.job import Job, is_done
from sasr.experiments.plan import GridRun, seeds_in_words
from sasr.experiments.view import span
from sasr.terminal import Terminal

T = TypeVar("T")


def once_per_class(
    runs: Sequence[GridRun], examine: Callable[[GridRun], T], console: Terminal, *, title: str
) -> tuple[dict[str, T], dict[str, ActionSpaceError]]:
    """Call `examine` for one run of each cost class; returns results, and errors of agents that cannot act.

    Both are by `GridRun.settings_digest`. Any other error is raised with the method's and the task's name.
    """
    by_class: dict[str, list[GridRun]] = {}
    for run in runs:
        with _naming(run):
            by_class.setdefault(cost_class(run), []).append(run)
    results: dict[str, T] = {}
    cannot_act: dict[str, ActionSpaceError] = {}
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with console.progress(*columns) as progress:
        bar = progress.add_task(title, total=len(by_class))
        for alike in by_class.values():
            first = alike[0]
            progress.update(bar, description=f"{title} {first.method.name} on {first.task}")
            try:
                with _naming(first):
                    result = examine(first)
                results |= {run.settings_digest: result for run in alike}
            except ActionSpaceError as error:
                cannot_act |= {run.settings_digest: error for run in alike}
            progress.advance(bar)
    return results, cannot_act


@contextmanager
def _naming(run: GridRun) -> Iterator[None]:
    """Name the method and the task in an error about them."""
    try:
        yield
    except ActionSpaceError:
        raise
    except (ValueError, TypeError, LookupError, ImportError) as error:
        message = error.args[0] if error.args else error
        raise ValueError(f"{run.method.name} on {run.task}: {message}") from error


def print_estimate(jobs: Sequence[Job], trials: Mapping[str, Trial], at_once: int, console: Terminal) -> None:
    """Print the jobs with the time and memory estimated from the trials."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    # A run's id begins with its task and its method: columns for them would not fit a narrow terminal.
    table.add_column("run", overflow="fold")
    table.add_column("seeds", no_wrap=True)
    for column in ("steps", "time", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    total = 0.0
    for job in jobs:
        run, time, memory = job.run, "done", ""
        if not is_done(job):
            trial = trials[run.settings_digest]
            seconds = trial.seconds(run, final_episodes=job.final_episodes)
            total += seconds
            time, memory = span(seconds), f"{trial.footprint.bytes_of(run) / 2**30:.2f} GiB"
        texts = (run.id, seeds_in_words(run.seeds).removeprefix("seeds "))
        table.add_row(*map(Text, (*texts, f"{run.steps:,}", time, memory)))
    console.print(table)
    console.print_line(
        f"{len(jobs)} runs, about {span(total)} one after the other, {span(total / at_once)} with {at_once} "
        "at a time; estimated from short trials with one seed on this machine. Nothing was trained."
    )
