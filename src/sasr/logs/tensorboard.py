"""TensorBoard events with Stable-Baselines3's tags, so that runs of both lie side by side."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sasr.logs.metrics import read_metrics
from sasr.logs.recent_episodes import Window, mean_and_error
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Silent, Trainer

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

NAME = "tensorboard"
INSTALL = 'no TensorBoard events, as tensorboard is not installed: pip install "sasr[tensorboard]"'


def available() -> bool:
    """Whether events can be written."""
    return importlib.util.find_spec("tensorboard") is not None


class TensorBoard(Silent):
    """A sub-folder of events for each seed, and one for their mean where there are several."""

    def __init__(self, folder: Path) -> None:
        self.run, self.folder = folder, folder / NAME
        self.writers: list[SummaryWriter] = []
        self.mean: SummaryWriter | None = None

    def begin(self, trainer: Trainer) -> None:
        """Open the writers; events from after the checkpoint that a run goes on from are marked as void."""
        from torch.utils.tensorboard import SummaryWriter

        config, steps = trainer.config, trainer.loop.steps
        names = [f"seed-{seed}" for seed in config.seeds] + (["mean"] if len(config.seeds) > 1 else [])
        # Always given: a run killed before its first checkpoint starts anew beside its own old events.
        void_from = steps + 1 if steps else 0
        opened = [SummaryWriter(str(self.folder / name), purge_step=void_from) for name in names]
        self.writers, self.mean = opened[: len(config.seeds)], opened[-1] if len(config.seeds) > 1 else None
        self.window = Window(len(config.seeds))
        if steps:
            self.window.add_past(read_metrics(self.run, "episode"))
        self.every, self.steps = config.log_every, steps
        self.told_at, self.told_steps = time.monotonic(), steps

    def turned(self, steps: int) -> None:
        """The newest episodes and the speed, as often as the agent's figures."""
        if steps // self.every == self.steps // self.every:
            self.steps = steps
            return
        self.steps = steps
        now = time.monotonic()
        fps = (steps - self.told_steps) / max(now - self.told_at, 1e-9)
        self.told_at, self.told_steps = now, steps
        means = {f"rollout/{name}": values for name, values in self.window.means().items()}
        self._write(steps, means | {"time/fps": np.full(len(self.writers), fps)})

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Into the window; the return is the environment's, whatever the shaper adds."""
        for own in ended:
            self.window.add(own.member, ret=own.ret, length=own.length, success=own.success)

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """As they are: their names begin with train/ or shaping/."""
        self._write(steps, figures)

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Mean return, length and success rate."""
        self._write(
            steps,
            {
                "eval/mean_reward": result.returns.mean(1),
                "eval/mean_ep_length": result.lengths.mean(1),
                "eval/success_rate": result.success.mean(1),
            },
        )
        for writer in self._all():
            writer.flush()

    def close(self, steps: int) -> None:
        """Write what waits."""
        for writer in self._all():
            writer.close()

    def _all(self) -> list[SummaryWriter]:
        return [*self.writers, self.mean] if self.mean else self.writers

    def _write(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        for tag, values in figures.items():
            for writer, value in zip(self.writers, values, strict=True):
                if np.isfinite(value):
                    writer.add_scalar(tag, float(value), steps)
            mean, _ = mean_and_error(values)
            if self.mean and np.isfinite(mean):
                self.mean.add_scalar(tag, mean, steps)
