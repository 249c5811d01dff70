"""What carries jobs out on this machine: one after the other in this process, or a pool of processes."""

from __future__ import annotations

import math
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch

from sasr.envs.worker_pool import cores
from sasr.experiments.estimate import Footprint
from sasr.experiments.job import Job, Tell, run_job
from sasr.experiments.plan import Cell, Plan
from sasr.experiments.worker import launch, outcome


class Inline:
    """The simplest runner: nothing is started, so a debugger sees everything."""

    def check(self, jobs: Sequence[Job]) -> None:
        """Whatever a run needs, this process has."""

    def run(self, jobs: Sequence[Job], tell: Tell) -> None:
        """Run them in order; the first that is stopped stops the rest."""
        before = torch.get_num_threads()
        try:
            self._run(jobs, tell)
        finally:
            torch.set_num_threads(before)

    def _run(self, jobs: Sequence[Job], tell: Tell) -> None:
        stopped = False
        for job in jobs:
            if stopped:
                tell(job, "stopped", "")
                continue
            tell(job, "running", "")
            torch.set_num_threads(job.threads)
            try:
                stopped = not run_job(job)
                tell(job, "stopped" if stopped else "done", "")
            except KeyboardInterrupt:
                stopped = True
                tell(job, "stopped", "")
            except Exception as error:
                job.log.parent.mkdir(parents=True, exist_ok=True)
                with job.log.open("a") as log:
                    log.write(traceback.format_exc())
                tell(job, "failed", f"{type(error).__name__}: {error}")


class Runner(Protocol):
    """Carries jobs out. Every job ends as done, failed or stopped; none is dropped."""

    def check(self, jobs: Sequence[Job]) -> None:
        """Raise if these jobs can't be run here; called before any is started."""
        ...

    def run(self, jobs: Sequence[Job], tell: Tell) -> None:
        """Run them; one that fails does not keep the others from running. Ctrl-C stops all with a checkpoint."""
        ...


Where = Literal["pool", "inline", "ray"]
"""Where jobs are carried out."""
_GRACE = 120.0  # seconds that stopped processes have to save their state


@dataclass
class Room:
    """A place where jobs take memory: this machine, or one of its GPUs."""

    name: str
    """What CUDA_VISIBLE_DEVICES calls it; empty for the machine itself."""
    bytes: int
    taken: int = 0

    def holds(self, need: int) -> bool:
        """Whether a job fits beside the others; one alone is always tried, since needs are estimates."""
        return self.taken == 0 or self.taken + need <= self.bytes


class Pool:
    """Starts processes and watches them; a job that is killed or fails is told, and the others go on."""

    def __init__(self, *, cores: int, rooms: Sequence[Room]) -> None:
        """Nothing is started yet.

        Args:
            cores: Cores that jobs may compute with, all together.
            rooms: Where they take memory; a job is put where most is left.
        """
        self.cores, self.rooms = cores, list(rooms)
        self.running: dict[str, tuple[subprocess.Popen[bytes], Job, Room]] = {}

    def check(self, jobs: Sequence[Job]) -> None:
        """Whatever this process can run, another on this machine can."""

    def run(self, jobs: Sequence[Job], tell: Tell) -> None:
        """Start jobs in order, each as soon as there is room for it."""
        waiting = list(jobs)
        try:
            while waiting or self.running:
                self._start(waiting, tell)
                self._reap(tell)
                time.sleep(0.1)
        except KeyboardInterrupt:
            self._stop(tell)
            for job in waiting:
                tell(job, "stopped", "")

    def _start(self, waiting: list[Job], tell: Tell) -> None:
        for job in list(waiting):
            busy = sum(own.threads for _, own, _ in self.running.values())
            room = max(self.rooms, key=lambda own: own.bytes - own.taken)
            if self.running and (busy + job.threads > self.cores or not room.holds(job.need)):
                continue  # a smaller one behind it may fit
            waiting.remove(job)
            room.taken += job.need
            env = {"CUDA_VISIBLE_DEVICES": room.name} if room.name else {}
            self.running[job.cell.id] = (launch(job, env=env), job, room)
            tell(job, "running", "")

    def _reap(self, tell: Tell) -> None:
        for name, (process, job, room) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[name]
            room.taken -= job.need
            tell(job, *outcome(job, code))

    def _stop(self, tell: Tell) -> None:
        """Ask all to save their state and end; who does not is killed, and goes on from its last checkpoint."""
        for process, _, _ in self.running.values():
            process.terminate()
        patience = time.monotonic() + _GRACE
        try:
            while self.running and time.monotonic() < patience:
                for name, (process, job, _) in list(self.running.items()):
                    if process.poll() is not None:
                        del self.running[name]
                        tell(job, "stopped", "")
                time.sleep(0.1)
        except KeyboardInterrupt:  # a second time: at once
            pass
        for process, job, _ in self.running.values():
            process.kill()
            process.wait()
            tell(job, "stopped", "")
        self.running.clear()


def machine_rooms(device: str) -> list[Room]:
    """The memory of this machine, or of its GPUs where jobs run there."""
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return [Room("", int(0.85 * _machine_bytes()))]
    asked = torch.device("cuda" if device == "auto" else device)
    numbers = range(torch.cuda.device_count()) if asked.index is None else [asked.index]
    visible = [own for own in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if own]
    return [
        Room(
            visible[number] if visible else str(number),
            int(0.9 * torch.cuda.get_device_properties(number).total_memory),
        )
        for number in numbers
    ]


def _machine_bytes() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 8 * 2**30  # a system that does not tell


class Share(NamedTuple):
    """What each cell of a grid may use of this machine, or of a node of a cluster."""

    at_once: int
    """Cells at a time."""
    threads: int
    """Cores that each computes with."""
    workers: int | None
    """Processes that step the environments of each."""

    def workers_of(self, cell: Cell) -> int | None:
        """No more of them than environments."""
        return self.workers and min(self.workers, len(cell.seeds) * cell.config().environments)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Where cells run and what they may use all together, as the user asked for it; None where not."""

    on: Where
    jobs: int | None
    threads: int | None
    population: int | None
    rooms: Sequence[Room]

    def most_seeds(self, plan: Plan, footprints: Mapping[str, Footprint]) -> Callable[[Cell], int]:
        """How many seeds of a cell one process takes."""
        if self.population or self.on == "ray":
            return lambda cell: self.population or len(cell.seeds)
        # On CPUs processes of one thread get more done than threads of one process (benchmarks/sharing.py). On a GPU
        # that depends on whether processes can use it together, so there it is for people to ask for.
        on_cpus = self.on == "pool" and not any(room.name for room in self.rooms)
        processes = 1
        if on_cpus:
            processes = max(1, self._slots() // len(plan.cells))
        room = min(room.bytes for room in self.rooms)

        def most(cell: Cell) -> int:
            share = math.ceil(len(cell.seeds) / processes)
            if cell.kind in footprints:
                share = min(share, footprints[cell.kind].seeds_within(room, cell))
            return share

        return most

    def shared(self, cells: int) -> Share:
        """The share of each of so many cells."""
        at_once = min(self._slots(), cells)
        if self.on == "inline":
            at_once = 1
        threads = self.threads or max(1, cores() // at_once)
        if self.on == "ray":
            threads = self.threads or 1
        if at_once == 1:
            return Share(1, threads, None)
        return Share(at_once, threads, 0 if threads == 1 else threads)

    def threads_of(self, cells: Sequence[Cell]) -> int:
        """The cores that each process is going to compute with, as far as that is known before cells are split."""
        most = self.population or 1
        return self.shared(sum(math.ceil(len(cell.seeds) / most) for cell in cells)).threads

    def _slots(self) -> int:
        """Cells at a time, where there are enough of them."""
        return self.jobs or max(1, cores() // (self.threads or 1))

    def runner(self, share: Share) -> Runner:
        """For this machine."""
        if self.on == "inline":
            return Inline()
        return Pool(cores=share.at_once * share.threads, rooms=self.rooms)
