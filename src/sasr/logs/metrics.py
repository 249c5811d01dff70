"""`metrics.jsonl`: one line for each event and seed, the primary record of a run."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from sasr.errors import unknown_name
from sasr.files import plain, read_regular
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Recorder, Trainer

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = "metrics.jsonl"
_BLOCK = 2**16  # bytes read at a time
Kind = Literal["episode", "figures", "evaluation", "clock", "notice"]
MAX_BYTES = 2**32
"""Larger files are refused: no run writes them."""
HISTORY: tuple[Kind, ...] = ("episode", "figures", "evaluation")
"""Kinds of events about training; the others are about the program."""
Event = dict[str, Any]
"""A line: kind, step, member (index of the seed) and seed, null if it concerns all, and the kind's values."""


class MetricsFile(Recorder):
    """Writes every event when it happens; a checkpoint has the file's length, to which resuming cuts it.

    Lines of the kinds episode, figures and evaluation depend on the settings and the seed alone; times are in lines of
    the kind clock.
    """

    def __init__(self, folder: Path, *, warn: Callable[[str], None] = warnings.warn) -> None:
        """Nothing is written before `begin`.

        Args:
            folder: The run's folder.
            warn: Called with a message when the file lost its end, or the disk does not take a line; lines wait until
                it does.
        """
        self.path = folder / NAME
        self.warn = warn
        self.bytes = 0  # on disk now
        self._saved_bytes = 0  # on disk when the run was saved
        self.seconds_before = 0.0  # of training in earlier sessions
        self._start = time.monotonic()
        self.file: BinaryIO | None = None
        self._waiting = b""
        self._failed = False
        self._seeds: tuple[int, ...] = ()
        self._every = 1
        self._steps = 0
        self._last_clock = -1  # the step of the last line of the kind clock
        self._memory: PeakMemory | None = None

    @property
    def seconds(self) -> float:
        """Seconds of training, with earlier sessions."""
        return self.seconds_before + time.monotonic() - self._start

    def begin(self, trainer: Trainer) -> None:
        """Open the file; lines that a killed run wrote after its last checkpoint are cut off.

        A file of which nothing would remain is copied first.
        """
        self._seeds = trainer.config.seeds
        self._every = trainer.config.log_every
        self._steps = trainer.loop.steps
        # Unbuffered, so that a killed run loses no line.
        self.file = cast(BinaryIO, self.path.open("ab", buffering=0))
        _lock(self.file, self.path)
        if self.bytes == 0 and recorded_steps(self.path.parent, *HISTORY):
            shutil.copyfile(self.path, free_place(self.path.parent))
        lost = self._saved_bytes - self.bytes
        self.bytes = _end_of_line(self.path, self.bytes)
        self.file.truncate(self.bytes)
        self._memory = PeakMemory(trainer.device)
        self._start = time.monotonic()
        self._flush()  # earlier notices
        if lost:
            text = f"{self.path.name} was {lost:,} bytes shorter than at the checkpoint; these lines are lost"
            self.notice(self._steps, text)
            self.warn(text)  # a view that begins later would not show it
        if self._steps:
            self.notice(self._steps, "resumed")

    def turned(self, steps: int) -> None:
        """Write the time every `log_every` steps."""
        is_due = steps // self._every != self._steps // self._every
        self._steps = steps
        if is_due:
            self._write_clock(steps)

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """A line for each episode."""
        for episode in ended:
            event = self._event("episode", steps, episode.member)
            event["environment"] = episode.environment
            event["return"] = episode.ret
            event["length"] = episode.length
            event["success"] = episode.success
            self._write(event)
        self._flush()

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """A line for each seed with all values."""
        for index in range(len(self._seeds)):
            event = self._event("figures", steps, index)
            for name, values in figures.items():
                event[name] = float(values[index])
            self._write(event)
        self._flush()

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """A line for each seed."""
        for index in range(len(self._seeds)):
            event = self._event("evaluation", steps, index)
            event["return_mean"] = float(result.returns[index].mean())
            event["length_mean"] = float(result.lengths[index].mean())
            event["success_rate"] = float(result.success[index].mean())
            event["returns"] = result.returns[index].tolist()
            if result.scores.size:
                event["score_mean"] = float(result.scores[index].mean())
            self._write(event)
        self._flush()

    def notice(self, steps: int, text: str) -> None:
        """A line of text."""
        event = self._event("notice", steps)
        event["text"] = text
        self._write(event)
        self._flush()

    def save(self) -> dict[str, Any]:
        """The length of the file, which is on the disk then, and the time so far.

        The time is also written as a line: a run that is killed right after its last checkpoint is never resumed and
        could not write it.
        """
        if self.file is not None:
            if self._steps != self._last_clock:
                self._write_clock(self._steps)
            self._flush()
            try:
                os.fsync(self.file.fileno())
            except OSError as error:
                self._warn_once(error)
        return {"bytes": self.bytes, "seconds": self.seconds}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Continue at a saved length; a file that is shorter has lost lines, and keeps its complete ones."""
        self.seconds_before = float(saved.get("seconds", 0.0))
        self._saved_bytes = int(saved.get("bytes", 0))
        length = self.path.stat().st_size if self.path.exists() else 0
        self.bytes = min(self._saved_bytes, length)

    def close(self, steps: int) -> None:
        """Write the time, and close the file."""
        if self.file is not None:
            if steps != self._last_clock:
                self._write_clock(steps)
            self.file.close()
            self.file = None

    def _event(self, kind: Kind, step: int, index: int | None = None) -> Event:
        seed = None if index is None else self._seeds[index]
        return {"kind": kind, "step": step, "member": index, "seed": seed}

    def _write_clock(self, steps: int) -> None:
        self._last_clock = steps
        event = self._event("clock", steps)
        event["seconds"] = round(self.seconds, 3)
        event["peak_memory_bytes"] = self._memory.bytes() if self._memory else None
        self._write(event)
        self._flush()

    def _write(self, event: Event) -> None:
        """Add a line, for `_flush` to write."""
        self._waiting += json.dumps(plain(event)).encode() + b"\n"

    def _flush(self) -> None:
        try:
            while self._waiting and self.file is not None:
                written = self.file.write(self._waiting)
                self._waiting = self._waiting[written:]
                self.bytes += written
            self._failed = False
        except OSError as error:
            self._warn_once(error)

    def _warn_once(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            self.warn(f"{self.path}: {error.strerror}; the run goes on, and lines are kept until they can be written")


def _lock(file: BinaryIO, path: Path) -> None:
    """Lock the file until the process ends, so that no other process trains in the folder."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileExistsError(f"another process is training in {path.parent}; wait for it, or stop it first") from None
    except OSError:
        return  # a file system without locks


def read_metrics(run: str | Path, *kinds: Kind) -> list[Event]:
    """The events of a run in order, or those of some kinds; an incomplete last line is ignored."""
    for kind in kinds:
        if kind not in get_args(Kind):
            raise unknown_name("kind of event", kind, get_args(Kind))
    path = Path(run) / NAME
    if not path.exists():
        raise FileNotFoundError(f"{run} has no {NAME}: it is not a run folder, or the run has not started yet")
    events, bad = read_lines(path)
    for number, line in bad.items():
        raise ValueError(f"{path}, line {number} is not an event: {line[:60]!r}; the file was changed by hand")
    if not kinds:
        return events
    return [event for event in events if event["kind"] in kinds]


def read_lines(path: Path) -> tuple[list[Event], dict[int, bytes]]:
    """The events in a metrics file in order, and the lines that are none by their numbers."""
    events: list[Event] = []
    bad: dict[int, bytes] = {}
    lines = read_regular(path, MAX_BYTES).split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # the rest after the last newline is incomplete
        try:
            event = json.loads(line)
            events.append({**event, "kind": event["kind"], "step": int(event["step"])})
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # a step may be Infinity
            bad[number] = line
    return events, bad


def recorded_steps(run: str | Path, *kinds: Kind) -> int:
    """The last step in a run's events, or in those of some kinds; 0 without any."""
    if not (Path(run) / NAME).exists():
        return 0
    return max((int(event["step"]) for event in read_metrics(run, *kinds)), default=0)


def free_place(folder: Path) -> Path:
    """The first of metrics.1.jsonl, metrics.2.jsonl, … that does not exist."""
    places = (folder / f"metrics.{number}.jsonl" for number in itertools.count(1))
    return next(place for place in places if not place.exists())


def _end_of_line(path: Path, end: int) -> int:
    """The end of the last complete line within the first `end` bytes of a file."""
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class PeakMemory:
    """The peak memory of this process from now on, without worker processes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):
                _RESET.write_text("5")  # Linux: reset the peak

    def bytes(self) -> int | None:
        """The peak so far; None if unknown."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_reserved(self.device))
        # getrusage is the last choice: it includes the peak of the parent process.
        with suppress(OSError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return _resource_peak()


def _resource_peak() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    return peak * 1024
