from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pages import demo_picture, pictures
from sasr.report import figures
from sasr.report.read import Collection, Reference
from sasr.report.seeds import SeedResult
from sasr.report.stats import Estimate
from tests.report.synthetic import make_result, make_run, seed_result


@pytest.fixture(scope="module")
def grid() -> Collection:
    return Collection([make_result(task, method) for task in ("AntStand", "AntFar") for method in ("sasr", "sac")])


def curve(*points: tuple[float, float]) -> Reference:
    steps, mean = np.array(points).T
    return Reference(steps, mean, np.zeros(len(steps)))


def test_an_ablation_has_a_panel_for_each_task_with_the_authors_curves_as_far_as_ours_go(grid: Collection) -> None:
    reference = {"AntFar": {"sac": curve((0.0, 1.0), (20_000.0, 3.0)), "other": curve((0.0, 1.0), (5.0, 1.0))}}
    figure = pictures.ablation(figures.panels_of(grid), reference)
    assert [panel.get_title() for panel in figure.axes] == ["AntStand", "AntFar"]
    assert [len(panel.lines) for panel in figure.axes] == [2, 3]
    (dashed,) = (line for line in figure.axes[1].lines if line.get_linestyle() == "--")
    assert dashed.get_xdata().tolist() == [0.0, 10_000.0]
    assert dashed.get_ydata().tolist() == [1.0, 2.0]


def test_a_change_is_drawn_beside_what_it_changes_as_far_as_both_go(grid: Collection) -> None:
    whole = figures.panels_of(grid)["AntFar"]
    base, other = list(whole)[:2]
    short = [
        dataclasses.replace(each, steps=each.steps[:3], returns=each.returns[:3], success=each.success[:3])
        for each in whole[other]
    ]
    figure = pictures.changes(
        {"more": {base: whole[base], other: whole[other]}, "less": {base: whole[base], other: short}}
    )
    drawn = [axes for axes in figure.axes if axes.lines]
    assert [each.get_title() for each in drawn] == ["more", "less"]
    assert [len(each.lines) for each in drawn] == [2, 2]
    assert drawn[1].get_xlim()[1] == short[0].steps[-1] < whole[base][0].steps[-1]
    assert drawn[0].get_xlim()[1] == whole[base][0].steps[-1]


def test_chances_stand_at_their_tasks_and_are_coloured_where_seeds_tell_the_two_apart() -> None:
    level, ahead, behind = Estimate(0.5, 0.3, 0.7), Estimate(0.9, 0.6, 1.0), Estimate(0.2, 0.1, 0.4)
    figure = pictures.chances(
        {"first": {"AntStand": level, "AntFar": ahead}, "second": {"AntFar": behind}}, ["AntStand", "AntFar"]
    )
    assert figure.get_suptitle()
    assert "no difference" in [text.get_text() for text in figure.legends[0].get_texts()]
    first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["first", "second"]
    names = [label.get_text() for label in first.get_yticklabels()]
    for panel, expected in ((first, {"AntStand": level, "AntFar": ahead}), (second, {"AntFar": behind})):
        bars = panel.lines[1::2]  # after the line at 0.5, a bar and a point by turns
        assert {names[int(bar.get_ydata()[0])]: tuple(bar.get_xdata()) for bar in bars} == {
            task: (own.low, own.high) for task, own in expected.items()
        }
        assert [each.get_xdata()[0] for each in panel.lines[2::2]] == [each.value for each in expected.values()]
    assert names[-1] == "AntStand"  # the first on top
    grey, coloured = (each.get_color() for each in first.lines[1::2])
    assert grey != coloured == second.lines[1].get_color()


def test_a_legend_of_long_names_stays_within_the_picture(grid: Collection) -> None:
    seeds = figures.panels_of(grid)["AntFar"]["sasr"]
    names = ["sasr", *(f"sac with a long name for its variant number {number}" for number in range(5))]
    figure = pictures.over_authors(dict.fromkeys(names, seeds), {}, {}, title="")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    figure.draw_without_rendering()
    inside, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= inside.x0
    assert inside.x1 <= whole.x1


def test_long_names_above_neighbouring_panels_do_not_run_into_each_other(grid: Collection) -> None:
    seeds = figures.panels_of(grid)["AntFar"]["sasr"]
    names = [f"without a background, ten more runs, number {number}" for number in range(4)]
    figure = pictures.changes({name: {"sasr": seeds, name: seeds} for name in names})
    figure.draw_without_rendering()
    assert [panel.get_title().replace("\n", " ") for panel in figure.axes] == names
    boxes = [panel.title.get_window_extent() for panel in figure.axes]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert boxes[-1].x1 <= figure.bbox.x1


def test_a_change_is_drawn_as_far_as_both_go() -> None:
    long = SeedResult(seed=0, steps=(100, 200, 300), returns=(1.0, 2.0, 90.0))
    short = SeedResult(seed=0, steps=(100, 200), returns=(3.0, 4.0))
    (panel,) = pictures.changes({"shorter": {"sasr": [long], "shorter": [short]}}).axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[1.0, 2.0], [3.0, 4.0]]
    assert panel.get_xlim() == (0.0, 200.0)
    assert panel.get_ylim()[1] < 10.0
    late = SeedResult(seed=0, steps=(500,), returns=(5.0,))
    (panel,) = pictures.changes({"later": {"sasr": [short], "later": [late]}}).axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[3.0, 4.0]]


def test_what_has_the_papers_agent_has_a_panel_of_its_own_beside_the_authors_curves() -> None:
    seeds = [seed_result(0)]
    curve = Reference(np.array([0.0, 1e6]), np.array([1.0, 2.0]), np.zeros(2))
    figure = pictures.over_authors(
        {"sasr": seeds}, {"sac-paper": seeds}, {"sac-paper": curve, "x": curve}, title="Task"
    )
    today, papers = figure.axes
    assert (len(today.lines), len(papers.lines)) == (1, 3)
    assert papers.lines[0].get_color() == papers.lines[2].get_color() != papers.lines[1].get_color()
    assert len(pictures.over_authors({"sasr": seeds}, {}, {}, title="Task").axes) == 1
    assert len(pictures.over_authors({}, {"sac-paper": seeds}, {}, title="Task").axes) == 1


def test_the_demos_picture_has_the_run_beside_the_same_agent_alone(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    make_run(runs / "sasr")
    demo_picture.main(runs, out=tmp_path / "alone.png")
    make_run(runs / "sac", shaper="none")
    demo_picture.main(runs, out=tmp_path / "both.png")
    alone, both = ((tmp_path / f"{name}.png").read_bytes() for name in ("alone", "both"))
    assert alone.startswith(b"\x89PNG")
    assert alone != both
