"""What `python -m benchmarks.reliability` does many times, a few times."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number", "steps"), [("kills", 3, 100), ("crash-points", 7, 40), ("signals", 4, 300)]
)
def test_a_run_ends_as_if_nothing_had_happened_and_nothing_is_left(command: Any, number: int, steps: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.reliability", command, "--number", str(number), "--steps", str(steps)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
