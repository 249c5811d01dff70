"""The worker processes of a population: starting them, sending requests, waiting and closing."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from sasr.envs import shared_memory as shared
from sasr.envs.shared_memory import Arrays, Bell, Board, BoardShape
from sasr.envs.worker import WorkerConfig
from sasr.tasks.environment import Env, picklable

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from sasr.envs.worker import main; main()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_CHECK_EVERY = 0.01  # seconds between checks that the workers are alive
_CLOSE_SECONDS = 1.0  # given to workers to end by themselves

Build = Callable[[], Env]


class Place(NamedTuple):
    """The worker and the environment that are busy or have failed."""

    worker: int | None
    """None if it is this process."""
    environments: range
    """The worker's environments."""
    busy_with: int
    """The environment it is stepping; `shared_memory.IDLE` for none."""


class RunnerError(Exception):
    """An environment raised, or a worker ended."""

    def __init__(self, place: Place, how: str, details: str = "") -> None:
        super().__init__(how)
        self.place = place
        self.how = how
        self.details = details


class WorkerPool:
    """Worker processes, each with a share of the environments, which step while this process goes on."""

    def __init__(self, count: int, shape: BoardShape, build: Build, info_keys: tuple[str, ...]) -> None:
        total = shape.environments
        self.shares = [range(total * k // count, total * (k + 1) // count) for k in range(count)]
        self.requests = 0
        self.processes: list[subprocess.Popen[bytes]] = []
        # Seconds that a waiting process spins: with more processes than cores, it would take time from those that work.
        self._spin = 20e-6 if count + 1 > cores() else 1e-3
        self._next_check = 0.0
        self._bell = Bell.new()
        self._bells: list[Bell] = []
        self._reports: list[int] = []
        self._array_files: list[int] = []
        board_file = shared.anonymous_file(shape.offsets()[1])
        self._files = [board_file, self._bell.sleeper_end, self._bell.ringer_end]
        self._finalizer = weakref.finalize(self, _end, self.processes, self._files, os.getpid())
        self.board = Board(shape, board_file)
        try:
            packed = picklable(build)
            for worker in range(count):
                self._start(worker, shape, board_file, packed, info_keys)
            self._wait_for(0)
        except BaseException:
            self._finalizer()
            raise

    def _start(self, worker: int, shape: BoardShape, board_file: int, build: bytes, info_keys: tuple[str, ...]) -> None:
        self.board.write(worker, shared.DONE, -1)
        bell = Bell.new()
        report, arrays_file = shared.anonymous_file(), shared.anonymous_file()
        self._bells.append(bell)
        self._reports.append(report)
        self._array_files.append(arrays_file)
        self._files += [bell.sleeper_end, bell.ringer_end, report, arrays_file]
        config = WorkerConfig(
            worker=worker,
            indices=self.shares[worker],
            board=shape,
            board_file=board_file,
            report_file=report,
            arrays_file=arrays_file,
            worker_bell=bell.sleeper_end,
            population_bell=self._bell.ringer_end,
            info_keys=info_keys,
            spin=self._spin,
            parent=os.getpid(),
            build=build,
        )
        self.processes.append(_start_process(config))

    def request(self, command: int) -> None:
        """Send all workers a request, and return at once."""
        self.requests += 1
        self.board.request(range(len(self.processes)), command, self.requests, self._bells)

    def wait(self) -> None:
        """Return when all workers have answered the request."""
        self._wait_for(self.requests)

    def late(self) -> Place | None:
        """The first worker that has not answered the last request."""
        for worker in range(len(self.processes)):
            if self.board.read(worker, shared.DONE) < self.requests:
                return self._place(worker)
        return None

    def save(self) -> dict[str, NDArray[Any]]:
        """The memories of all environments."""
        self.request(shared.SAVE)
        self.wait()
        saved: dict[str, NDArray[Any]] = {}
        for file in self._array_files:
            saved |= shared.read_arrays(file)
        return saved

    def restore(self, saved: Arrays) -> None:
        """Restore all environments."""
        for file, indices in zip(self._array_files, self.shares, strict=True):
            share = {key: saved[key] for key in saved if int(key.partition(".")[0]) in indices}
            shared.write_arrays(file, share)
        self.request(shared.RESTORE)
        self.wait()

    def close(self) -> None:
        """End the workers; one that doesn't end by itself is killed."""
        for worker, process in enumerate(self.processes):
            if process.poll() is None:
                self.board.request([worker], shared.CLOSE, self.requests + 1, self._bells)
        deadline = time.monotonic() + _CLOSE_SECONDS
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(0.001)
        self._finalizer()

    def _wait_for(self, request: int) -> None:
        self.board.wait_for_all(request, self._bell, self._spin, self._check_workers)

    def _check_workers(self) -> None:
        """Raise if a worker has failed or ended; called often, it checks every 10 ms."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_EVERY
        for worker, process in enumerate(self.processes):
            if self.board.read(worker, shared.FAILED):
                self._fail(worker, None)
            exit_code = process.poll()
            if exit_code is not None:
                self._fail(worker, exit_code)

    def _fail(self, worker: int, exit_code: int | None) -> None:
        report = self._reports[worker]
        trace = os.pread(report, os.fstat(report).st_size, 0).decode(errors="replace").strip()
        if exit_code is None:
            how = f"raised {trace.splitlines()[-1]}" if trace else "failed"
        elif exit_code < 0:
            how = f"was killed by {signal.Signals(-exit_code).name}"
        else:
            how = f"ended with exit code {exit_code}"
        details = ", which leaves no traceback (out of memory?)"
        if trace:
            details = f"\n\nThe worker's traceback:\n{trace}"
        raise RunnerError(self._place(worker), how, details)

    def _place(self, worker: int) -> Place:
        return Place(worker, self.shares[worker], self.board.read(worker, shared.BUSY_WITH))


def _start_process(config: WorkerConfig) -> subprocess.Popen[bytes]:
    # A fresh interpreter, because a fork of a process with threads or CUDA is not safe, and because multiprocessing's
    # spawn would run the user's script again. A session of its own, so that Ctrl-C reaches the population only.
    process = subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps([str(Path(path).absolute()) for path in sys.path])],
        stdin=subprocess.PIPE,
        pass_fds=(
            config.board_file,
            config.report_file,
            config.arrays_file,
            config.worker_bell,
            config.population_bell,
        ),
        env=os.environ | _ONE_THREAD,
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it died at once, which the first wait notices and reports
        process.stdin.write(pickle.dumps(config))
        process.stdin.flush()
    return process


def _end(processes: list[subprocess.Popen[bytes]], files: list[int], owner: int) -> None:
    if os.getpid() != owner:
        return  # in a fork of the owner, which must not end its workers
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()
    for file in files:
        os.close(file)
    processes.clear()
    files.clear()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
