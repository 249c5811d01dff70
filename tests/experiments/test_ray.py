"""On a real Ray cluster of two nodes on loopback: the same curves as without it, also when a node dies."""

from __future__ import annotations

import os
import re
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sasr.experiments.job import Job, progress_of
from sasr.experiments.ray import OnRay
from sasr.experiments.runners import Inline
from sasr.training.checkpoint import newest
from sasr.training.trainer import CHECKPOINTS
from tests.cli.commands import run
from tests.experiments.small import FLAGS, carried_out, jobs, recorded, small_runs

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, on loopback; gone afterwards, whatever happened."""
    pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    # Loopback, but not 127.0.0.1: ray.init takes that for the machine's own address, at which nobody listens then, and
    # tries for minutes.
    head, second = ({**small, "node_ip_address": each} for each in ("127.0.0.2", "127.0.0.3"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)  # for the nodes' workers
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            made.second = made.add_node(**second, num_gpus=1)  # it has none, and Ray believes what it is told
            made.wait_for_nodes()
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.mark.slow
def test_a_job_that_no_node_can_take_is_told_before_any_starts(cluster: Any, tmp_path: Path) -> None:
    runner = OnRay(address=cluster.address, gpus=3.0)
    with pytest.raises(ValueError, match="no node of the Ray cluster has 1 cores and 3 GPUs"):
        runner.check(jobs(tmp_path, small_runs(["Pendulum-v1"], ["sac"])))
    runner.close()


def ancestors(process: int) -> list[int]:
    """Parent, its parent, and so on; none where it has ended."""
    try:
        parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return []
    return [parent, *ancestors(parent)] if parent else []


@pytest.mark.slow
def test_a_run_that_asks_for_a_gpu_is_put_where_one_is(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    raylets = {node: node.all_processes["raylet"][0].process.pid for node in (cluster.head_node, cluster.second)}
    seen: dict[str, set[Any]] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            for log in Path(tmp_path, "grid", "logs").glob("*.log"):
                for number in re.findall(r"process (\d+)", log.read_text()):
                    above = ancestors(int(number))
                    seen.setdefault(log.stem, set()).update(node for node, own in raylets.items() if own in above)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        flags = ("--tasks", "Pendulum-v1", "--methods", "sac,sasr", "--steps", "100", *FLAGS, "--on", "ray")
        code, output = run(capsys, "compare", *flags, "--address", cluster.address, "--gpus", "1")
    finally:
        ended.set()
        watcher.join()
    assert code == 0, output
    assert len(seen) == 2
    assert all(nodes == {cluster.second} for nodes in seen.values())  # with a core free on the other one


@pytest.mark.slow
def test_a_cluster_gives_what_this_process_gives_also_when_a_node_dies(
    cluster: Any, inline: Path, tmp_path: Path
) -> None:
    grid = carried_out(OnRay(address=cluster.address), tmp_path / "undisturbed")
    assert len(grid.of("done")) == 4, [status.reason for status in grid.statuses.values()]
    assert recorded(tmp_path / "undisturbed") == recorded(inline)

    # Longer ones here: a run of the dead node notices that it is alone, and must not have come to its end by then.
    longer = small_runs(["Pendulum-v1"], steps=2_000)
    carried_out(Inline(), tmp_path / "inline", longer)
    out = tmp_path / "disturbed"
    killed = threading.Event()

    def is_under_way(job: Job) -> bool:
        return 100 <= progress_of(job).step < 1_000 and newest(job.folder / CHECKPOINTS) is not None

    def kill() -> None:
        """End a node once both have a run that has learned something, and saved it."""
        while sum(map(is_under_way, jobs(out, longer))) < 2:
            time.sleep(0.02)
        cluster.remove_node(cluster.second, allow_graceful=False)
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    grid = carried_out(OnRay(address=cluster.address), out, longer)
    assert killed.is_set()
    assert len(grid.of("done")) == 2, [status.reason for status in grid.statuses.values()]
    assert recorded(out) == recorded(tmp_path / "inline")
    # The run that was on the dead node was started a second time, elsewhere, and went on from where it was.
    again = [job for job in jobs(out, longer) if job.log.read_text().count("process ") >= 2]
    assert again
    assert any('"resumed"' in (job.folder / "metrics.jsonl").read_text() for job in again)


def test_a_ray_that_ray_itself_would_look_for_elsewhere_is_told_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    util = pytest.importorskip("ray.util")
    monkeypatch.setattr(util, "get_node_ip_address", lambda: "127.0.0.9")

    class Settings(socketserver.BaseRequestHandler):
        """Greets like a server that speaks gRPC."""

        def handle(self) -> None:
            self.request.recv(100)
            self.request.sendall(b"\0\0\0\4\0\0\0\0\0")

    with socketserver.TCPServer(("127.0.0.1", 0), Settings) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        with pytest.raises(ConnectionError, match=f"no Ray answers at 127.0.0.9:{port}, which Ray takes 127.0.0.1 for"):
            OnRay(address=f"127.0.0.1:{port}").check([])
        server.shutdown()


def test_a_ray_of_this_machine_that_does_not_start_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def times_out(**options: Any) -> None:
        raise Exception("The current node timed out during startup.\nMore of it.")

    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setattr(ray, "init", times_out)
    with pytest.raises(ConnectionError, match=r"did not start on this machine \(The current node timed out"):
        OnRay().check([])


def test_without_ray_the_line_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "sasr\[cluster\]"'):
        OnRay()


LISTENING = """
import os, sys
from pathlib import Path
from sasr.experiments.ray import OnRay

def family(own):
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {own}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found

def sockets(process):
    try:
        return [os.readlink(handle) for handle in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return []

runner = OnRay()
runner.check([])
own = {socket for process in family(os.getpid()) for socket in sockets(process)}
for table in ("tcp", "tcp6"):
    for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in own:
            print("listens", words[1].rpartition(":")[0])
runner.close()
"""
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
def test_a_ray_of_this_machine_listens_on_loopback_alone() -> None:
    pytest.importorskip("ray")
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ran = subprocess.run(
        [sys.executable, "-c", LISTENING], env=own | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300
    )
    places = {line.split()[1] for line in ran.stdout.splitlines() if line.startswith("listens")}
    assert places, ran.stderr
    assert places <= LOOPBACK
