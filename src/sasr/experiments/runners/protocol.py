"""What every runner offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from sasr.experiments.job import Job

State = Literal["waiting", "running", "done", "failed", "stopped"]
Tell = Callable[[Job, State, str], None]
"""Told when the state of a job changes; the text says why it failed."""


class Runner(Protocol):
    """Carries jobs out. Every job ends as done, failed or stopped; none is dropped."""

    def check(self, jobs: Sequence[Job]) -> None:
        """Raise if these jobs can't be run here; called before any is started."""
        ...

    def run(self, jobs: Sequence[Job], tell: Tell) -> None:
        """Run them; one that fails does not keep the others from running. Ctrl-C stops all with a checkpoint."""
        ...
