from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pages.rows import BASE, DEFAULT
from sasr.report.store import write_result
from tests.report.synthetic import make_result

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder with results of two tasks, three methods, eight seeds, in the plan `compare`."""
    folder = tmp_path / "results"
    shutil.copytree(ROOT / "results" / "reference", folder / "reference")
    (folder / "thresholds.toml").write_text("MountainCar = 0.5\n")
    for task, scale in (("MountainCar", 1.0), ("HumanKeep", 150.0)):
        for method, level in {DEFAULT: 1.0, BASE: 0.4, "rnd": 0.7}.items():
            write_result(make_result(task, method, seeds=8, level=scale * level), folder / "compare")
    return folder
