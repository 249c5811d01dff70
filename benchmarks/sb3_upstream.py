"""Stable-Baselines3's own tests with our buffers wherever it, or a test, would take its own.

python -m pip download --no-deps --no-binary :all: stable-baselines3==2.9.2
tar xzf stable_baselines3-2.9.2.tar.gz
python -m benchmarks.sb3_upstream stable_baselines3-2.9.2/tests

The tests are in Stable-Baselines3's source distribution, not in its wheel; nothing is installed or changed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
import stable_baselines3
import torch
import tyro
from rich.console import Console
from rich.table import Table
from stable_baselines3 import her
from stable_baselines3.common import buffers, off_policy_algorithm, on_policy_algorithm
from stable_baselines3.her import her_replay_buffer

from sasr.integrations.sb3 import (
    ShapedDictReplayBuffer,
    ShapedDictRolloutBuffer,
    ShapedHerReplayBuffer,
    ShapedReplayBuffer,
    ShapedRolloutBuffer,
)

FILES = ("test_buffers.py", "test_run.py", "test_save_load.py", "test_n_step_replay.py", "test_her.py")


class NStep(ShapedReplayBuffer):
    """With the default number of steps of Stable-Baselines3's NStepReplayBuffer."""

    def __init__(self, *arguments: Any, n_steps: int = 3, **options: Any) -> None:
        super().__init__(*arguments, n_steps=n_steps, **options)


OURS = {
    "ReplayBuffer": ShapedReplayBuffer,
    "DictReplayBuffer": ShapedDictReplayBuffer,
    "NStepReplayBuffer": NStep,
    "HerReplayBuffer": ShapedHerReplayBuffer,
    "RolloutBuffer": ShapedRolloutBuffer,
    "DictRolloutBuffer": ShapedDictRolloutBuffer,
}


def substitute(*modules: ModuleType) -> None:
    """Put our buffers where modules have Stable-Baselines3's."""
    for module in modules:
        for name, buffer in OURS.items():
            if hasattr(module, name):
                setattr(module, name, buffer)


class Outcomes:
    """A pytest plugin that counts outcomes by file and keeps the last line of each failure."""

    def __init__(self) -> None:
        self.originals = {name: getattr(buffers, name) for name in OURS if hasattr(buffers, name)}
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[tuple[str, str]] = []

    def pytest_collection_finish(self) -> None:
        # The tests have imported ours by now; in its own module Stable-Baselines3's classes need each other.
        for name, buffer in self.originals.items():
            setattr(buffers, name, buffer)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        file, name = report.nodeid.split("::", 1)
        self.counts[Path(file).name][report.outcome] += 1
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failures.append((name, crash.message.splitlines()[0] if crash else str(report.longrepr)[-200:]))


def main(
    tests: Annotated[Path, tyro.conf.Positional],
    files: tuple[str, ...] = FILES,
    select: str = "",
    own: bool = False,
    shaper: str = '"sasr"',
) -> None:
    """Run the tests.

    Args:
        tests: the folder tests/ of a Stable-Baselines3 source tree.
        files: which files of it.
        select: what pytest's -k takes.
        own: leave Stable-Baselines3's own buffers where they are, to compare.
        shaper: what a buffer gets where a test names none, as JSON: '"rnd"', or '{"reward_weight": 0}' for tests that
            compare samples with the environment's rewards.
    """
    torch.set_num_threads(1)
    for buffer in (ShapedReplayBuffer, ShapedRolloutBuffer):
        defaults = buffer.__init__.__kwdefaults__
        assert defaults is not None
        defaults["shaper"] = json.loads(shaper)
    outcomes = Outcomes()
    if not own:
        substitute(stable_baselines3, her, her_replay_buffer, off_policy_algorithm, on_policy_algorithm, buffers)
    options = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={tests}"]
    pytest.main([*options, *(["-k", select] if select else []), *(str(tests / file) for file in files)], [outcomes])
    table = Table(title=f"Stable-Baselines3's tests with {'its own' if own else 'our'} buffers")
    for column in ("file", "passed", "failed", "skipped"):
        table.add_column(column)
    for file, counts in outcomes.counts.items():
        table.add_row(file, *(str(counts[outcome]) for outcome in ("passed", "failed", "skipped")))
    console = Console()
    console.print(table)
    for name, message in outcomes.failures:
        console.print(f"failed: {name}: {message}", markup=False)


if __name__ == "__main__":
    tyro.cli(main)
