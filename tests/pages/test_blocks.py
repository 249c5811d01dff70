"""Tables say what numpy says, of the results that belong to them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pages.blocks import blocks_of, rows_by_task
from pages.rows import BASE, DEFAULT
from pages.store import MAIN, read_store
from sasr.report.store import write_result
from tests.report.synthetic import make_result

ROOT = Path(__file__).parents[2]


def text_of(folder: Path, block: str) -> str:
    return blocks_of(read_store(folder))[block]().text


def table_row(text: str, name: str) -> dict[str, str]:
    """A row of a text's first table by its first column."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    row = next(line for line in lines if line[0] == name)
    return dict(zip(lines[0], (cell.strip("*") for cell in row), strict=True))


def test_tables_say_what_numpy_says(store: Path) -> None:
    results = {result.method: result for result in read_store(store).main.results if result.task == "MountainCar"}
    text = text_of(store, "table: final MountainCar")
    finals = {name: np.array([np.mean(seed.final) for seed in result.seeds]) for name, result in results.items()}
    for method, scores in finals.items():
        row, seeds = table_row(text, method), results[method].seeds
        error = scores.std(ddof=1) / np.sqrt(8)
        assert row["final, mean ± s.e."] == f"{scores.mean():.2f} ± {error:.2f}"
        areas = [np.trapezoid(seed.returns, seed.steps) / 10_000 for seed in seeds]
        assert row["area to 10,000 [95 %]"].startswith(f"{np.mean(areas):.2f} [")
        assert (row["seeds"], row["steps"]) == ("8", "10,000")
        reached = [np.array(seed.steps)[np.array(seed.returns) >= 0.5] for seed in seeds]
        first = [steps[0] if len(steps) else np.inf for steps in reached]
        middle = np.sort(first)[4]  # the higher of the two in the middle
        assert row["steps to 0.5"].startswith(f"{middle:,.0f}" if np.isfinite(middle) else "never")
        assert row["steps to 0.5"].endswith(f"({np.isfinite(first).sum()} of 8)")
        assert row["paper, Table 1"] == {DEFAULT: "1.00", BASE: "-0.10", "rnd": "1.00"}[method]
    best = max(finals, key=lambda name: finals[name].mean())
    assert f"| **{finals[best].mean():.2f} ±" in text


def test_the_overview_has_every_row_and_links_to_every_task(store: Path) -> None:
    text = text_of(store, "table: final")
    for result in read_store(store).main.results:
        mean, digits = result.scores.mean(), 2 if result.task == "MountainCar" else 1
        assert re.search(rf"\| {result.method} \| \**{mean:.{digits}f} ± .*\| 8 \| 10,000 \|", text)
    assert "[MountainCar](MountainCar.md)" in text
    assert "[MountainCar](docs/results/MountainCar.md), " not in text_of(store, "table: in short")
    assert table_row(text_of(store, "table: in short"), "[HumanKeep](docs/results/HumanKeep.md)")["steps"] == "10,000"


def test_files_that_cannot_be_used_are_all_named(store: Path) -> None:
    file = next(store.glob("compare/MountainCar/rnd-*.json"))
    text = file.read_text()
    (file.parent / "newer.json").write_text(json.dumps(json.loads(text) | {"version": 99}))
    (file.parent / "nan.json").write_text(text.replace('"final_success": 0.9', '"final_success": NaN', 1))
    (file.parent / "cut.json").write_text(text[:200])
    with pytest.raises(ValueError) as error:
        read_store(store)
    lines = str(error.value).splitlines()
    for name, why in (
        ("compare/MountainCar/newer.json", "version 99"),
        ("nan.json", "NaN is not JSON"),
        ("cut.json", "line"),
    ):
        assert any(name in line and why in line for line in lines), lines
    with pytest.raises(ValueError, match="is not a folder"):
        read_store(store / "nowhere")


def test_a_result_whose_seeds_have_not_begun_is_shown_as_missing(store: Path) -> None:
    shutil.copytree(ROOT / "results" / "plans", store / "plans")
    for plan, method in (("compare", DEFAULT), ("default", "raw kernel"), ("ablation-bandwidth", "h=0.01")):
        write_result(replace(make_result("MountainCar", method), seeds=()), store / plan)
    write_result(make_result("MountainCar", "h=0.1"), store / "ablation-bandwidth")
    write_result(make_result("MountainCar", "start"), store / "default")
    for block, row in (("table: final MountainCar", f"{DEFAULT}\\*"), ("table: default MountainCar", "raw kernel\\*")):
        cells = table_row(text_of(store, block), row)
        assert (cells["seeds"], cells["final, mean ± s.e."]) == ("0", "–")
    assert "| MountainCar° | –\\* |" in text_of(store, "table: ablation-bandwidth")


def test_a_short_run_cuts_off_no_area_but_its_own(store: Path) -> None:
    before = table_row(text_of(store, "table: final MountainCar"), DEFAULT)
    assert before["area to 10,000 [95 %]"] != "–"
    write_result(make_result("MountainCar", "rnd", seeds=8, steps=5_000, level=0.7), store / "compare")
    text = text_of(store, "table: final MountainCar")
    ours, short = table_row(text, DEFAULT), table_row(text, "rnd")
    assert ours["area to 10,000 [95 %]"] == before["area to 10,000 [95 %]"]
    assert (short["area to 10,000 [95 %]"], short["at 10,000"]) == ("–", "–")
    main, cut = read_store(store).main, {}
    for method in ("rnd", BASE):
        result = main.result("MountainCar", method)
        assert result is not None
        areas = []
        for seed in result.seeds:
            kept = np.array(seed.steps) <= 5_000
            areas.append(np.trapezoid(np.array(seed.returns)[kept], np.array(seed.steps)[kept]))
        cut[method] = np.array(areas)
    assert short[f"P(area \\> {BASE})"].startswith(f"{(cut['rnd'][:, None] > cut[BASE]).mean():.2f} [")
    assert not re.search(r"\| \*\*\d", text)  # of runs of unequal length none is best


def test_results_belong_to_the_suite_or_plan_that_they_lie_in(store: Path) -> None:
    shutil.copytree(ROOT / "results" / "plans", store / "plans")
    write_result(make_result("HumanKeep", "h=0.01", level=50.0), store / "ablation-bandwidth")
    for method in ("raw kernel", "start"):
        write_result(make_result("HumanKeep", method, level=50.0), store / "default")
    for method, seconds in (("sasr", 10.0), ("rnd", 15.0)):
        write_result(make_result("AntStand", method, seeds=1, wall_seconds=seconds), store / "cost")
    write_result(make_result("AntStand", "sasr"), store / "mujoco")  # a plan that only adds methods and tasks
    groups = read_store(store).groups
    assert groups["ablation-bandwidth"].methods == ["h=0.01"]
    assert groups["default"].methods == ["raw kernel", "start"]
    assert groups["cost"].methods == ["sasr", "rnd"]
    assert len(groups[MAIN].results) == 7
    assert "| HumanKeep, paper | 194.9 ± 0.0 |" in text_of(store, "table: ablation-bandwidth")
    assert table_row(text_of(store, "table: default HumanKeep"), "raw kernel")["P(area \\> start)"] != "–"
    assert table_row(text_of(store, "table: cost time"), "AntStand")["rnd"] == "1.50"
    assert table_row(text_of(store, "table: cost time"), "AntStand, paper")["rnd"] == "1.11"
    assert "sasr compare rff-on-off" in text_of(store, "table: rff-on-off")
    for block in ("picture: ablation-bandwidth", "picture: default HumanKeep"):
        picture = blocks_of(read_store(store))[block]().picture
        assert picture is not None
        assert any(panel.lines for panel in picture.draw().axes)


def test_the_papers_own_settings_run_in_one_suite_serve_the_others(store: Path) -> None:
    for suite, method, level in (
        ("weight", "λ=0.6", 50.0),
        ("weight", "λ=0.2", 40.0),
        ("features", "M=50", 30.0),
        ("bandwidth", "h=1", 20.0),
        ("bandwidth", "h=0.2", 25.0),  # has been run here too
    ):
        write_result(make_result("HumanKeep", method, level=level), store / f"ablation-{suite}")
    write_result(make_result("HumanKeep", "φ=1", steps=5_000), store / "ablation-retention")  # another length
    blocks = blocks_of(read_store(store))
    rows = {
        suite: table_row(blocks[f"table: ablation-{suite}"]().text, "HumanKeep")
        for suite in ("weight", "features", "retention", "bandwidth")
    }
    assert rows["features"]["M=1000"] == rows["weight"]["λ=0.6"] != rows["bandwidth"]["h=0.2"]
    assert "φ=0.1" not in rows["retention"]
    said = "run as `λ=0.6`, which has the same settings"
    assert f"- {said} (`M=1000`)." in blocks["sources: ablation-features"]().text
    assert said not in blocks["sources: ablation-bandwidth"]().text


def test_the_default_is_the_first_row_whatever_files_are_called(store: Path) -> None:
    write_result(make_result("AntFar", "sasr-authors"), store / "a")  # its file is read before all others
    write_result(make_result("MountainCar", "sasr-authors"), store / "a")
    assert [row.method for row in rows_by_task(read_store(store))["MountainCar"]][:2] == [DEFAULT, "sasr-authors"]


def test_the_authors_curve_goes_with_their_preset_beside_what_has_the_papers_agent(store: Path) -> None:
    write_result(make_result("MountainCar", "sasr-authors", seeds=2), store / "compare")
    picture = blocks_of(read_store(store))["picture: MountainCar"]().picture
    assert picture is not None
    ours, papers = picture.draw().axes
    assert len(ours.lines) == 3  # SASR, SAC and RND
    (released,) = [line for line in papers.lines if line.get_linestyle() != "--"]
    dashed = {line.get_color(): line for line in papers.lines if line is not released}
    assert dashed.keys() == {released.get_color()} | {line.get_color() for line in ours.lines[1:]}
    assert max(line.get_xdata()[-1] for line in dashed.values()) > 100_000
    folded = text_of(store, "table: final MountainCar").split("<details>")
    assert ["| sasr-authors |" in part for part in folded] == [False, True]
    (row,) = [row for row in rows_by_task(read_store(store))["MountainCar"] if row.method == "sasr-authors"]
    figures = f"{row.authors:.2f} | {row.statistics.mean:.2f} ± {row.statistics.error:.2f}"
    assert f"| MountainCar | {figures} |" in text_of(store, "table: authors")


def test_an_empty_store_gives_the_papers_figures_alone(tmp_path: Path) -> None:
    assert blocks_of(read_store(tmp_path)).keys() == {"table: cost time", "table: cost memory", "table: rff-on-off"}
