"""What a person sees of a grid."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sasr.experiments import view
from sasr.experiments.grid import Grid
from sasr.experiments.runners import Inline
from sasr.experiments.view import GridView
from sasr.terminal import Terminal
from tests.experiments.small import jobs, small_runs


class Odd(Inline):
    """Leaves one job done, one failed and one stopped, with one running meanwhile."""

    look: Callable[[], str]

    def run(self, jobs: Any, tell: Any) -> None:
        for job in jobs:
            tell(job, "running", "")
        seen.append(self.look())
        for job, state in zip(jobs, ("done", "failed", "stopped", "done"), strict=True):
            tell(job, state, "out of luck" if state == "failed" else "")


seen: list[str] = []


@pytest.mark.parametrize("terminal", [True, False])
def test_every_run_is_shown_and_a_failure_is_told_with_its_log(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PLAIN_SECONDS", 0.01)
    out = io.StringIO()
    console = Terminal(file=out, force_terminal=terminal, width=140, height=40, color_system=None)
    grid = Grid(jobs(tmp_path))
    shown = GridView(grid, console)

    def look() -> str:
        part = io.StringIO()
        Terminal(file=part, width=140).print(shown.table())
        return part.getvalue()

    runner = Odd()
    runner.look = look
    with shown:
        grid.run(runner)
        if not terminal:
            late = time.monotonic() + 60.0
            while "1 stopped · 1 failed" not in out.getvalue() and time.monotonic() < late:
                time.sleep(0.01)
            assert "1 stopped · 1 failed" in out.getvalue()
    assert seen.pop().count("running") == 5  # four rows, and the line below
    text = look()
    assert [text.count(f" {state} ") for state in ("failed", "stopped")] == [2, 2]
    assert "2 done · 1 stopped · 1 failed" in text
    said = " ".join(out.getvalue().split())
    assert f"out of luck; log: {grid.of('failed')[0].job.log}" in said


def test_numbers_are_whole_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    grid = Grid(jobs(tmp_path, small_runs(["MountainCarContinuous-v0"], steps=1_000_000)))
    for status in grid.statuses.values():
        status.state, status.began, status.ended = "running", 1.0, 4_001.0
    out = io.StringIO()
    console = Terminal(file=out, width=80, height=40)
    console.print(GridView(grid, console).table())
    rows = [line for line in out.getvalue().splitlines() if "running" in line][: len(grid.statuses)]
    for row, status in zip(rows, grid.statuses.values(), strict=True):
        assert f"{status.job.run.steps:,}" in row
        assert "1 h 07 min" in row


def test_where_there_is_no_room_those_that_failed_come_first(tmp_path: Path) -> None:
    grid = Grid(jobs(tmp_path))
    list(grid.statuses.values())[3].state = "failed"
    out = io.StringIO()
    console = Terminal(file=out, width=140, height=10)
    console.print(GridView(grid, console).table())
    lines = [line for line in out.getvalue().splitlines() if "MountainCar" in line or "Pendulum" in line]
    assert len(lines) == 3
    assert "failed" in lines[0]
    assert "1 not shown" in out.getvalue()
