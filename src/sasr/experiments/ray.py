"""Jobs as tasks of a Ray cluster; all nodes must share the grid's folder."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sasr.errors import need
from sasr.experiments.job import Job, OnChange
from sasr.experiments.worker import launch, outcome

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ANSWER = 5.0  # seconds for a cluster's address to answer
_RETRIES = 5  # how often a job is started again after its worker or node died
# Ray speaks gRPC: HTTP/2, whose servers answer this greeting with a frame of type 4, their settings.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


class OnRay:
    """Runs each job as a Ray task, which resumes from its last checkpoint when a worker or a node dies."""

    def __init__(self, *, address: str | None = None, gpus: float = 0.0) -> None:
        """Nothing is started yet.

        Args:
            address: Of a cluster, HOST:PORT or auto; None starts Ray on this machine.
            gpus: GPUs of each job, may be a fraction.
        """
        need("ray", extra="cluster", to="run on Ray")
        self.address, self.gpus = address, gpus
        self._started = False

    @property
    def exposure(self) -> str:
        """A line on who can reach the cluster: Ray runs any code that it is sent."""
        if self.address in (None, "local"):
            return "Ray listens on this machine's loopback alone"
        return (
            f"Ray at {self.address} runs code for whoever reaches it; keep it in a closed network, or start it with "
            "RAY_AUTH_MODE=token"
        )

    def check(self, jobs: Sequence[Job]) -> None:
        """Connect, and see that a node of the cluster can take each job."""
        self._connect()
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        for threads in sorted({job.threads for job in jobs}):
            if not any(node.get("CPU", 0) >= threads and node.get("GPU", 0) >= self.gpus for node in nodes):
                most = max((node.get("CPU", 0) for node in nodes), default=0)
                raise ValueError(
                    f"no node of the Ray cluster has {threads} cores and {self.gpus:g} GPUs for a run (most cores of "
                    f"one: {most:g}); give fewer with --threads or --gpus"
                )

    def run(self, jobs: Sequence[Job], on_change: OnChange) -> None:
        """Hand all jobs to Ray at once; it starts them as resources become free."""
        self._connect()
        import ray

        began = time.time()
        pending: dict[Any, Job] = {}
        shown: set[str] = set()
        try:
            for job in jobs:
                task = ray.remote(num_cpus=job.threads, num_gpus=self.gpus, max_retries=_RETRIES)(_carry_out)
                pending[task.options(name=job.run.id).remote(job.to_json())] = job
            while pending:
                ended, _ = ray.wait(list(pending), timeout=0.3)
                for reference in ended:
                    self._finish(pending.pop(reference), reference, on_change)
                for job in pending.values():
                    if job.run.id not in shown and job.log.exists() and job.log.stat().st_mtime >= began - 1.0:
                        shown.add(job.run.id)
                        on_change(job, "running", "")
        except KeyboardInterrupt:
            for reference, job in pending.items():
                ray.cancel(reference, force=True)  # its process notices, writes a checkpoint and ends
                on_change(job, "stopped", "")
        finally:
            self.close()

    def close(self) -> None:
        """Leave the cluster, or end the one that was started here."""
        import ray

        if self._started:
            ray.shutdown()
            self._started = False

    def _connect(self) -> None:
        here: dict[str, Any] = {}
        if self.address in (None, "local"):
            # Ray takes loopback for the machine's own address, and listens on all; only where it knows no clusters, as
            # on macOS, it stays on loopback. It reads this when it is imported.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            here = {"include_dashboard": False}
        import ray

        if ray.is_initialized():
            return
        if self.address not in (None, "auto", "local"):
            _check_address(str(self.address))
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no reports to Ray's makers unasked
        try:
            ray.init(address=self.address or "local", log_to_driver=False, logging_level="ERROR", **here)
        except Exception as error:  # Ray raises no narrower class where a node does not start in time
            reason = " ".join(str(error).split()) or type(error).__name__
            if here:
                message = f"Ray did not start on this machine ({reason}); try again, or leave --on ray out"
                raise ConnectionError(message) from error
            raise ConnectionError(_no_answer(str(self.address), reason)) from None
        self._started = True
        place = ray.util.get_node_ip_address()
        if here and place not in _LOOPBACK:
            self.close()
            raise ConnectionError(
                f"Ray {ray.__version__} would listen on {place} for anybody; start it with `RAY_AUTH_MODE=token ray "
                "start --head` and give --address auto, or leave --on ray out"
            )

    def _finish(self, job: Job, reference: Any, on_change: OnChange) -> None:
        import ray

        try:
            code = ray.get(reference)
        except ray.exceptions.RayError as error:
            on_change(job, "failed", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
            return
        on_change(job, *outcome(job, code))


def _carry_out(job: Mapping[str, Any]) -> int:
    """The Ray task: start a process for the job, as the local pool does, and return its exit code."""
    for _ in range(_RETRIES + 1):
        code = launch(Job.from_json(job)).wait()
        if code >= 0:  # it was not killed; otherwise it resumes from its last checkpoint
            break
    return code


def _check_address(address: str) -> None:
    """Raise within seconds where no Ray answers at an address; Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--address {address} is not HOST:PORT; write that, or auto for this machine's cluster")
    _check_answer(host, int(port), address)
    # ray.init takes loopback for the machine's own address; a head that listens on loopback alone is not found there.
    if host.strip("[]") in _LOOPBACK:
        from ray.util import get_node_ip_address

        node = get_node_ip_address()
        if node not in _LOOPBACK:
            _check_answer(node, int(port), f"{node}:{port}, which Ray takes {host} for")


def _check_answer(host: str, port: int, address: str) -> None:
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=_ANSWER) as line:
            line.sendall(_HELLO)
            answer = line.recv(4)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConnectionError(_no_answer(address, reason)) from None
    if answer[3:4] != b"\x04":
        raise ConnectionError(_no_answer(address, "another service does"))


def _no_answer(address: str, reason: str) -> str:
    return (
        f"no Ray answers at {address} ({reason}); start it there with `ray start --head`, or leave --address out to "
        "use this machine"
    )
