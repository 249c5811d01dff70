"""A grid of 2 tasks × 2 methods × 2 seeds that takes seconds, and what its runs recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sasr.experiments.grid import Grid
from sasr.experiments.job import Job
from sasr.experiments.plan import GridRun, changed, grid
from sasr.experiments.runners import Runner
from sasr.logs.metrics import read_metrics

AGENT = {"hidden": [8, 8], "burn_in": 40, "batch_size": 16}
SETTINGS = {"eval_every": 100, "eval_episodes": 2, "log_every": 50, "checkpoint_minutes": 0.004}
FLAGS = (
    *("--set", "agent.hidden=8,8", "--set", "agent.burn_in=40", "--set", "agent.batch_size=16"),
    *("--eval-every", "100", "--eval-episodes", "2", "--checkpoint-minutes", "0.004", "--device", "cpu"),
    *("--final-episodes", "2", "--no-tensorboard", "--threads", "1"),
)


def small_runs(
    tasks: Sequence[str] = ("Pendulum-v1", "MountainCar"),
    methods: Sequence[str] = ("sasr", "sac"),
    *,
    seeds: int = 2,
    steps: int = 300,
) -> list[GridRun]:
    return changed(grid(tasks, methods, seeds=seeds, steps=steps), agent=AGENT, settings=SETTINGS)


def jobs(out: Path, own: Sequence[GridRun] | None = None) -> list[Job]:
    same: dict[str, Any] = {"out": out, "device": "cpu", "workers": 0, "final_episodes": 2, "events": False}
    return [Job(run=run, **same) for run in own or small_runs()]


def carried_out(runner: Runner, out: Path, own: Sequence[GridRun] | None = None) -> Grid:
    made = Grid(jobs(out, own))
    made.run(runner)
    return made


def recorded(out: Path) -> dict[str, list[dict[str, Any]]]:
    """What must not depend on who ran a run, by run: every episode, figure and evaluation, and the last judgement."""
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in sorted((out / "runs").iterdir()):
        events = read_metrics(folder, "episode", "figures", "evaluation")
        found[folder.name] = [*events, json.loads((folder / "eval.json").read_text())]
    return found
