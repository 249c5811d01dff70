"""TensorBoard events with Stable-Baselines3's tags, so that runs of both can be compared."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sasr.files import IrregularFileError
from sasr.logs.recorders import ScalarRecorder, mean_and_error
from sasr.training.evaluate import Evaluation
from sasr.training.trainer import Trainer

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

NAME = "tensorboard"
INSTALL = 'no TensorBoard events, because tensorboard is not installed: pip install "sasr[tensorboard]"'


class TensorBoard(ScalarRecorder):
    """A folder of events for each seed, and one for the mean of several seeds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.writers: list[SummaryWriter] = []
        self.mean: SummaryWriter | None = None

    def begin(self, trainer: Trainer) -> None:
        """Open the writers; on a resumed run, events after its checkpoint are marked as void."""
        from torch.utils.tensorboard import SummaryWriter

        super().begin(trainer)
        # Also from step 0: a run killed before its first checkpoint starts over beside its old events.
        void_from = self.steps + 1 if self.steps else 0
        folder = self.run / NAME
        for place in folder.glob("*"):
            if place.is_symlink():  # in a run of somebody else's; events would go where it leads
                raise IrregularFileError(place)
        for seed in self.seeds:
            self.writers.append(SummaryWriter(str(folder / f"seed-{seed}"), purge_step=void_from))
        if len(self.seeds) > 1:
            self.mean = SummaryWriter(str(folder / "mean"), purge_step=void_from)
        self.timed_at, self.timed_steps = time.monotonic(), self.steps

    def rollout_scalars(self, steps: int) -> dict[str, NDArray[np.float64]]:
        """With the speed in steps a second."""
        now = time.monotonic()
        fps = (steps - self.timed_steps) / max(now - self.timed_at, 1e-9)
        self.timed_at, self.timed_steps = now, steps
        return super().rollout_scalars(steps) | {"time/fps": np.full(len(self.seeds), fps)}

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Flushed at once, for users who watch."""
        super().evaluation(steps, result)
        for writer in self._all():
            writer.flush()

    def close(self, steps: int) -> None:
        """Flush and close the writers."""
        for writer in self._all():
            writer.close()

    def write(self, steps: int, scalars: Mapping[str, NDArray[np.float64]]) -> None:
        """A value that is not finite is left out."""
        for tag, values in scalars.items():
            for writer, value in zip(self.writers, values, strict=True):
                if np.isfinite(value):
                    writer.add_scalar(tag, float(value), steps)
            mean, _ = mean_and_error(values)
            if self.mean and np.isfinite(mean):
                self.mean.add_scalar(tag, mean, steps)

    def _all(self) -> list[SummaryWriter]:
        if self.mean is None:
            return self.writers
        return [*self.writers, self.mean]
