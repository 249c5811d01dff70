"""One real run, small enough to be made for the tests, and its settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sasr
from sasr import run as runs
from sasr.agents import SacConfig
from sasr.training import TrainConfig

TINY = SacConfig(hidden=(8, 8), burn_in=30, batch_size=16)


def settings(**changes: object) -> TrainConfig:
    plain = {"task": "Pendulum-v1", "seeds": (3, 5), "steps": 450, "workers": 0, "eval_every": 150, "log_every": 50}
    return TrainConfig(**(plain | {"eval_episodes": 2, "agent": "sac", "agent_config": TINY} | changes))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> sasr.Run:
    """Two seeds of Pendulum with everything recorded; not to be changed."""
    return runs.start(settings(), out=tmp_path_factory.mktemp("runs") / "pendulum")


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., sasr.Run]:
    """A function that makes another run: started("name", steps=…, …)."""

    def make(name: str, **changes: object) -> sasr.Run:
        return runs.start(settings(**changes), out=tmp_path / name, events=False)

    return make
