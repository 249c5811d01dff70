"""One run of a grid: trained in its folder, from wherever it is, then evaluated."""

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

from sasr.api import Run, clean_up, resume, start
from sasr.experiments.plan import GridRun
from sasr.files import leftovers
from sasr.final_evaluation import NAME, evaluate_policy, write_evaluation
from sasr.logs.metrics import NAME as METRICS
from sasr.logs.metrics import recorded_steps
from sasr.logs.recorders import mean_and_error
from sasr.policy import load_policy
from sasr.training import checkpoint
from sasr.training.trainer import CHECKPOINTS

State = Literal["waiting", "running", "done", "failed", "stopped"]
FINAL_EPISODES = 100
"""Episodes of each seed in the final evaluation, as in the paper's Table 1."""
RUNS = "runs"
"""The folder with a grid's runs, in the grid's folder."""
_WAIT = 120.0  # seconds to wait for a run's former process, which saves its state before it ends
_TAIL = 2**16  # bytes at the end of the metrics, which have the newest evaluation


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run of a grid, its folder and its resources."""

    run: GridRun
    out: Path
    """Folder of the whole grid."""
    device: str = "auto"
    workers: int | None = None
    """Processes that step the environments."""
    threads: int = 1
    """Threads of torch."""
    final_episodes: int = FINAL_EPISODES
    events: bool = True
    """Write TensorBoard events."""
    track: str = ""
    """A service to log to, such as wandb."""
    command: str = ""
    """The command line of the grid."""
    commit: str | None = None
    """The commit of the code, where that command was typed."""
    memory: int = 0
    """Estimated bytes of memory: of the GPU where it runs on one."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.out / RUNS / self.run.id

    @property
    def log(self) -> Path:
        """The output of its process."""
        return self.out / "logs" / f"{self.run.id}.log"

    @property
    def modules(self) -> list[str]:
        """What a resumed run may import: the module of the plan's task, whatever its folder names."""
        module, colon, _ = self.run.task.rpartition(":")
        return [module] if colon else []

    def to_json(self) -> dict[str, Any]:
        """Plain data, for another process."""
        return vars(self) | {"run": self.run.to_json(), "out": str(self.out.resolve())}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        """The job that another process was given."""
        return cls(**{**data, "run": GridRun.from_json(data["run"]), "out": Path(data["out"])})


OnChange = Callable[[Job, State, str], None]
"""Called when the state of a job changes, with the reason where it failed."""


class Progress(NamedTuple):
    """The newest step and evaluation of a run."""

    step: int = 0
    mean: float = float("nan")
    """Return of the newest evaluation, mean over seeds."""
    error: float = float("nan")
    """Its standard error."""


def run_job(job: Job) -> bool:
    """Train to the last step from wherever the run is, then evaluate it; False when a signal came first."""
    if is_done(job):
        return True
    run = _train(job)
    if not run.finished:
        return False
    _drop_replay(run)
    clean_up(run)
    policy = load_policy(run.folder)
    result = evaluate_policy(policy, episodes=job.final_episodes, workers=job.workers, allow_import=job.modules)
    write_evaluation(policy, result, seed=0, deterministic=True)
    return True


def is_done(job: Job) -> bool:
    """Whether nothing is left to do: the last policy was evaluated over enough episodes."""
    try:
        evaluation = json.loads((job.folder / NAME).read_bytes())
        return bool(evaluation["step"] >= job.run.steps and evaluation["episodes"] >= job.final_episodes)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def progress_of(job: Job) -> Progress:
    """Read from the end of the run's metrics, which may be written to at the same time."""
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
        if len(returns) == len(job.run.seeds):
            break
    if not returns:
        return Progress(step)
    return Progress(step, *mean_and_error(np.array(list(returns.values()))))


def _train(job: Job) -> Run:
    """Start or resume; a process that has just lost its runner may still be saving its state there."""
    give_up = time.monotonic() + _WAIT
    while True:
        try:
            return _train_now(job)
        except FileExistsError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)


def _train_now(job: Job) -> Run:
    folder = job.folder
    if not folder.exists() or not set(folder.iterdir()) - set(leftovers(folder)):  # not started, or killed at once
        facts = {"method": job.run.method.name, "command": job.command, "commit": job.commit}
        config = job.run.config(device=job.device, workers=job.workers)
        return start(config, out=folder, events=job.events, track=job.track, extra_facts=facts)
    run = Run(folder)
    if run.finished:
        return run
    # The run's settings, on the devices and cores of this job.
    run.config = dataclasses.replace(run.config, device=job.device, workers=job.workers)
    return resume(
        run,
        progress=False,
        events=job.events,
        track=job.track,
        allow_import=job.modules,
        start_over=_never_saved(run),
    )


def _never_saved(run: Run) -> bool:
    """Whether a run ended before its first checkpoint was in place; one that took all its steps had one."""
    problems: list[Path] = []
    if checkpoint.newest(run.folder / CHECKPOINTS, lambda path, reason: problems.append(path)):
        return False
    half_written = [path for path in problems if path.suffix == ".partial"]
    damaged = len(problems) > len(half_written)
    return not damaged and (bool(half_written) or recorded_steps(run.folder) < run.config.steps)


def _drop_replay(run: Run) -> None:
    """Remove the replay buffer of a finished run from its checkpoint; a grid of them would fill the disk."""
    folder = run.folder / CHECKPOINTS
    newest = checkpoint.newest(folder)
    if newest is None or "replay" not in newest.parts:
        return
    parts = {name: newest.read(name) for name in newest.parts if name != "replay"}
    with suppress(OSError):  # only disk space is lost
        checkpoint.write(folder, parts, {**newest.facts, "left_out": ["replay"]}, keep=1)
