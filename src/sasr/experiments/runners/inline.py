"""One job after the other, in this process."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch

from sasr.experiments.job import Job, run_job
from sasr.experiments.runners.protocol import Tell


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
