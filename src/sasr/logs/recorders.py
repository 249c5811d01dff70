"""Several recorders as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Recorder, Trainer


class ClosingRecorder(Recorder, Protocol):
    """A recorder that is told when the run ends."""

    def close(self, steps: int) -> None:
        """The run ended at `steps`, well or not; called once."""
        ...


class Many:
    """Tells every recorder everything, in order; what they save is kept under their names.

    A run needs its metrics and its checkpoints. Where another recorder fails, a notice says so once and the run goes
    on.
    """

    def __init__(self, recorders: Mapping[str, ClosingRecorder], *, essential: str = "metrics") -> None:
        self.recorders, self.essential = dict(recorders), essential
        self._steps = 0
        self._failed: set[str] = set()

    def begin(self, trainer: Trainer) -> None:
        """Tell them all."""
        self._steps = trainer.loop.steps
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                recorder.begin(trainer)

    def turned(self, steps: int) -> None:
        """Tell them all."""
        self._steps = steps
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                recorder.turned(steps)

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Tell them all."""
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                recorder.episodes(steps, ended)

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """Tell them all."""
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                recorder.figures(steps, figures)

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Tell them all."""
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                recorder.evaluation(steps, result)

    def notice(self, steps: int, text: str) -> None:
        """Tell them all."""
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                recorder.notice(steps, text)

    def save(self) -> dict[str, Any]:
        """What each saves, by name."""
        saved: dict[str, Any] = {}
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                saved[name] = recorder.save()
        return saved

    def load(self, saved: Mapping[str, Any]) -> None:
        """Each goes on from what it saved; one that is new since then starts from nothing."""
        for name, recorder in self.recorders.items():
            with self._may_fail(name):
                recorder.load(saved.get(name, {}))

    def close(self, steps: int) -> None:
        """Close them all, the last first."""
        for name, recorder in reversed(self.recorders.items()):
            with self._may_fail(name):
                recorder.close(steps)

    @contextmanager
    def _may_fail(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if name == self.essential:
                raise
            if name not in self._failed:
                self._failed.add(name)
                self.notice(self._steps, f"{name} failed ({type(error).__name__}: {error}); the run goes on")
