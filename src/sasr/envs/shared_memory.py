"""Memory that a population and its workers share, with pipes to wake each other and files to exchange arrays."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import select
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

RESET, STEP, CLOSE, SAVE, RESTORE = range(1, 6)

# Words of a worker's line on the board.
REQUEST, DONE, COMMAND, BUSY_WITH, FAILED, ASLEEP = range(6)
_LINE = 8  # words; 64 bytes, so that no two processes write to one cache line
IDLE = -1


class BoardShape(NamedTuple):
    """The layout of a board, for N environments and W workers."""

    environments: int
    workers: int
    observation: tuple[int, ...]
    observation_dtype: str
    action: tuple[int, ...]
    action_dtype: str
    infos: int

    def fields(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of each array."""
        n = (self.environments,)
        return {
            "seed": (n, "u8"),
            "action": (n + self.action, self.action_dtype),
            "observation": (n + self.observation, self.observation_dtype),
            "final_observation": (n + self.observation, self.observation_dtype),
            "reward": (n, "f4"),
            "terminated": (n, "?"),
            "truncated": (n, "?"),
            "success": (n, "?"),
            "restarted": (n, "?"),
            "info": ((self.infos, self.environments), "f8"),
        }

    def offsets(self) -> tuple[dict[str, int], int]:
        """Where each array starts, after the workers' and the population's lines, and the size of the whole."""
        at, starts = (self.workers + 1) * _LINE * 8, {}
        for name, (shape, dtype) in self.fields().items():
            starts[name] = at
            at += -(-math.prod(shape) * np.dtype(dtype).itemsize // 64) * 64
        return starts, max(at, 64)


class Bell:
    """A pipe that one process sleeps on and others write to."""

    def __init__(self, sleeper_end: int, ringer_end: int) -> None:
        self.sleeper_end = sleeper_end
        self.ringer_end = ringer_end
        self._poll = select.poll()
        if sleeper_end >= 0:
            self._poll.register(sleeper_end, select.POLLIN)

    @classmethod
    def new(cls) -> Bell:
        """A bell with both ends."""
        ends = os.pipe()
        for end in ends:
            os.set_blocking(end, False)
        return cls(*ends)

    def ring(self) -> None:
        """Wake the sleeper; a full pipe and a sleeper that has ended are ignored."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self.ringer_end, b"!")

    def sleep(self, seconds: float) -> None:
        """Sleep until it rings, at most for that long."""
        if self._poll.poll(seconds * 1000):
            with contextlib.suppress(BlockingIOError):
                os.read(self.sleeper_end, 4096)


class Board:
    """The memory that a population and its workers share: a line of control words for each, then the arrays."""

    seed: NDArray[np.uint64]  # (N,)
    action: NDArray[Any]  # (N, *action_shape)
    observation: NDArray[Any]  # (N, *obs_shape)
    final_observation: NDArray[Any]  # (N, *obs_shape)
    reward: NDArray[np.float32]  # (N,)
    terminated: NDArray[np.bool_]  # (N,)
    truncated: NDArray[np.bool_]  # (N,)
    success: NDArray[np.bool_]  # (N,)
    restarted: NDArray[np.bool_]  # (N,) by `restore`: the replay of the episode went another way
    info: NDArray[np.float64]  # (keys, N)

    def __init__(self, shape: BoardShape, file: int = -1) -> None:
        starts, size = shape.offsets()
        memory = mmap.mmap(file, size)
        for name, (extent, dtype) in shape.fields().items():
            setattr(self, name, np.ndarray(extent, dtype, memory, starts[name]))
        self.population = shape.workers  # its line is the last
        self.all_done = [worker * _LINE + DONE for worker in range(shape.workers)]
        self.words = memoryview(memory)[: (shape.workers + 1) * _LINE * 8].cast("q")

    def line(self, number: int) -> memoryview:
        """One line of control words."""
        return self.words[number * _LINE : (number + 1) * _LINE]

    def read(self, line: int, word: int) -> int:
        """A control word."""
        return int(self.words[line * _LINE + word])

    def write(self, line: int, word: int, value: int) -> None:
        """Set a control word."""
        self.words[line * _LINE + word] = value

    def request(self, workers: Sequence[int], command: int, number: int, bells: Sequence[Bell]) -> None:
        """Send workers a request; they see all writes before it."""
        words, lines = self.words, [worker * _LINE for worker in workers]
        for line in lines:
            words[line + COMMAND] = command
        fence()
        for line in lines:
            words[line + REQUEST] = number
        fence()
        for worker, line in zip(workers, lines, strict=True):
            if words[line + ASLEEP]:
                bells[worker].ring()

    def done(self, worker: int, number: int, bell: Bell) -> None:
        """Answer a request; the last worker to answer wakes the population."""
        fence()
        self.write(worker, DONE, number)
        fence()
        if self.read(self.population, ASLEEP) and self._reached(self.all_done, number):
            bell.ring()

    def wait_for_request(self, worker: int, number: int, bell: Bell, spin: float) -> None:
        """Return when there is a request."""
        self._wait(worker, [worker * _LINE + REQUEST], number, bell, spin, watch=lambda: None)

    def wait_for_all(self, number: int, bell: Bell, spin: float, watch: Callable[[], None]) -> None:
        """Return when every worker has answered; they are checked now and then."""
        self._wait(self.population, self.all_done, number, bell, spin, watch)

    def _reached(self, indices: Sequence[int], number: int) -> bool:
        words = self.words
        for index in indices:  # noqa: SIM110  (a generator would cost as much as ten of these)
            if words[index] < number:
                return False
        return True

    def _wait(
        self, line: int, indices: Sequence[int], number: int, bell: Bell, spin: float, watch: Callable[[], None]
    ) -> None:
        """Spin for a while, since the answer is often near, then sleep until the bell rings.

        A short wait costs no switch of processes, a long one no processor time.
        """
        start = time.perf_counter()
        while not self._reached(indices, number):
            if time.perf_counter() - start > spin:
                self.write(line, ASLEEP, 1)
                fence()
                # A worker that answers after this check sees the sleeper and rings; the limit is for dead workers.
                if not self._reached(indices, number):
                    bell.sleep(0.01)
                self.write(line, ASLEEP, 0)
                watch()
        fence()


_lock = threading.Lock()


def fence() -> None:
    """Keep the reads and writes before it apart from those after it, as processors need not do."""
    # One pass would let both sides slip into the locked region; a release followed by an acquire lets neither.
    with _lock:
        pass
    with _lock:
        pass


def anonymous_file(size: int = 0) -> int:
    """A file without a name, which is removed when the last process that holds it ends."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("sasr-tasks")
    else:
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    os.truncate(file, size)
    return file


Arrays = Mapping[str, NDArray[Any]]
"""Memories of environments, called index.name."""


def arrays_of(saved: Arrays, index: int) -> dict[str, NDArray[Any]]:
    """The arrays of one environment, by name."""
    prefix = f"{index}."
    return {key.removeprefix(prefix): array for key, array in saved.items() if key.startswith(prefix)}


def write_arrays(file: int, saved: Arrays) -> None:
    """Write arrays into a file for another process; nothing in it is code."""
    words = save(dict(saved))
    os.truncate(file, 0)
    for start in range(0, len(words), 2**20):
        os.pwrite(file, words[start : start + 2**20], start)


def read_arrays(file: int) -> dict[str, NDArray[Any]]:
    """Read the arrays in a file."""
    size, words = os.fstat(file).st_size, bytearray()
    while len(words) < size:
        words += os.pread(file, min(size - len(words), 2**20), len(words))
    return load(bytes(words))
