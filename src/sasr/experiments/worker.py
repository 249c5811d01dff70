"""A process for one cell: `python -m sasr.experiments.worker JOB`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from sasr.experiments.job import Job, State, run_job

STOPPED = 3
"""Exit code of a process that was asked to stop, and has saved where it was."""


def launch(job: Job, *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process for a job; what it says goes to the job's log, after what earlier ones said."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "sasr.experiments.worker", json.dumps(job.to_json()), str(os.getpid())]
    with job.log.open("ab") as log:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": str(job.threads), **(env or {})},
            start_new_session=True,  # Ctrl-C is for the runner, which asks its processes to stop
        )


def outcome(job: Job, code: int) -> tuple[State, str]:
    """What became of a job whose process ended with `code`, and why where it failed."""
    if code == 0:
        return "done", ""
    return ("stopped", "") if code == STOPPED else ("failed", _why(job, code))


def _why(job: Job, code: int) -> str:
    """What is known of a process that ended badly."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}" + (", perhaps for want of memory" if -code == signal.SIGKILL else "")
    try:
        lines = [line for line in job.log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1].strip() if lines else f"ended with {code}"


def main() -> int:
    """0: the cell is done. 3: stopped, with a checkpoint. Anything else: the log says why."""
    job, runner = Job.from_json(json.loads(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_stop_without, args=(runner,), daemon=True).start()
    with suppress(OSError):  # not by print: what a full disk did not take would fail again at the end of the process
        os.write(1, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {job.cell}: process {os.getpid()}\n".encode())
    try:
        return 0 if run_job(job) else STOPPED
    except KeyboardInterrupt:
        return STOPPED


def _stop_without(runner: int) -> None:
    """A process whose runner was killed saves its state and ends, so that the next runner can take the cell over."""
    while os.getppid() == runner:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
