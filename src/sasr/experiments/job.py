"""One cell carried out: a run folder that is started or gone on with, then judged."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from sasr.api import Run, clear_up, go_on, start
from sasr.experiments.plan import Cell
from sasr.files import leftovers
from sasr.final_evaluation import NAME, evaluate_policy, write_judgement
from sasr.logs.metrics import NAME as METRICS
from sasr.logs.metrics import recorded_steps
from sasr.logs.recorders import mean_and_error
from sasr.policy import load_policy
from sasr.settings import TrainConfig
from sasr.training import checkpoint
from sasr.training.trainer import CHECKPOINTS

State = Literal["waiting", "running", "done", "failed", "stopped"]
FINAL_EPISODES = 100
"""Episodes of each seed in the final evaluation, as in the paper's Table 1."""
CELLS = "cells"
"""Folder of a grid that has its runs."""
_PATIENCE = 120.0  # seconds to wait for a run's former process, which saves its state before it ends
_TAIL = 2**16  # bytes of the metrics that the newest figures are looked for in


@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell, where it goes, and what it may use."""

    cell: Cell
    out: Path
    """Folder of the whole grid."""
    device: str = "auto"
    workers: int | None = None
    """Processes that step the environments."""
    threads: int = 1
    """Cores that it computes with."""
    final_episodes: int = FINAL_EPISODES
    events: bool = True
    """Write TensorBoard events."""
    track: str = ""
    """Also tell this service what happens."""
    command: str = ""
    """What was typed."""
    commit: str | None = None
    """Of the code, where that was typed."""
    need: int = 0
    """Bytes of memory that it will take, about: the device's where there is one."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.out / CELLS / self.cell.id

    @property
    def log(self) -> Path:
        """Where its process writes what it has to say."""
        return self.out / "logs" / f"{self.cell.id}.log"

    @property
    def modules(self) -> list[str]:
        """What its run may import: the module of the task that was asked for, whatever the run's folder names."""
        return [module] if (module := self.cell.task.rpartition(":")[0]) else []

    def to_json(self) -> dict[str, Any]:
        """Plain data, for another process."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return own | {"cell": self.cell.to_json(), "out": str(self.out.resolve())}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        """The job that another process was given."""
        return cls(**{**data, "cell": Cell.from_json(data["cell"]), "out": Path(data["out"])})


Tell = Callable[[Job, State, str], None]
"""Called when the state of a job changes; the text says why it failed."""


class Progress(NamedTuple):
    """How far a run is."""

    step: int = 0
    mean: float = float("nan")
    """Return of the newest evaluation, mean over seeds."""
    error: float = float("nan")
    """Its standard error."""


def run_job(job: Job) -> bool:
    """Train to the last step from wherever the run is, then judge it; False when a signal came first."""
    if is_done(job):
        return True
    run = _train(job)
    if not run.finished:
        return False
    _let_replay_go(run)
    clear_up(run)
    policy = load_policy(run.folder)
    result = evaluate_policy(policy, episodes=job.final_episodes, workers=job.workers, allow_import=job.modules)
    write_judgement(policy, result, seed=0, deterministic=True)
    return True


def is_done(job: Job) -> bool:
    """Whether nothing is left to do: the last policy was judged over enough episodes."""
    try:
        judged = json.loads((job.folder / NAME).read_bytes())
        return bool(judged["step"] >= job.cell.steps and judged["episodes"] >= job.final_episodes)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def progress_of(job: Job) -> Progress:
    """What the end of the run's metrics says; they are whole lines while a run writes them."""
    try:
        with (job.folder / METRICS).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return Progress()
    step, returns = 0, dict[int, float]()
    for line in reversed(lines):
        with suppress(ValueError, KeyError, TypeError):
            event = json.loads(line)
            step = max(step, int(event["step"]))
            if event["kind"] == "evaluation":
                returns.setdefault(event["member"], float(event["return_mean"]))
        if len(returns) == len(job.cell.seeds):
            break
    return Progress(step, *mean_and_error(np.array(list(returns.values())))) if returns else Progress(step)


def _train(job: Job) -> Run:
    """Start, or go on; a process that has just lost its runner may still be saving its state there."""
    patience = time.monotonic() + _PATIENCE
    while True:
        try:
            return _train_now(job)
        except FileExistsError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.5)


def _train_now(job: Job) -> Run:
    folder = job.folder
    if not (folder.exists() and set(folder.iterdir()) - set(leftovers(folder))):  # not begun, or killed at once
        told = {"method": job.cell.method.name, "command": job.command, "commit": job.commit}
        config = job.cell.config(device=job.device, workers=job.workers)
        return start(config, out=folder, events=job.events, track=job.track, told=told)
    run = Run(folder)
    if run.finished:
        return run
    run.config = _on(run.config, job)
    return go_on(run, events=job.events, track=job.track, allow_import=job.modules, start_over=_never_saved(run))


def _never_saved(run: Run) -> bool:
    """Whether a run ended before its first checkpoint was in place; one that took all its steps had one."""
    problems: list[Path] = []
    if checkpoint.newest(run.folder / CHECKPOINTS, lambda path, reason: problems.append(path)):
        return False
    half_written = [path for path in problems if path.suffix == ".partial"]
    damaged = len(problems) > len(half_written)
    return not damaged and (bool(half_written) or recorded_steps(run.folder) < run.config.steps)


def _on(config: TrainConfig, job: Job) -> TrainConfig:
    """A run goes on with its own settings, on whatever this job may use."""
    return dataclasses.replace(config, device=job.device, workers=job.workers)


def _let_replay_go(run: Run) -> None:
    """A finished run needs its replay buffer no more, and a grid of them would fill the disk."""
    place = run.folder / CHECKPOINTS
    found = checkpoint.newest(place)
    if found is None or "replay" not in found.parts:
        return
    parts = {name: found.read(name) for name in found.parts if name != "replay"}
    with suppress(OSError):  # it is only room
        checkpoint.write(place, parts, {**found.facts, "left_out": ["replay"]}, keep=1)
