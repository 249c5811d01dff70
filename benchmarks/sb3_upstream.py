"""Stable-Baselines3's own tests with our buffers wherever it, or a test, would take its own.

python -m benchmarks.sb3_upstream PATH/TO/stable_baselines3-2.9.2/tests

The tests come from Stable-Baselines3's source distribution; nothing is installed or changed.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
import tyro
from rich.console import Console
from rich.table import Table

FILES = ("test_buffers.py", "test_run.py", "test_save_load.py", "test_n_step_replay.py", "test_her.py")


def replacements(shaper: str) -> dict[str, type]:
    """Stable-Baselines3's buffers by name, and ours with a shaper in their place."""
    from sasr.integrations import sb3

    def with_defaults(base: type, **defaults: Any) -> type:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            base.__init__(self, *arguments, **(defaults | options))

        # Under a name that pickle finds: saved buffers are loaded again.
        new = type(f"{base.__name__}{len(made)}", (base,), {"__init__": __init__, "__module__": __name__})
        if getattr(base, "for_dicts", None) is not None:
            new.for_dicts = with_defaults(base.for_dicts, **defaults)  # type: ignore[attr-defined]
        made.append(new)
        setattr(sys.modules[__name__], new.__name__, new)
        return new

    made: list[type] = []
    return {
        "ReplayBuffer": with_defaults(sb3.ShapedReplayBuffer, shaper=shaper),
        "DictReplayBuffer": with_defaults(sb3.ShapedDictReplayBuffer, shaper=shaper),
        "NStepReplayBuffer": with_defaults(sb3.ShapedReplayBuffer, shaper=shaper, n_steps=3),
        "HerReplayBuffer": with_defaults(sb3.ShapedHerReplayBuffer, shaper=shaper),
        "RolloutBuffer": with_defaults(sb3.ShapedRolloutBuffer, shaper=shaper),
        "DictRolloutBuffer": with_defaults(sb3.ShapedDictRolloutBuffer, shaper=shaper),
    }


def substitute(shaper: str) -> None:
    """Put our buffers where Stable-Baselines3's modules, and so its tests, find its own."""
    import stable_baselines3
    from stable_baselines3 import her
    from stable_baselines3.common import buffers, off_policy_algorithm, on_policy_algorithm
    from stable_baselines3.her import her_replay_buffer

    ours = replacements(shaper)
    for module in (stable_baselines3, her, her_replay_buffer, buffers, off_policy_algorithm, on_policy_algorithm):
        for name, buffer in ours.items():
            if hasattr(module, name):
                setattr(module, name, buffer)


class Outcomes:
    """A pytest plugin that counts outcomes by file and keeps the last line of each failure."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[tuple[str, str]] = []

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
    shaper: str = "sasr",
    files: tuple[str, ...] = FILES,
    select: str = "",
) -> None:
    """Run the tests.

    Args:
        tests: the folder tests/ of a Stable-Baselines3 source tree.
        shaper: the shaper of every buffer; none runs Stable-Baselines3's own buffers, to compare.
        files: which files of it.
        select: what pytest's -k takes.
    """
    torch.set_num_threads(1)
    if shaper != "none":
        substitute(shaper)
    outcomes = Outcomes()
    options = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={tests}"]
    pytest.main([*options, *(["-k", select] if select else []), *(str(tests / file) for file in files)], [outcomes])
    table = Table(title=f"Stable-Baselines3's tests, shaper={shaper}")
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
