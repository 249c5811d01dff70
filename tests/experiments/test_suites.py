"""Every suite in the docs, narrowed to one task, runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sasr.api import complete
from sasr.errors import ActionSpaceError
from sasr.experiments.plan import GridRun, changed
from sasr.experiments.plan_file import Choice, read_suite, suites
from sasr.experiments.runners import Inline
from tests.experiments.small import carried_out

SMALL: dict[str, Any] = {
    "hidden": (8, 8),
    "features": 8,
    "burn_in": 20,
    "batch_size": 16,
    "rollout": 16,
    "minibatches": 1,
    "epochs": 1,
}
SETTINGS = {"eval_every": 0, "max_episode_steps": 10, "checkpoint_minutes": 0}
STEPS = 40


def small(run: GridRun) -> GridRun:
    """The same with an agent that learns within moments."""
    agent_config = complete(run.config(device="cpu")).agent_config
    settings = {name: value for name, value in SMALL.items() if hasattr(agent_config, name)}
    (found,) = changed([run], agent=settings, settings=SETTINGS)
    return replace(found, steps=STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("suite", suites())
def test_a_suite_narrowed_to_one_task_runs(suite: str, tmp_path: Path) -> None:
    if suite == "table1-games":
        pytest.importorskip("ale_py")
    tasks = {run.task for run in read_suite(suite).runs}
    (task,) = tasks & {"Freeway"} or tasks & {"MountainCar"} or tasks
    runs = [small(run) for run in read_suite(suite, Choice(tasks=[task], seeds=1)).runs]
    grid = carried_out(Inline(), tmp_path, runs)
    done = {status.job.run.method.name for status in grid.of("done")}
    failed = {status.job.run.method.name: status.reason for status in grid.of("failed")}
    if suite == "table1-games":
        assert failed.pop("td3").startswith(ActionSpaceError.__name__)
    assert failed == {}
    assert done >= {run.method.name for run in runs} - {"td3"}
