"""A process for one run: `python -m sasr.experiments.worker JOB`."""

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
"""Exit code of a process that was asked to stop, and has written a checkpoint."""


def launch(job: Job, *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process for a job; its output is appended to the job's log."""
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
    """The state of a job whose process ended with `code`, and the reason where it failed."""
    if code == 0:
        return "done", ""
    if code == STOPPED:
        return "stopped", ""
    return "failed", _reason(job, code)


def _reason(job: Job, code: int) -> str:
    """The signal that ended the process, or the last line of its log."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        if name == "SIGKILL":
            return f"killed by {name}, perhaps because memory ran out"
        return f"killed by {name}"
    lines: list[str] = []
    with suppress(OSError):
        lines = job.log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else f"ended with exit code {code}"


def main() -> int:
    """Carry out a job; returns 0 when the run is done, and 3 when it was stopped with a checkpoint."""
    job, runner = Job.from_json(json.loads(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_stop_after, args=(runner,), daemon=True).start()
    with suppress(OSError):  # os.write, because on a full disk print would fail again when the process ends
        os.write(1, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {job.run}: process {os.getpid()}\n".encode())
    try:
        return 0 if run_job(job) else STOPPED
    except KeyboardInterrupt:
        return STOPPED


def _stop_after(runner: int) -> None:
    """Stop with a checkpoint once the runner was killed, so that the next runner can take over."""
    while os.getppid() == runner:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
