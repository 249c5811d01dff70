"""A process for each job on this machine, as many at a time as cores and memory allow."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sasr.experiments.job import Job
from sasr.experiments.runners.protocol import Tell
from sasr.experiments.worker import launch, outcome

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
