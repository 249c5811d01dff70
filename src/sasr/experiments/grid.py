"""A plan carried out in a folder: finished runs stay, interrupted ones resume, failed ones are named."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sasr.experiments.job import RUNS, Job, State, is_done
from sasr.experiments.plan import GridRun, Plan
from sasr.experiments.runners import Runner
from sasr.files import write_whole
from sasr.logs.run_folder import read_facts

PLAN = "plan.json"
_EARLIER = "cells"
"""The folder of the runs before it was called `RUNS`."""


@dataclass
class Status:
    """The state of a job."""

    job: Job
    state: State = "waiting"
    reason: str = ""
    """Why it failed."""
    began: float = 0.0
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran; 0 before it starts."""
        if not self.began:
            return 0.0
        return (self.ended or time.monotonic()) - self.began


@dataclass
class Grid:
    """All jobs of a plan, with their states."""

    jobs: Sequence[Job]
    on_change: Callable[[Status], None] = lambda status: None
    """Called at each change of a state."""
    statuses: dict[str, Status] = field(init=False)

    def __post_init__(self) -> None:
        self.statuses = {job.run.id: Status(job) for job in self.jobs}
        for status in self.statuses.values():
            if is_done(status.job):
                status.state = "done"

    @property
    def left(self) -> list[Job]:
        """Jobs that are not done."""
        return [status.job for status in self.statuses.values() if status.state != "done"]

    def of(self, *states: State) -> list[Status]:
        """The jobs in some states."""
        return [status for status in self.statuses.values() if status.state in states]

    def run(self, runner: Runner) -> None:
        """Carry out what is left."""
        left = self.left
        if left:
            runner.run(left, self._change)
        for status in self.of("waiting", "running"):
            self._change(status.job, "failed", "the runner ended and did not report its outcome")

    def _change(self, job: Job, state: State, reason: str) -> None:
        status = self.statuses[job.run.id]
        now = time.monotonic()
        if state == "running":
            status.began = now
        else:
            status.ended = now
        status.state, status.reason = state, reason
        self.on_change(status)


def write_plan(plan: Plan, out: Path) -> None:
    """Write a plan into its grid's folder."""
    runs = [{"id": run.id, **run.to_json()} for run in plan.runs]
    write_whole(out / PLAN, json.dumps(runs, indent=1) + "\n")


def begun(out: Path) -> Callable[[GridRun], list[GridRun]]:
    """A function that finds the parts of a run that have a folder already; no seed is in two of them."""
    if (out / _EARLIER).is_dir():
        raise ValueError(f"{out} is a grid of an earlier sasr: rename {out / _EARLIER} to {out / RUNS}")
    folders: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for folder in sorted((out / RUNS).glob("*")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # a folder that can't be read can't be resumed
            seeds = tuple(read_facts(folder)["config"]["seeds"])
            folders.setdefault(_readable(folder.name), []).append((folder.name, seeds))

    def parts(run: GridRun) -> list[GridRun]:
        begun_parts: list[GridRun] = []
        left = set(run.seeds)
        for name, seeds in folders.get(_readable(run.id), ()):
            part = replace(run, seeds=seeds)
            if part.id == name and left.issuperset(seeds):
                begun_parts.append(part)
                left.difference_update(seeds)
        return begun_parts

    return parts


def _readable(run_id: str) -> str:
    return run_id.rpartition("-")[0]
