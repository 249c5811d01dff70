"""Two lanes of tensor work on a CPU: halves of a batch, or a pair of networks, each on a thread of its own.

Torch divides single operations among threads. Those of an update are short, so that most of the time one core waits
for the other, and each finds in its cache what the other one needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

T = TypeVar("T")
_HERE = threading.local()  # `busy` where a task runs: tasks within it are done one after the other


class _Lanes:
    """The second lane's thread, which waits for work when there is none."""

    def __init__(self) -> None:
        self.opened = False
        self.threads = 1  # that torch may use in each lane
        self.jobs: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[tuple[Any, BaseException | None]]]] = SimpleQueue()
        self.started = False

    def start(self) -> None:
        if not self.started:
            self.started = True
            threading.Thread(target=self._serve, name="sasr-second-lane", daemon=True).start()

    def _serve(self) -> None:
        _HERE.busy = True
        torch.set_grad_enabled(False)
        while True:
            job, answer = self.jobs.get()
            torch.set_num_threads(self.threads)  # of this thread; each has its own number
            try:
                answer.put((job(), None))
            except BaseException as error:
                answer.put((None, error))


_LANES = _Lanes()


@contextmanager
def two_lanes(wanted: bool = True) -> Iterator[None]:
    """Let `side_by_side` use two threads, if torch may use as many; torch itself has half of them in each lane."""
    before = torch.get_num_threads()
    if not wanted or before < 2 or _LANES.opened:
        yield
        return
    _LANES.start()
    _LANES.opened, _LANES.threads = True, before // 2
    torch.set_num_threads(_LANES.threads)
    try:
        yield
    finally:
        _LANES.opened = False
        torch.set_num_threads(before)


def side_by_side(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """The results of tasks, every other one done by the second lane if there is one; they must not need gradients."""
    if not _open() or len(tasks) < 2:
        return [task() for task in tasks]
    answer: SimpleQueue[tuple[list[T], BaseException | None]] = SimpleQueue()
    _LANES.jobs.put((lambda: [task() for task in tasks[1::2]], answer))
    _HERE.busy = True
    try:
        own = [task() for task in tasks[::2]]
    finally:
        _HERE.busy = False
        other, error = answer.get()
    if error is not None:
        raise error
    results: list[T] = [own[0]] * len(tasks)
    results[::2], results[1::2] = own, other
    return results


def halves(count: int) -> list[slice]:
    """All of `count` rows as one slice, or as two halves where there are two lanes."""
    if not _open() or count < 2:
        return [slice(0, count)]
    return [slice(0, count // 2), slice(count // 2, count)]


def _open() -> bool:
    return _LANES.opened and not getattr(_HERE, "busy", False)
