"""Ending a run by Ctrl-C or SIGTERM, so that its last checkpoint is written all the same."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class InterruptedBySignal(BaseException):  # not an error: no environment should catch it as one
    """Raised by a signal in the middle of something that `interruptible` surrounds."""


class StopSignals:
    """The first Ctrl-C or SIGTERM asks a run to end after the step under way; another Ctrl-C ends it at once.

    Another SIGTERM does not: a cluster sends it to a runner and to its processes, and the runner passes its own on.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        """The number of the newest signal."""
        self._interruptible = self._ending = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Within, signals are handled as above; only the main thread can do so."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers_before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers_before.items():
                signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within, a signal raises `InterruptedBySignal` at once: for what may never end."""
        try:
            self._interruptible = True
            if self.received is not None:  # between the last step and here
                raise InterruptedBySignal
            yield
        finally:
            self._interruptible = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        at_once = self.received is not None and number == signal.SIGINT
        self.received = number
        if at_once and not self._ending:
            self._ending = True  # a third one would break off the removal of a half-written checkpoint
            raise KeyboardInterrupt
        if self._interruptible:
            self._interruptible = False
            raise InterruptedBySignal
