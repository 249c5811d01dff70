"""A grid as a person watches it: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import threading
import time
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sasr.experiments.grid import Grid, Status
from sasr.experiments.job import progress_of
from sasr.experiments.plan import seeds_in_words
from sasr.logs.console import number

_STYLE = {"waiting": "dim", "running": "cyan", "done": "green", "failed": "bold red", "stopped": "yellow"}
_ORDER = ("failed", "running", "stopped", "done", "waiting")
_BAR = 12
PLAIN_SECONDS = 60.0  # seconds between plain lines about what is running


class GridView:
    """Shows a grid while it is run: `with GridView(grid, console): grid.run(runner)`."""

    def __init__(self, grid: Grid, console: Console) -> None:
        self.grid, self.console = grid, console
        self.began = time.monotonic()
        self.live: Live | None = None
        self._over = threading.Event()

    def __enter__(self) -> GridView:
        before = len(self.grid.of("done"))
        if before:
            self._say(f"{before} of {len(self.grid.statuses)} cells were done before")
        if self.console.is_terminal:
            # Drawn from a thread: a runner may train in this one for hours.
            self.live = Live(console=self.console, refresh_per_second=1, get_renderable=self.table)
            self.live.start()
        else:
            threading.Thread(target=self._tell_now_and_then, daemon=True).start()
        self.grid.told = self.told
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self.live:
            self.live.stop()
            self.live = None

    def told(self, status: Status) -> None:
        """A plain line for each change."""
        cell = status.job.cell
        if status.state == "failed":
            self._say(f"failed: {cell}: {status.why}; log: {status.job.log}", "bold red")
        elif not self.live:
            done = len(self.grid.of("done"))
            result = f" {_result(status)}" if status.state == "done" else ""
            self._say(f"[{done}/{len(self.grid.statuses)}] {status.state}: {cell}{result}")

    def table(self) -> RenderableType:
        """All cells, or as many as there is room for, those that need attention first."""
        statuses = sorted(self.grid.statuses.values(), key=lambda own: _ORDER.index(own.state))
        room = max(3, self.console.height - 7)
        table = Table(box=box.SIMPLE, pad_edge=False)
        for column, justify in (("task", "left"), ("method", "left"), ("seeds", "left"), ("", "left")):
            table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        for column in ("step", "return", "time"):
            table.add_column(column, justify="right", no_wrap=True)
        for status in statuses[:room]:
            table.add_row(*_row(status))
        return Group(table, Text(self._summary(len(statuses) - room), "dim"))

    def _summary(self, hidden: int) -> str:
        counts = [f"{len(found)} {state}" for state in reversed(_ORDER) if (found := self.grid.of(state))]  # type: ignore[arg-type]
        more = f" · {hidden} not shown" if hidden > 0 else ""
        return f"{' · '.join(counts)} · {span(time.monotonic() - self.began)}{more}"

    def _tell_now_and_then(self) -> None:
        while not self._over.wait(PLAIN_SECONDS):
            parts = [
                f"{status.job.cell}: {progress_of(status.job).step / status.job.cell.steps:.0%}"
                for status in self.grid.of("running")
            ]
            self._say(f"{self._summary(0)} ({'; '.join(parts)})")

    def _say(self, line: str, style: str = "") -> None:
        self.console.print(Text(line, style), soft_wrap=True)


def span(seconds: float) -> str:
    """A length of time, short.

    >>> span(42), span(3700), span(200_000)
    ('42 s', '1 h 02 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _row(status: Status) -> list[Text]:
    cell = status.job.cell
    progress = progress_of(status.job) if status.state != "waiting" or status.job.folder.exists() else None
    share = 1.0 if status.state == "done" else min(1.0, progress.step / cell.steps) if progress else 0.0
    full = int(share * _BAR)
    bar = "█" * full + "░" * (_BAR - full)
    step = f"{progress.step:,} / {cell.steps:,}" if progress else f"{cell.steps:,}"
    style = _STYLE[status.state]
    return [
        Text(cell.task),
        Text(cell.method.name),
        Text(seeds_in_words(cell.seeds).split(" ")[1] if len(cell.seeds) == 1 else str(len(cell.seeds))),
        Text(f"{status.state:<8}{bar}", style),
        Text(step),
        Text(_result(status)),
        Text(span(status.seconds) if status.seconds else ""),
    ]


def _result(status: Status) -> str:
    found = progress_of(status.job)
    if math.isnan(found.mean):
        return ""
    return number(found.mean) + ("" if math.isnan(found.error) else f" ± {number(found.error)}")
