"""Commands of `sasr` called in this process, with everything that an attack on them must not bring about."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from rich.progress import track
from rich.table import Table

from sasr import cli

T = TypeVar("T")
R = TypeVar("R")
_UNFINISHED = re.compile(r"\.partial$|^\..*\.part")  # what checkpoints, exports, videos and `write_whole` begin with


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    seconds: float
    output: str
    escaped: str = ""
    """The error that came out of it, where one did."""

    @property
    def traceback(self) -> bool:
        return bool(self.escaped) or "Traceback (most recent call last)" in self.output

    @property
    def unforeseen(self) -> bool:
        """One line, but of an error that nobody thought of."""
        return "--debug shows the traceback" in self.output

    @property
    def steered(self) -> bool:
        """Whether an escape code or an emoji came through; none of them would be the console's own here."""
        return "\x1b" in self.output or "\N{COLLISION SYMBOL}" in self.output

    @property
    def is_odd(self) -> bool:
        """Whether the answer was no plain line."""
        return self.traceback or self.unforeseen or self.steered


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many commands refused, and how many answered otherwise than they should."""
    return {
        "refused": sum(outcome.code == 2 for outcome in outcomes),
        "unforeseen": sum(outcome.unforeseen for outcome in outcomes),
        "tracebacks": sum(outcome.traceback for outcome in outcomes),
        "steered": sum(outcome.steered for outcome in outcomes),
    }


def table_of(counts: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row of counts for each command, case or attack."""
    columns = list(dict.fromkeys(name for row in counts.values() for name in row))
    table = Table("", *(name.replace("_", " ") for name in columns))
    for command, row in counts.items():
        table.add_row(command, *(str(row.get(name, 0)) for name in columns))
    return table


class TookTooLong(BaseException):
    pass


def call(words: Sequence[str], *, limit: int) -> Outcome:
    """Run a command as if it had been typed; one that takes more than `limit` seconds raises `TookTooLong`."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    out = io.StringIO()
    argv_before, start = sys.argv, time.perf_counter()
    sys.argv = ["sasr", *words]
    handler_before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(limit)
    code, escaped = 0, ""
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        escaped = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler_before)
        sys.argv = argv_before
    return Outcome(code, time.perf_counter() - start, out.getvalue(), escaped)


def in_a_fork(work: Callable[[], T], *, limit: float) -> T | None:
    """What `work()` returns in a process of its own; None where it did not end in time or was killed."""
    fork = multiprocessing.get_context("fork")
    reader, writer = fork.Pipe(duplex=False)

    def child() -> None:
        os.setsid()
        try:
            writer.send(work())
        finally:
            os._exit(0)  # what it left running stays, to be counted

    process = fork.Process(target=child)
    process.start()
    writer.close()
    answer: T | None = None
    if reader.poll(limit):
        with contextlib.suppress(EOFError):
            answer = reader.recv()
    elif process.pid:
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return answer


def side_by_side(work: Callable[[T], R], items: Sequence[T], jobs: int) -> list[R]:
    """What `work` returns for each item, from so many forks of this process at a time."""
    forks = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"))
    with forks:
        return list(track(forks.map(work, items), "trying", total=len(items)))


@contextlib.contextmanager
def nothing_left(figures: dict[str, Any]) -> Iterator[None]:
    """Count what is there afterwards and was not before: processes, also those of workers, and shared memory."""
    name, value = "SASR_ATTACK", uuid.uuid4().hex
    os.environ[name] = value
    shared = Path("/dev/shm")
    before = set(shared.glob("*"))
    yield
    time.sleep(2.0)  # workers look once a second whether their run is there
    figures["processes_left"] = len(marked(f"{name}={value}"))
    figures["segments_left"] = len(set(shared.glob("*")) - before)


def marked(mark: str) -> list[int]:
    """Processes that were started with a mark in their environment."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:  # gone, or somebody else's
            continue
        if mark.encode() in environment.split(b"\0"):
            pids.append(int(path.parent.name))
    return pids


def unfinished_files(folder: Path) -> int:
    """How many files and folders below this one were begun and neither finished nor removed."""
    unfinished = 0
    for _, folders, files in os.walk(folder):
        unfinished += sum(_UNFINISHED.search(name) is not None for name in (*folders, *files))
    return unfinished
