"""A small real run for the tests of commands that read one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sasr
from sasr.agents import SacConfig


@pytest.fixture(scope="session")
def kept_run(tmp_path_factory: pytest.TempPathFactory) -> sasr.Run:
    """A stopped run's stand-in: two checkpoints, a few episodes; not to be changed."""
    small = SacConfig(hidden=(8, 8), burn_in=40, batch_size=16)
    run = sasr.train(
        "Pendulum-v1",
        agent=small,
        steps=130,
        max_episode_steps=60,
        workers=0,
        eval_every=60,
        eval_episodes=1,
        checkpoint_minutes=1e-9,
        out=tmp_path_factory.mktemp("runs") / "run",
        progress=False,
        events=False,
    )
    return run


@pytest.fixture
def copied(kept_run: sasr.Run, tmp_path: Path) -> Path:
    """A copy of that run's folder, to be damaged."""
    return Path(shutil.copytree(kept_run.folder, tmp_path / "run"))


@pytest.fixture
def change_config(copied: Path) -> Callable[..., None]:
    """Write other values into the copied run's config.json: change_config(task=...)."""

    def change(**values: Any) -> None:
        file = copied / "config.json"
        facts = json.loads(file.read_bytes())
        facts["config"] |= values
        file.write_text(json.dumps(facts))

    return change
