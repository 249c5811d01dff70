"""A worker process of a population: it steps its environments on request, into shared memory."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from typing import NamedTuple

from sasr.envs.replayable import Stepper
from sasr.envs.shared_memory import (
    CLOSE,
    COMMAND,
    FAILED,
    RESTORE,
    SAVE,
    STEP,
    Bell,
    Board,
    BoardShape,
    fence,
    read_arrays,
    write_arrays,
)


class WorkerConfig(NamedTuple):
    """The arguments of a worker process."""

    worker: int
    indices: range
    board: BoardShape
    board_file: int
    report_file: int
    arrays_file: int
    """For memories of environments, in both directions."""
    worker_bell: int
    """The read end of a pipe that wakes the worker."""
    population_bell: int
    """The write end of a pipe that wakes the population."""
    info_keys: tuple[str, ...]
    spin: float
    parent: int
    build: bytes
    """A pickled function without arguments that makes the environment."""


def main() -> None:
    """Answer requests until one closes the worker; the config is on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the population handles Ctrl-C and closes its workers
    try:
        config: WorkerConfig = pickle.load(sys.stdin.buffer)
    except EOFError:
        os._exit(1)  # the population ended before it sent the config
    threading.Thread(target=_follow_parent, args=(config.parent,), daemon=True).start()
    board = Board(config.board, config.board_file)
    worker_bell, population_bell = Bell(config.worker_bell, -1), Bell(-1, config.population_bell)
    with os.fdopen(config.report_file, "w") as report:
        faulthandler.enable(report)  # writes the Python stack when a simulator crashes
        try:
            _serve(config, board, worker_bell, population_bell)
        except BaseException:
            report.write(traceback.format_exc())
            report.flush()
            fence()
            board.write(config.worker, FAILED, 1)
            population_bell.ring()
    sys.stdout.flush()
    os._exit(0)  # nothing is left to save, and some simulators crash in an ordinary exit


def _serve(config: WorkerConfig, board: Board, worker_bell: Bell, population_bell: Bell) -> None:
    worker = config.worker
    stepper = Stepper(pickle.loads(config.build), config.indices, board, config.info_keys, worker)
    gc.freeze()  # these objects stay; collections that visit them would delay the whole round
    board.done(worker, 0, population_bell)
    for number in itertools.count(1):
        board.wait_for_request(worker, number, worker_bell, config.spin)
        command = board.read(worker, COMMAND)
        if command == CLOSE:
            stepper.close()
            return
        if command == SAVE:
            write_arrays(config.arrays_file, stepper.save())
        elif command == RESTORE:
            stepper.restore(read_arrays(config.arrays_file))
        elif command == STEP:
            stepper.step()
        else:
            stepper.reset()
        board.done(worker, number, population_bell)


def _follow_parent(parent: int) -> None:
    """End with the parent: its end of standard input closes with it, or, where a fork holds a copy, its id changes."""
    closed = select.poll()
    closed.register(sys.stdin.fileno(), 0)  # a hang-up is always reported
    while not closed.poll(1000) and os.getppid() == parent:
        pass
    os._exit(1)
