"""Runners for this machine: jobs one after the other in this process, or in a pool of processes."""

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

from sasr.api import complete
from sasr.envs.worker_pool import cores
from sasr.experiments.estimate import Footprint
from sasr.experiments.job import Job, OnChange, State, run_job
from sasr.experiments.plan import GridRun, Plan
from sasr.experiments.worker import launch, outcome


class Runner(Protocol):
    """Carries out jobs. Every job ends as done, failed or stopped; none is dropped."""

    def run(self, jobs: Sequence[Job], on_change: OnChange) -> None:
        """Run them; when one fails the others go on. Ctrl-C stops all of them with a checkpoint."""
        ...


class Inline:
    """Runs all jobs in this process, where a debugger sees everything."""

    def run(self, jobs: Sequence[Job], on_change: OnChange) -> None:
        """Run them in order; when one is stopped, the others are not started."""
        threads_before = torch.get_num_threads()
        state: State = "done"
        reason = ""
        try:
            for job in jobs:
                if state != "stopped":
                    on_change(job, "running", "")
                    torch.set_num_threads(job.threads)
                    state, reason = _run_here(job)
                on_change(job, state, reason)
        finally:
            torch.set_num_threads(threads_before)


def _run_here(job: Job) -> tuple[State, str]:
    """Run a job in this process; returns its state, and the reason where it failed."""
    try:
        return ("done" if run_job(job) else "stopped"), ""
    except KeyboardInterrupt:
        return "stopped", ""
    except Exception as error:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("a") as log:
            log.write(traceback.format_exc())
        return "failed", f"{type(error).__name__}: {error}"


Where = Literal["pool", "inline", "ray"]
_GRACE = 120.0  # seconds for stopped processes to write a checkpoint


@dataclass
class Memory:
    """The memory of this machine, or of one of its GPUs."""

    gpu: str
    """Its name in CUDA_VISIBLE_DEVICES; empty for the machine itself."""
    bytes: int
    taken: int = 0

    def fits(self, job_bytes: int) -> bool:
        """Whether a job fits beside the others; one alone is always tried, since its size is an estimate."""
        return self.taken == 0 or self.taken + job_bytes <= self.bytes


class Pool:
    """Runs each job in a process; when one fails or is killed, the others go on."""

    def __init__(self, *, cores: int, memories: Sequence[Memory]) -> None:
        """Nothing is started yet.

        Args:
            cores: Cores for all jobs together.
            memories: Of the machine, or of each of its GPUs; a job is put where most is left.
        """
        self.cores, self.memories = cores, list(memories)
        self.running: dict[str, tuple[subprocess.Popen[bytes], Job, Memory]] = {}

    def run(self, jobs: Sequence[Job], on_change: OnChange) -> None:
        """Start jobs in order, each as soon as cores and memory are free."""
        waiting = list(jobs)
        try:
            while waiting or self.running:
                self._start(waiting, on_change)
                self._collect_ended(on_change)
                time.sleep(0.1)
        except KeyboardInterrupt:
            self._stop(on_change)
            for job in waiting:
                on_change(job, "stopped", "")

    def _start(self, waiting: list[Job], on_change: OnChange) -> None:
        for job in list(waiting):
            busy_cores = sum(running.threads for _, running, _ in self.running.values())
            memory = max(self.memories, key=lambda memory: memory.bytes - memory.taken)
            if self.running and (busy_cores + job.threads > self.cores or not memory.fits(job.memory)):
                continue  # a smaller one behind it may fit
            waiting.remove(job)
            memory.taken += job.memory
            env = {"CUDA_VISIBLE_DEVICES": memory.gpu} if memory.gpu else {}
            self.running[job.run.id] = (launch(job, env=env), job, memory)
            on_change(job, "running", "")

    def _collect_ended(self, on_change: OnChange) -> None:
        for name, (process, job, memory) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[name]
            memory.taken -= job.memory
            on_change(job, *outcome(job, code))

    def _stop(self, on_change: OnChange) -> None:
        """Ask all processes to write a checkpoint and end; those that do not in time are killed."""
        for process, _, _ in self.running.values():
            process.terminate()
        give_up = time.monotonic() + _GRACE
        try:
            while self.running and time.monotonic() < give_up:
                for name, (process, job, _) in list(self.running.items()):
                    code = process.poll()
                    if code is None:
                        continue
                    del self.running[name]
                    if code < 0:  # the signal came before it could be caught
                        on_change(job, "stopped", "")
                    else:
                        on_change(job, *outcome(job, code))
                time.sleep(0.1)
        except KeyboardInterrupt:  # pressed again: do not wait
            pass
        for process, job, _ in self.running.values():
            process.kill()
            process.wait()
            on_change(job, "stopped", "")
        self.running.clear()


def memories_of(device: str) -> list[Memory]:
    """The memory of this machine, or of the GPUs that a device's name stands for."""
    if device == "cpu" or not torch.cuda.is_available():
        return [Memory("", int(0.85 * _machine_bytes()))]
    if device == "auto":
        device = "cuda"
    index = torch.device(device).index
    indices = range(torch.cuda.device_count()) if index is None else [index]
    visible = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    memories = []
    for index in indices:
        total = torch.cuda.get_device_properties(index).total_memory
        memories.append(Memory(visible[index] if visible else str(index), int(0.9 * total)))
    return memories


def _machine_bytes() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 8 * 2**30  # Windows has no sysconf


class Share(NamedTuple):
    """The part of this machine, or of a node of a cluster, for each run of a grid."""

    at_once: int
    """Runs at a time."""
    threads: int
    """Threads of torch in each."""
    workers: int | None
    """Processes that step the environments of each; None chooses."""

    def workers_of(self, run: GridRun) -> int | None:
        """The workers of one run, no more than its environments."""
        if self.workers is None:
            return None
        return min(self.workers, len(run.seeds) * complete(run.config()).envs)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What all runs together may use, from the flags; None where a flag is not given."""

    on: Where
    jobs: int | None
    threads: int | None
    population: int | None
    memories: Sequence[Memory]

    def most_seeds(self, plan: Plan, footprints: Mapping[str, Footprint]) -> Callable[[GridRun], int]:
        """A function that says how many seeds of a run one process takes."""
        if self.population or self.on == "ray":
            return lambda run: self.population or len(run.seeds)
        # On CPUs several processes of one thread are faster than one process of several threads
        # (benchmarks/sharing.py). GPUs differ in whether processes can share them, so there users decide.
        processes = 1
        if self.on == "pool" and not any(memory.gpu for memory in self.memories):
            processes = max(1, self._slots() // len(plan.runs))
        smallest = min(memory.bytes for memory in self.memories)

        def most_seeds_of(run: GridRun) -> int:
            most = math.ceil(len(run.seeds) / processes)
            if run.settings_digest in footprints:
                most = min(most, footprints[run.settings_digest].seeds_within(smallest, run))
            return most

        return most_seeds_of

    def shared(self, runs: int) -> Share:
        """The share of each of so many runs."""
        at_once = min(self._slots(), runs)
        if self.on == "inline":
            at_once = 1
        threads = self.threads or max(1, cores() // at_once)
        if self.on == "ray":
            threads = self.threads or 1
        workers: int | None = threads
        if at_once == 1:
            workers = None
        elif threads == 1:
            workers = 0
        return Share(at_once, threads, workers)

    def threads_of(self, runs: Sequence[GridRun]) -> int:
        """The threads of each process, estimated before runs are split."""
        seeds_each = self.population or 1
        processes = sum(math.ceil(len(run.seeds) / seeds_each) for run in runs)
        return self.shared(processes).threads

    def _slots(self) -> int:
        """The most runs at a time."""
        return self.jobs or max(1, cores() // (self.threads or 1))

    def runner(self, share: Share) -> Runner:
        """The runner for this machine."""
        if self.on == "inline":
            return Inline()
        return Pool(cores=share.at_once * share.threads, memories=self.memories)
