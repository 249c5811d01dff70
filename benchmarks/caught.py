"""Commands of `sasr` called in this process, with everything that an attack on them must not bring about."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from rich.progress import track

from sasr import cli

T = TypeVar("T")
R = TypeVar("R")


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


class TookTooLong(BaseException):
    pass


def call(words: Sequence[str], *, limit: int) -> Outcome:
    """Run a command as if it had been typed; one that takes more than `limit` seconds raises `TookTooLong`."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    out = io.StringIO()
    before, start = sys.argv, time.perf_counter()
    sys.argv = ["sasr", *words]
    heard = signal.signal(signal.SIGALRM, give_up)
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
        signal.signal(signal.SIGALRM, heard)
        sys.argv = before
    return Outcome(code, time.perf_counter() - start, out.getvalue(), escaped)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Go into a folder and come back."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def in_a_fork(work: Any, *, limit: float) -> bytes | None:
    """What `work()` returns (bytes) in a process of its own; None where it did not end in time or was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        code = 1
        try:
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(work())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    os.set_blocking(reader, False)
    answer, deadline = b"", time.monotonic() + limit
    try:
        while time.monotonic() < deadline:
            try:
                part = os.read(reader, 2**20)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if not part:
                return answer if os.waitpid(child, 0)[1] == 0 else None
            answer += part
        return None
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def side_by_side(work: Callable[[T], R], items: Sequence[T], jobs: int) -> list[R]:
    """What `work` returns for each item, from so many forks of this process at a time."""
    forks = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"))
    with forks:
        return list(track(forks.map(work, items), "trying", total=len(items)))


def left_behind() -> dict[str, int]:
    """Processes of this one's and segments of shared memory that are there now."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {"processes": len(children), "segments": len(list(Path("/dev/shm").iterdir()))}
