"""Runs that many tests only read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from .runs import Ended, Everything, config_of, run, shaped


@pytest.fixture(scope="session")
def whole() -> tuple[Everything, Ended]:
    """The small run with SASR from its first step to its last; not to be changed."""
    return run(config_of(**shaped("auto")))


@pytest.fixture(scope="session")
def _stopped_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("stopped")
    recorder, _ = run(config_of(**shaped("auto")), folder, stop_at=60)
    run(config_of(**shaped("auto")), folder, stop_at=120, events=recorder.events)
    return folder, recorder.events


@pytest.fixture
def stopped_twice(_stopped_twice: tuple[Path, list[Any]], tmp_path: Path) -> tuple[Path, list[Any]]:
    """A folder of the same run with checkpoints after 60 and 120 steps, to be damaged, and what was recorded."""
    folder, events = _stopped_twice
    return Path(shutil.copytree(folder, tmp_path / "stopped")), list(events)
