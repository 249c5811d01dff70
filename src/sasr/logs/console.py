"""The progress of a run: a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sasr.logs.metrics import Event, read_metrics
from sasr.logs.recorders import RecentEpisodes, mean_and_error, number_or_nan
from sasr.settings import TrainConfig
from sasr.terminal import Terminal
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Recorder, Trainer

_REDRAW = 0.5  # seconds; a drawing costs some milliseconds
_PLAIN = 5.0  # seconds between plain lines
_MEMORY = 30.0  # seconds that the speed is averaged over
_BARS = "▁▂▃▄▅▆▇█"


class ConsoleView(Recorder):
    """Shows mean ± standard error over seeds, the speed, the time left and a small curve."""

    def __init__(self, folder: Path, *, console: Terminal | None = None) -> None:
        self.folder = folder
        self.console = console or Terminal()
        self.live: Live | None = None
        self.steps = 0
        self.total = 0
        self.checkpoint = 0

    # ------------------------------------------------------------ called by the run

    def begin(self, trainer: Trainer) -> None:
        """Start the view; a resumed run shows its earlier events."""
        config = trainer.config
        self.seeds = len(config.seeds)
        self.steps = trainer.loop.steps
        self.total = config.steps
        self.burn_in = trainer.learner.burn_in
        self.recent = RecentEpisodes(self.seeds)
        self.evaluations: list[tuple[int, NDArray[np.float64], NDArray[np.float64]]] = []
        self.newest_score: NDArray[np.float64] | None = None  # of the newest evaluation, where the task is a game
        self.training_curve: list[float] = []  # mean training return, every `log_every` steps
        self.every = config.log_every
        self.next_point = self.every
        self.newest: dict[str, NDArray[np.float64]] = {}
        if self.steps:
            self._add_past(read_metrics(self.folder, "episode", "evaluation"))
        self.times: deque[tuple[float, int]] = deque([(time.monotonic(), self.steps)])
        self.drawn = time.monotonic()
        seeds = f"seed {config.seeds[0]}"
        if self.seeds > 1:
            seeds = f"{self.seeds} seeds"
        parts = [config.task, config.agent, f"shaper {shaper_in_words(config)}", seeds, str(trainer.device)]
        self.title = " · ".join([*parts, f"memory {memory(trainer.learner.held_bytes)}"])
        if self.console.is_terminal:
            self.live = Live(console=self.console, auto_refresh=False, get_renderable=self._view)
            self.live.start()
        else:
            self.console.print_line(self.title)
        if self.steps:
            self.console.print_line(f"resumed at step {self.steps:,}")
        if trainer.pace is not None and trainer.pace.start:
            self.console.print_line(trainer.pace.start)

    def turned(self, steps: int) -> None:
        """Redraw now and then."""
        if steps >= self.next_point:
            self._add_training_point(steps)
        self.steps = steps
        now = time.monotonic()
        pause = _REDRAW if self.live else _PLAIN
        if now - self.drawn >= pause:
            self._draw(now)

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Update the means over the newest episodes."""
        self.recent.add_ended(ended)

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep the newest values."""
        self.newest = dict(figures)

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Add a point to the curve."""
        self.steps = steps
        self.evaluations.append((steps, result.returns.mean(1), result.success.mean(1)))
        self.newest_score = result.scores.mean(1) if result.scores.size else None
        self._draw(time.monotonic())

    def notice(self, steps: int, text: str) -> None:
        """Print it at once."""
        self.console.print_line(f"step {steps:,}: {text}")

    def warn(self, text: str) -> None:
        """Print a warning."""
        self.console.print_line(text)

    def save(self) -> dict[str, Any]:
        """Show that a checkpoint is written; there is no state, because `begin` reads the metrics file."""
        self.checkpoint = self.steps
        return {}

    def close(self, steps: int) -> None:
        """Draw the last view, which stays."""
        self.steps = steps
        live, self.live = self.live, None
        if live:
            live.stop()  # which draws a last time

    # ------------------------------------------------------------ drawn

    def _draw(self, now: float) -> None:
        self.drawn = now
        self.times.append((now, self.steps))
        # Speed is of the last seconds alone, and not of the burn-in, which is faster than learning.
        while len(self.times) > 2:
            time_then, steps_then = self.times[0]
            if now - time_then <= _MEMORY and not steps_then < self.burn_in < self.steps:
                break
            self.times.popleft()
        if self.live:
            self.live.refresh()
        else:
            self.console.print_line(self._line())

    def _line(self) -> str:
        parts = [f"step {self.steps:,}/{self.total:,} ({self.steps / max(self.total, 1):.0%})"]
        means = self.recent.means()
        for what, name, share in _TRAINING:
            if np.isfinite(means[name]).any():
                parts.append(f"{what} {spread(means[name], share=share)}")
        if self.evaluations:
            parts.append(f"evaluation {spread(self.evaluations[-1][1])}")
        if self.newest_score is not None:
            parts.append(f"score {spread(self.newest_score)}")
        return " | ".join([*parts, *self._pace()])

    def _view(self) -> RenderableType:
        head = Table.grid(expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right")
        bar = ProgressBar(total=max(self.total, 1), completed=self.steps)
        head.add_row(bar, Text(f"  {self.steps:,}/{self.total:,} steps  " + "  ".join(self._pace())))
        return Group(Text(self.title, style="bold"), head, self._metrics(), self._foot())

    def _metrics(self) -> Table:
        table = Table(box=None, padding=(0, 2), show_header=False)
        table.add_column(style="cyan")
        table.add_column(justify="right")
        table.add_column(style="green", no_wrap=True)
        if self.evaluations:
            curve = [float(np.nanmean(returns)) for _, returns, _ in self.evaluations]
            _, returns, success = self.evaluations[-1]
            table.add_row("evaluation return", spread(returns), sparkline(curve, width=self._curve_width))
            table.add_row("evaluation success", spread(success, share=True), "")
        if self.newest_score is not None:
            table.add_row("evaluation score", spread(self.newest_score), "")
        means = self.recent.means()
        for what, name, share in _TRAINING:
            bars = ""
            if name == "ep_rew_mean":
                bars = sparkline(self.training_curve, width=self._curve_width)
            table.add_row(f"training {what}", spread(means[name], share=share), bars)
        for name, values in sorted(self.newest.items()):
            table.add_row(Text(name, style="dim"), spread(values), "")
        return table

    @property
    def _curve_width(self) -> int:
        return max(10, min(50, self.console.width - 60))

    def _foot(self) -> Text:
        parts = [str(self.folder)]
        if self.checkpoint:
            parts.append(f"checkpoint at step {self.checkpoint:,}")
        if self.steps < self.total and self.live:
            parts.append("Ctrl-C stops with a checkpoint")
        return Text(" · ".join(parts), style="dim", overflow="fold")

    def _pace(self) -> list[str]:
        """Speed and time left; a lower bound during the burn-in, which is faster than learning."""
        time_then, steps_then = self.times[0]
        time_now, steps_now = self.times[-1]
        if time_now <= time_then or steps_now <= steps_then:
            return []
        rate = (steps_now - steps_then) / (time_now - time_then)
        pace = f"{rate:,.0f} steps/s"
        if self.seeds > 1:
            pace += f" × {self.seeds} seeds"
        if self.steps >= self.total:
            return [pace]
        left = f"{clock((self.total - self.steps) / rate)} left"
        if steps_then < self.burn_in:
            left = f"at least {left}"
        if self.steps < self.burn_in:
            return [pace, left, "burn-in"]
        return [pace, left]

    def _add_past(self, events: list[Event]) -> None:
        for event in events:
            if event["step"] >= self.next_point:
                self._add_training_point(event["step"])
            self.recent.add_past([event])
            if event["kind"] == "evaluation":
                if not self.evaluations or self.evaluations[-1][0] != event["step"]:
                    unknown = np.full(self.seeds, np.nan)
                    self.evaluations.append((event["step"], unknown, unknown.copy()))
                _, returns, success = self.evaluations[-1]
                returns[event["member"]] = number_or_nan(event["return_mean"])
                success[event["member"]] = event["success_rate"]

    def _add_training_point(self, steps: int) -> None:
        self.next_point = (steps // self.every + 1) * self.every
        mean, _ = mean_and_error(self.recent.means()["ep_rew_mean"])
        self.training_curve.append(mean)


_TRAINING = (("return", "ep_rew_mean", False), ("success", "success_rate", True), ("length", "ep_len_mean", False))


def shaper_in_words(config: TrainConfig) -> str:
    """The shaper, with the preset where it has one."""
    if config.shaper == "sasr":
        return f"{config.shaper} ({config.preset})"
    return config.shaper


def spread(values: NDArray[np.float64], *, share: bool = False) -> str:
    """Mean ± standard error, of shares in percent.

    >>> spread(np.array([0.5, 0.7])), spread(np.array([0.5, 0.7]), share=True)
    ('0.600 ± 0.100', '60% ± 10%')
    """
    return with_error(*mean_and_error(values), share=share) or "—"


def with_error(mean: float, error: float, *, share: bool = False) -> str:
    """A mean ± its standard error, of shares in percent; an unknown error is left out, an unknown mean is "".

    >>> with_error(0.5, math.nan), with_error(0.5, 0.1)
    ('0.500', '0.500 ± 0.100')
    """
    write = "{:.0%}".format if share else number
    return " ± ".join(write(value) for value in (mean, error) if not math.isnan(value))


def number(value: float) -> str:
    """About three significant digits, with an exponent only for very small and large numbers.

    >>> number(0.12345), number(1234.5), number(2.5e-7)
    ('0.123', '1,234', '2.5e-07')
    """
    size = abs(value)
    if size == 0.0:
        return "0"
    if size >= 1e6 or size < 1e-3:
        return f"{value:.2g}"
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}"


def memory(size: int) -> str:
    """Bytes in MiB, or in GiB from one on.

    >>> memory(40_000), memory(3 * 2**19), memory(3 * 2**29)
    ('< 1 MiB', '1.5 MiB', '1.5 GiB')
    """
    if size < 2**20:
        return "< 1 MiB"
    if size < 2**30:
        return f"{size / 2**20:.1f} MiB"
    return f"{size / 2**30:.1f} GiB"


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> clock(75), clock(3725)
    ('1:15', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], *, width: int = 40) -> str:
    """A curve of small bars from the lowest to the highest value; more values than fit are averaged.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▆█'
    """
    known = np.array(values, np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return ""
    if len(known) > width:
        known = np.array([part.mean() for part in np.array_split(known, width)])
    low, high = known.min(), known.max()
    heights = np.zeros(len(known))
    if high > low:
        heights = (known - low) / (high - low) * (len(_BARS) - 1)
    return "".join(_BARS[round(height)] for height in heights.tolist())
