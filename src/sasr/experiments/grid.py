"""A plan carried out in a folder: what is done stays done, what was interrupted goes on, what fails is named."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sasr.experiments.job import CELLS, Job, State, is_done
from sasr.experiments.plan import Cell, Plan
from sasr.experiments.runners import Runner
from sasr.files import write_whole
from sasr.logs.run_folder import read_facts

PLAN = "plan.json"


@dataclass
class Status:
    """Where a job is."""

    job: Job
    state: State = "waiting"
    why: str = ""
    began: float = 0.0
    ended: float = 0.0
    before: bool = False
    """Done already when the grid was started."""

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        return (self.ended or time.monotonic()) - self.began if self.began else 0.0


@dataclass
class Grid:
    """All jobs of a plan, with their states."""

    jobs: Sequence[Job]
    told: Callable[[Status], None] = lambda status: None
    """Called at each change of a state."""
    statuses: dict[str, Status] = field(init=False)

    def __post_init__(self) -> None:
        self.statuses = {job.cell.id: Status(job) for job in self.jobs}
        for status in self.statuses.values():
            if is_done(status.job):
                status.state, status.before = "done", True

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
            runner.run(left, self._tell)
        for status in self.of("waiting", "running"):
            self._tell(status.job, "failed", "the runner ended without a word about it")

    def _tell(self, job: Job, state: State, why: str) -> None:
        status = self.statuses[job.cell.id]
        now = time.monotonic()
        if state == "running":
            status.began = now
        else:
            status.ended = now
        status.state, status.why = state, why
        self.told(status)


def write_plan(plan: Plan, out: Path) -> None:
    """Put a plan into its grid's folder."""
    write_whole(out / PLAN, json.dumps([{"id": cell.id, **cell.to_json()} for cell in plan.cells], indent=1) + "\n")


def begun(out: Path) -> Callable[[Cell], list[Cell]]:
    """What of a cell has a run's folder already: parts with some of its seeds, no seed in two of them."""
    runs: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for folder in sorted((out / CELLS).glob("*")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # one that can't be read has nothing to go on from
            seeds = tuple(read_facts(folder)["config"]["seeds"])
            runs.setdefault(_readable(folder.name), []).append((folder.name, seeds))

    def parts(cell: Cell) -> list[Cell]:
        found: list[Cell] = []
        left = set(cell.seeds)
        for name, seeds in runs.get(_readable(cell.id), ()):
            part = replace(cell, seeds=seeds)
            if part.id == name and left.issuperset(seeds):
                found.append(part)
                left.difference_update(seeds)
        return found

    return parts


def _readable(cell_id: str) -> str:
    return cell_id.rpartition("-")[0]
