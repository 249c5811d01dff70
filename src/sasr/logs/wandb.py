"""Experiment trackers by name, loaded only when one is asked for."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasr.errors import unknown_name
from sasr.logs.metrics import read_metrics
from sasr.logs.recent_episodes import Window, mean_and_error
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Silent, Trainer

TRACKERS = ("wandb",)
INSTALL = 'tracking with wandb needs wandb: pip install "sasr[wandb]"'


def check(name: str) -> None:
    """Raise unless this tracker is known and installed."""
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    if importlib.util.find_spec(name) is None:
        raise ImportError(INSTALL)


class Wandb(Silent):
    """One wandb run for each run folder: means over seeds under the tags of TensorBoard, seeds beside them.

    Where it goes is wandb's own affair: WANDB_MODE=offline keeps everything in the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        check("wandb")
        self.folder = folder
        self.run: Any = None

    def begin(self, trainer: Trainer) -> None:
        """Open it; a run that goes on is gone on with there too."""
        import wandb

        config, steps = trainer.config, trainer.loop.steps
        self.seeds, self.every, self.steps = config.seeds, config.log_every, steps
        self.window = Window(len(config.seeds))
        if steps:
            self.window.add_past(read_metrics(self.folder, "episode"))
        self.run = wandb.init(
            project="sasr",
            name=self.folder.name,
            group=config.task,
            job_type=config.shaper,
            dir=str(self.folder),
            config=json.loads(json.dumps(config.to_json())),
            settings=wandb.Settings(silent=True, disable_git=True, save_code=False),
        )

    def turned(self, steps: int) -> None:
        """The newest episodes, as often as the agent's figures."""
        if steps // self.every != self.steps // self.every:
            self._log(steps, {f"rollout/{name}": values for name, values in self.window.means().items()})
        self.steps = steps

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Into the window."""
        for own in ended:
            self.window.add(own.member, ret=own.ret, length=own.length, success=own.success)

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """As they are."""
        self._log(steps, figures)

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Mean return, length and success rate."""
        self._log(
            steps,
            {
                "eval/mean_reward": result.returns.mean(1),
                "eval/mean_ep_length": result.lengths.mean(1),
                "eval/success_rate": result.success.mean(1),
            },
        )

    def close(self, steps: int) -> None:
        """Write what waits."""
        if self.run is not None:
            self.run.finish()
            self.run = None

    def _log(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        told: dict[str, float] = {"step": steps}
        for tag, values in figures.items():
            told[tag] = mean_and_error(np.asarray(values, np.float64))[0]
            if len(self.seeds) > 1:
                told |= {f"seed-{seed}/{tag}": float(value) for seed, value in zip(self.seeds, values, strict=True)}
        self.run.log({tag: value for tag, value in told.items() if np.isfinite(value)})
