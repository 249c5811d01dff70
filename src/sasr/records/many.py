"""Several recorders as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Tells every recorder everything, in order; what they save is kept under their names."""

    def __init__(self, recorders: Mapping[str, ClosingRecorder]) -> None:
        self.recorders = dict(recorders)

    def begin(self, trainer: Trainer) -> None:
        """Tell them all."""
        for recorder in self.recorders.values():
            recorder.begin(trainer)

    def turned(self, steps: int) -> None:
        """Tell them all."""
        for recorder in self.recorders.values():
            recorder.turned(steps)

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Tell them all."""
        for recorder in self.recorders.values():
            recorder.episodes(steps, ended)

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """Tell them all."""
        for recorder in self.recorders.values():
            recorder.figures(steps, figures)

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Tell them all."""
        for recorder in self.recorders.values():
            recorder.evaluation(steps, result)

    def notice(self, steps: int, text: str) -> None:
        """Tell them all."""
        for recorder in self.recorders.values():
            recorder.notice(steps, text)

    def save(self) -> dict[str, Any]:
        """What each saves, by name."""
        return {name: recorder.save() for name, recorder in self.recorders.items()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Each goes on from what it saved; one that is new since then starts from nothing."""
        for name, recorder in self.recorders.items():
            recorder.load(saved.get(name, {}))

    def close(self, steps: int) -> None:
        """Close them all, the last first."""
        for recorder in reversed(self.recorders.values()):
            recorder.close(steps)
