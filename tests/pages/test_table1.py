"""The page of Table 1: what counts for a row, when a row is ranked, and over which rows anything is summed up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages.rows import BASE, DEFAULT
from pages.store import Store, read_store
from pages.table1 import blocks_of, table1_of
from sasr.experiments.plan_file import read_suite
from sasr.report.store import write_result
from tests.pages.test_blocks import table_row
from tests.report.synthetic import make_result

CELLS = {(cell.task, cell.method.name): cell for cell in read_suite("table1").runs}
METHODS = list(dict.fromkeys(method for _, method in CELLS))


def run_row(folder: Path, task: str, *, leave_out: str = "", short: str = "", seeds: int = 5) -> None:
    """Store a row of the suite, in which methods are worse one after the other."""
    for number, method in enumerate(METHODS):
        steps = CELLS[task, method].steps
        if method == leave_out:
            continue
        own = make_result(
            task, method, seeds=seeds, steps=steps // 2 if method == short else steps, level=100.0 - 8.0 * number
        )
        write_result(own, folder / "table1")


def block(store: Store, name: str) -> str:
    return blocks_of(store)[name]().text


def test_a_complete_row_is_ranked_and_stands_above_the_papers(store: Path) -> None:
    run_row(store, "HumanKeep")
    read = read_store(store)
    text = block(read, "table: table1")
    scores = np.array([np.mean(seed.final) for seed in table1_of(read).results["HumanKeep", "gfa_rfe"].seeds])
    row = table_row(text, "HumanKeep, 75,000 steps")
    assert row[r"gfa\_rfe"] == f"{scores.mean():.1f} ± {scores.std(ddof=1) / np.sqrt(5):.1f}"
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("| HumanKeep, 75,000"))
    assert lines[at].count("**") == 2
    assert lines[at + 1].startswith("| HumanKeep, paper | **195.8** | 2.5 |")
    assert "11 of 99 cells are measured, 1 of 9 rows are complete" in text
    assert set(table_row(text, "RobotReach, 75,000 steps°").values()) == {"RobotReach, 75,000 steps°", "–"}


@pytest.mark.parametrize("flaw", [{"leave_out": "relara"}, {"short": "relara"}, {"seeds": 4}])
def test_a_row_with_a_method_seeds_or_steps_missing_is_shown_but_not_ranked(store: Path, flaw: dict[str, str]) -> None:
    run_row(store, "HumanKeep", **flaw)  # type: ignore[arg-type]
    read = read_store(store)
    text = block(read, "table: table1")
    (ours,) = [line for line in text.splitlines() if line.startswith("| HumanKeep, 75,000")]
    assert "°" in ours
    assert "±" in ours
    assert "**" not in ours
    assert table1_of(read).complete == []
    assert "No row is complete" in block(read, "table: table1 over all tasks")
    assert blocks_of(read)["picture: table1 profiles"]().picture is None


def test_of_longer_runs_a_row_takes_the_first_steps_and_all_of_it_the_evaluation_there(store: Path) -> None:
    run_row(store, "HumanKeep", leave_out="rnd")
    steps = CELLS["HumanKeep", "rnd"].steps
    longer = make_result("HumanKeep", "rnd", seeds=5, steps=2 * steps, level=50.0)
    points: dict[str, Any] = {"steps": (0, steps, 2 * steps), "returns": (0.0, 7.0, 50.0), "success": (0.0, 1.0, 1.0)}
    seeds = tuple(replace(seed, **points) for seed in longer.seeds)
    write_result(replace(longer, seeds=seeds), store / "table1")
    read = read_store(store)
    table1 = table1_of(read)
    assert table1.complete == ["HumanKeep"]
    assert table_row(block(read, "table: table1"), "HumanKeep, 75,000 steps")["rnd"] == "7.0 ± 0.0"
    for method in METHODS:
        assert all(seed.final == seed.returns[-1:] for seed in table1.results["HumanKeep", method].seeds)


def test_runs_with_the_papers_agent_are_listed_and_in_no_row(store: Path) -> None:
    text = block(read_store(store), "table: table1 measured")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| MountainCar")]
    assert {row[1] for row in rows} == {DEFAULT, BASE, "rnd"}
    assert {row[-1].strip("| ") for row in rows} == {"no"}  # those named rnd have other steps than the suite's
    assert table1_of(read_store(store)).results == {}


def test_over_all_tasks_only_complete_rows_count(store: Path) -> None:
    run_row(store, "HumanKeep")
    run_row(store, "AntFar")
    run_row(store, "RobotPush", leave_out="ppo")
    read = read_store(store)
    text = block(read, "table: table1 over all tasks")
    assert "Complete rows: HumanKeep, AntFar; 2 of 9." in text
    assert table_row(text, "sasr")["runs"] == "10"
    for name in ("intervals", "profiles"):
        drawn = blocks_of(read)[f"picture: table1 {name}"]().picture
        assert drawn is not None
        assert drawn.draw().axes


def test_methods_are_also_compared_by_the_areas_under_their_curves(store: Path) -> None:
    run_row(store, "HumanKeep")
    slow, soon = METHODS[:2]
    for method, height in ((slow, 0.0), (soon, 100.0)):
        steps = CELLS["HumanKeep", method].steps
        own = make_result("HumanKeep", method, seeds=5, steps=steps, level=100.0 if method == slow else 99.0)
        curve: dict[str, Any] = {
            "steps": (0, steps - 1, steps),
            "returns": (height, height, 100.0),
            "success": (1.0, 1.0, 1.0),
        }
        seeds = tuple(replace(seed, **curve) for seed in own.seeds)
        write_result(replace(own, seeds=seeds), store / "table1")
    final, area = block(read_store(store), "table: table1 over all tasks").split("**Area under the curve")
    firsts = [
        next(line for line in text.splitlines() if line.startswith(("| sasr", "| sac"))) for text in (final, area)
    ]
    assert [line.split(" | ")[0].strip("| ") for line in firsts] == [slow, soon]
    assert table_row(area, soon)["IQM"].startswith("1.00")


def test_the_curves_have_a_panel_for_each_task_and_the_authors_rivals_dashed(store: Path) -> None:
    run_row(store, "HumanKeep", leave_out="sasr")
    drawn = blocks_of(read_store(store))["picture: table1"]().picture
    assert drawn is not None
    figure = drawn.draw()
    panels = {panel.get_title(): panel for panel in figure.axes}
    assert list(panels) == list(dict.fromkeys(task for task, _ in CELLS))
    thin = {title: [line for line in panel.lines if line.get_linewidth() == 1.0] for title, panel in panels.items()}
    assert len(thin["AntStand"]) == 8  # sasr, sac, td3, ppo, rnd, explo, explors, relara
    assert {line.get_linestyle() for line in thin["AntStand"]} == {"--"}
    assert thin["RobotSlide"] == []
    # Ten of the suite, and SASR of another plan in the place of the one that is missing.
    assert len(panels["HumanKeep"].lines) == 11 + len(thin["HumanKeep"])
