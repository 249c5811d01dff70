"""On a real Ray cluster of two nodes on this machine: the same curves as without it, also when a node dies."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sasr.experiments.job import progress_of
from sasr.experiments.runners.ray import INSTALL, OnRay
from tests.experiments.small import carried_out, cells, jobs, recorded

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, on this machine; gone afterwards, whatever happened."""
    pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)  # for the nodes' workers
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args=small)
        try:
            made.second = made.add_node(**small)
            made.wait_for_nodes()
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.mark.slow
def test_a_job_that_no_node_can_take_is_told_before_any_starts(cluster: Any, tmp_path: Path) -> None:
    runner = OnRay(address=cluster.address, gpus=3.0)
    with pytest.raises(ValueError, match="no node of the Ray cluster has 1 cores and 3 GPUs"):
        runner.check(jobs(tmp_path, cells(["Pendulum-v1"], ["sac"])))
    runner.close()


@pytest.mark.slow
def test_a_cluster_gives_what_this_process_gives_also_when_a_node_dies(
    cluster: Any, inline: Path, tmp_path: Path
) -> None:
    grid = carried_out(OnRay(address=cluster.address), tmp_path / "undisturbed")
    assert len(grid.of("done")) == 4, [own.why for own in grid.statuses.values()]
    assert recorded(tmp_path / "undisturbed") == recorded(inline)

    out = tmp_path / "disturbed"
    killed = threading.Event()

    def kill() -> None:
        """End a node once both have a cell that has learned something."""
        while sum(100 < progress_of(job).step < 300 for job in jobs(out)) < 2:
            time.sleep(0.02)
        cluster.remove_node(cluster.second, allow_graceful=False)
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    grid = carried_out(OnRay(address=cluster.address), out)
    assert killed.is_set()
    assert len(grid.of("done")) == 4, [own.why for own in grid.statuses.values()]
    assert recorded(out) == recorded(inline)
    # The cell that was on the dead node was started a second time, elsewhere.
    assert max(job.log.read_text().count("process ") for job in jobs(out)) >= 2


def test_without_ray_the_line_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "sasr\[cluster\]"'):
        OnRay()
    assert INSTALL.endswith('pip install "sasr[cluster]"')
