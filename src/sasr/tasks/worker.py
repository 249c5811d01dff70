"""One worker of a population: it steps its environments whenever the population asks, into memory both can see."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import mmap
import os
import pickle
import platform
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sasr.tasks.any_environment import Env

RESET, STEP, CLOSE = 1, 2, 3

# Words of a worker's line on the board.
REQUEST, DONE, COMMAND, BUSY_WITH, FAILED = range(5)
_LINE = 8  # words; 64 bytes, so that no two workers write to one cache line
IDLE = -1


class BoardShape(NamedTuple):
    """What a board is laid out from, N environments and W workers."""

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
            "info": ((self.infos, self.environments), "f8"),
        }

    def offsets(self) -> tuple[dict[str, int], int]:
        """Where each array starts, after the workers' lines, and the size of the whole."""
        at, starts = self.workers * _LINE * 8, {}
        for name, (shape, dtype) in self.fields().items():
            starts[name] = at
            at += -(-math.prod(shape) * np.dtype(dtype).itemsize // 64) * 64
        return starts, max(at, 64)


class Board:
    """The memory that a population and its workers share: a line of control words for each worker, then the arrays."""

    def __init__(self, shape: BoardShape, file: int = -1) -> None:
        starts, size = shape.offsets()
        memory = mmap.mmap(file, size)
        arrays = {
            name: np.ndarray(extent, dtype, memory, starts[name]) for name, (extent, dtype) in shape.fields().items()
        }
        self.words = memoryview(memory)[: shape.workers * _LINE * 8].cast("q")
        self.seed, self.action, self.reward = arrays["seed"], arrays["action"], arrays["reward"]
        self.observation, self.final_observation = arrays["observation"], arrays["final_observation"]
        self.terminated, self.truncated = arrays["terminated"], arrays["truncated"]
        self.success, self.info = arrays["success"], arrays["info"]

    def read(self, worker: int, word: int) -> int:
        """A control word."""
        return int(self.words[worker * _LINE + word])

    def write(self, worker: int, word: int, value: int) -> None:
        """Set a control word."""
        self.words[worker * _LINE + word] = value

    def publish(self, worker: int, word: int, value: int) -> None:
        """Set a control word such that whoever sees it also sees all that was written before it."""
        fence()
        self.words[worker * _LINE + word] = value

    def wait(self, worker: int, word: int, value: int, *, spin: float, watch: Callable[[], None]) -> None:
        """Wait until a control word has reached `value`, watching now and then.

        Spins for `spin` seconds, then sleeps an eighth of the time already waited, at most 1 ms, again and again.
        A short wait costs no switch of processes, a long one almost no processor time, and none ends much too late.
        """
        words, index = self.words, worker * _LINE + word
        start = time.perf_counter()
        while words[index] < value:
            waited = time.perf_counter() - start
            if waited > spin:
                watch()
                time.sleep(min(waited / 8, 1e-3))
        fence()


_lock = threading.Lock()
_stores_in_order = platform.machine().lower() in ("x86_64", "amd64", "i686")


def fence() -> None:
    """Keep reads and writes before it apart from those after it, on machines that would reorder them."""
    if not _stores_in_order:
        # One pass would let both sides slip into the locked region; a release followed by an acquire lets neither.
        with _lock:
            pass
        with _lock:
            pass


def anonymous_file(size: int = 0) -> int:
    """A file without a name, which goes with the last process that holds it, however that ends."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("sasr-tasks")
    else:
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    os.truncate(file, size)
    return file


class Stepper:
    """Some environments of a population, and the board they read actions from and write what happened to."""

    def __init__(
        self, build: Callable[[], Env], indices: Sequence[int], board: Board, info_keys: Sequence[str], worker: int = 0
    ) -> None:
        self.board = board
        self.indices = indices
        self.info_keys = info_keys
        self.worker = worker
        self.environments: list[Env] = []
        for index in indices:
            self._busy(index)
            self.environments.append(build())
        self._busy(IDLE)
        self.discrete = isinstance(self.environments[0].action_space, spaces.Discrete)

    def reset(self) -> None:
        """Start every environment's stream of episodes from its seed."""
        board = self.board
        for index, env in zip(self.indices, self.environments, strict=True):
            self._busy(index)
            board.observation[index], _ = env.reset(seed=int(board.seed[index]))
        self._busy(IDLE)

    def step(self) -> None:
        """One step of every environment; one whose episode ends starts the next in the same step."""
        board = self.board
        for index, env in zip(self.indices, self.environments, strict=True):
            self._busy(index)
            # A copy, because an environment may keep the action, and this memory will hold the next one.
            action = int(board.action[index]) if self.discrete else board.action[index].copy()
            observation, reward, terminated, truncated, info = env.step(action)
            board.final_observation[index] = observation
            if terminated or truncated:
                observation, _ = env.reset()
            board.observation[index] = observation
            board.reward[index] = reward
            board.terminated[index] = terminated
            board.truncated[index] = truncated
            board.success[index] = info.get("is_success", False)
            for k, key in enumerate(self.info_keys):
                board.info[k, index] = info.get(key, math.nan)
        self._busy(IDLE)

    def close(self) -> None:
        """Close the environments."""
        for env in self.environments:
            env.close()

    def _busy(self, index: int) -> None:
        # Left behind when a process is killed, it tells whose environment was running.
        self.board.write(self.worker, BUSY_WITH, index)


class Brief(NamedTuple):
    """What a worker is told when it starts."""

    worker: int
    indices: range
    board: BoardShape
    board_file: int
    report_file: int
    info_keys: tuple[str, ...]
    spin: float
    parent: int
    build: bytes
    """A pickled function without arguments that makes the environment."""


def main() -> None:
    """Serve until told to close; runs in a process of its own, with the brief on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the population, which closes its workers
    try:
        brief: Brief = pickle.load(sys.stdin.buffer)
    except EOFError:
        os._exit(1)  # the population went before it could say anything
    threading.Thread(target=_follow_parent, args=(brief.parent,), daemon=True).start()
    board = Board(brief.board, brief.board_file)
    with os.fdopen(brief.report_file, "w") as report:
        faulthandler.enable(report)  # a crash in a simulator leaves its Python stack there
        try:
            _serve(brief, board)
        except BaseException:
            report.write(traceback.format_exc())
            report.flush()
            board.publish(brief.worker, FAILED, 1)
    sys.stdout.flush()
    os._exit(0)  # nothing is left to be saved, and some simulators crash on the ordinary way out


def _serve(brief: Brief, board: Board) -> None:
    stepper = Stepper(pickle.loads(brief.build), brief.indices, board, brief.info_keys, brief.worker)
    done = 0
    board.publish(brief.worker, DONE, done)
    while True:
        board.wait(brief.worker, REQUEST, done + 1, spin=brief.spin, watch=_nothing)
        command = board.read(brief.worker, COMMAND)
        if command == CLOSE:
            stepper.close()
            return
        (stepper.step if command == STEP else stepper.reset)()
        done += 1
        board.publish(brief.worker, DONE, done)


def _follow_parent(parent: int) -> None:
    """End with the parent: its end of standard input closes with it, or, where a fork holds a copy, its id changes."""
    closed = select.poll()
    closed.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    while not closed.poll(1000) and os.getppid() == parent:
        pass
    with contextlib.suppress(Exception):
        faulthandler.disable()
    os._exit(1)


def _nothing() -> None:
    pass


def picklable(build: Callable[[], Any]) -> bytes:
    """The function as bytes, by value where it comes from a script or a notebook."""
    import cloudpickle

    packed: bytes = cloudpickle.dumps(build)
    return packed
