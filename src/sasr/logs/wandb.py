"""Experiment trackers, imported only if they are used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasr.errors import need, unknown_name
from sasr.logs.recorders import ScalarRecorder, mean_and_error
from sasr.training.trainer import Trainer

TRACKERS = ("wandb",)


def check(name: str) -> None:
    """Raise unless this tracker is known and installed."""
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    need("wandb", extra="wandb", to="track with wandb")


class Wandb(ScalarRecorder):
    """One wandb run for each run folder: means over seeds under TensorBoard's tags, and the seeds' values.

    WANDB_MODE=offline keeps everything in the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        check("wandb")
        super().__init__(folder)
        self.tracked: Any = None

    def begin(self, trainer: Trainer) -> None:
        """Open it; a run that is resumed is resumed there too."""
        import wandb

        super().begin(trainer)
        config = trainer.config
        self.tracked = wandb.init(
            project="sasr",
            name=self.run.name,
            group=config.task,
            job_type=config.shaper,
            dir=str(self.run),
            config=json.loads(json.dumps(config.to_json())),
            settings=wandb.Settings(silent=True, disable_git=True, save_code=False),
        )

    def close(self, steps: int) -> None:
        """Finish the upload."""
        if self.tracked is not None:
            self.tracked.finish()
            self.tracked = None

    def write(self, steps: int, scalars: Mapping[str, NDArray[np.float64]]) -> None:
        """A value that is not finite is left out."""
        logged: dict[str, float] = {"step": steps}
        for tag, values in scalars.items():
            logged[tag] = mean_and_error(np.asarray(values, np.float64))[0]
            if len(self.seeds) > 1:
                for seed, value in zip(self.seeds, values, strict=True):
                    logged[f"seed-{seed}/{tag}"] = float(value)
        self.tracked.log({tag: value for tag, value in logged.items() if np.isfinite(value)})
