"""The progress of a grid: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import threading
import time

from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sasr.experiments.grid import Grid, Status
from sasr.experiments.job import Progress, State, progress_of
from sasr.logs.console import with_error
from sasr.terminal import Terminal

_STYLE = {"waiting": "dim", "running": "cyan", "done": "green", "failed": "bold red", "stopped": "yellow"}
_ORDER: tuple[State, ...] = ("failed", "running", "stopped", "done", "waiting")
_BAR = 12
_WIDE = 100  # columns of a terminal; a narrower one has bars of half the width
PLAIN_SECONDS = 60.0  # seconds between plain lines about the runs under way


class GridView:
    """Shows the progress of a grid: `with GridView(grid, console): grid.run(runner)`."""

    def __init__(self, grid: Grid, console: Terminal) -> None:
        self.grid, self.console = grid, console
        self.began = time.monotonic()
        self.live: Live | None = None
        self._over = threading.Event()

    def __enter__(self) -> GridView:
        before = len(self.grid.of("done"))
        if before:
            self.console.print_line(f"{before} of {len(self.grid.statuses)} runs were done before")
        if self.console.is_terminal:
            # Drawn from a thread: a runner may train in this one for hours.
            self.live = Live(console=self.console, refresh_per_second=1, get_renderable=self.table)
            self.live.start()
        else:
            threading.Thread(target=self._print_every_minute, daemon=True).start()
        self.grid.on_change = self.show_change
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self.live:
            self.live.stop()
            self.live = None

    def show_change(self, status: Status) -> None:
        """A plain line for each change."""
        run = status.job.run
        if status.state == "failed":
            self.console.print_line(f"failed: {run}: {status.reason}; log: {status.job.log}", "bold red")
        elif not self.live:
            line = f"[{len(self.grid.of('done'))}/{len(self.grid.statuses)}] {status.state}: {run}"
            if status.state == "done":
                line += f" {_result(status)}"
            self.console.print_line(line)

    def table(self) -> RenderableType:
        """All runs, or as many as there is room for, those that need attention first."""
        statuses = sorted(self.grid.statuses.values(), key=lambda status: _ORDER.index(status.state))
        room = max(3, self.console.height - 7)
        table = Table(box=box.SIMPLE, pad_edge=False)
        for name in ("task", "method"):  # cut off where there is no room, for all else is numbers
            table.add_column(name)
        for column in ("seeds", ""):
            table.add_column(column, no_wrap=True)
        for column in ("step", "return", "time"):
            table.add_column(column, justify="right", no_wrap=True)
        for status in statuses[:room]:
            table.add_row(*_row(status, bar_width=_BAR if self.console.width >= _WIDE else _BAR // 2))
        return Group(table, Text(self._summary(len(statuses) - room), "dim"))

    def _summary(self, hidden: int) -> str:
        counts = {state: len(self.grid.of(state)) for state in reversed(_ORDER)}
        parts = [f"{count} {state}" for state, count in counts.items() if count]
        parts.append(span(time.monotonic() - self.began))
        if hidden > 0:
            parts.append(f"{hidden} not shown")
        return " · ".join(parts)

    def _print_every_minute(self) -> None:
        while not self._over.wait(PLAIN_SECONDS):
            running = [status.job for status in self.grid.of("running")]
            parts = [f"{job.run}: {progress_of(job).step / job.run.steps:.0%}" for job in running]
            self.console.print_line(f"{self._summary(0)} ({'; '.join(parts)})")


def span(seconds: float) -> str:
    """A duration, in one or two units.

    >>> span(42), span(3700), span(200_000)
    ('42 s', '1 h 02 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def _row(status: Status, *, bar_width: int) -> list[Text]:
    run = status.job.run
    progress = Progress()
    steps = f"{run.steps:,}"
    if status.state != "waiting" or status.job.folder.exists():
        progress = progress_of(status.job)
        steps = f"{progress.step:,} / {run.steps:,}"
    share = min(1.0, progress.step / run.steps)
    if status.state == "done":
        share = 1.0
    full = int(share * bar_width)
    bar = "█" * full + "░" * (bar_width - full)
    seeds, time_taken = str(len(run.seeds)), ""
    if len(run.seeds) == 1:
        seeds = f"#{run.seeds[0]}"
    if status.seconds:
        time_taken = span(status.seconds)
    return [
        Text(run.task, no_wrap=True, overflow="ellipsis"),
        Text(run.method.name, no_wrap=True, overflow="ellipsis"),
        Text(seeds),
        Text(f"{status.state:<8}{bar}", _STYLE[status.state]),
        Text(steps),
        Text(_result(status)),
        Text(time_taken),
    ]


def _result(status: Status) -> str:
    progress = progress_of(status.job)
    return with_error(progress.mean, progress.error)
