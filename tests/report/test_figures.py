from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from sasr.report import figures, stats
from sasr.report.collect import Collection
from sasr.report.reference import at, like, read_reference, until
from sasr.report.seeds import SeedResult
from sasr.report.stats import Estimate
from sasr.report.summary import summarise

from .synthetic import make_result, seed_result

CSV = "task,variant,step,mean,spread\nAntStand,sasr,0,1.0,0.1\nAntStand,sasr,5000,50.0,\nAntStand,rlara,0,2.0,0.1\n"


@pytest.fixture(scope="module")
def grid() -> Collection:
    return Collection([make_result(task, method) for task in ("AntStand", "AntFar") for method in ("sasr", "sac")])


def test_a_line_is_the_mean_of_the_seeds_and_its_band_their_standard_error(grid: Collection) -> None:
    figure = figures.learning_curves(figures.panels_of(grid))
    panel = figure.axes[0]
    steps, values = stats.aligned([(own.steps, own.returns) for own in grid.results[0].seeds])
    line, band = panel.lines[0], panel.collections[0]
    np.testing.assert_allclose(line.get_xdata(), steps)
    np.testing.assert_allclose(line.get_ydata(), values.mean(0))
    highest = band.get_paths()[0].vertices[:, 1].max()
    assert highest == pytest.approx((values.mean(0) + values.std(0, ddof=1) / np.sqrt(3)).max())
    assert [own.get_title() for own in figure.axes] == ["AntStand", "AntFar"]


@pytest.mark.parametrize(("band", "lines"), [("error", 2), ("iqm", 2), ("seeds", 8)])
def test_bands_can_be_errors_intervals_or_every_seed(band: figures.Band, lines: int, grid: Collection) -> None:
    figure = figures.learning_curves(figures.panels_of(grid), band=band)
    assert len(figure.axes[0].lines) == lines
    assert len(figure.axes[0].collections) == (0 if band == "seeds" else 2)


def test_reference_curves_lie_over_those_of_the_same_method(grid: Collection, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV)
    reference = read_reference(tmp_path / "curves.csv")
    figure = figures.learning_curves(figures.panels_of(grid), reference=reference)
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1
    np.testing.assert_allclose(dashed[0].get_ydata(), [1.0, 50.0])
    assert not [line for line in figure.axes[1].lines if line.get_linestyle() == "--"]


def test_reference_names_are_ours_and_variants_of_a_method_share_its_curve(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV)
    curves = read_reference(tmp_path / "curves.csv")["AntStand"]
    assert curves.keys() == {"sasr", "relara"}
    assert np.isnan(curves["sasr"].spread[1])
    assert like("sasr (features=50)", curves) is like("sasr-authors", curves) is curves["sasr"]
    assert like("sac", curves) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a file"),
        ("task,variant,step,mean\n", "no column 'spread'"),
        ("", "no column 'task'"),
        (CSV + "AntStand,sasr,many,1,1\n", "line 5"),
        (CSV + "AntStand,sasr\n", "line 5"),
    ],
)
def test_a_bad_reference_file_is_named_with_its_line(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_reference(path)


def test_png_and_pdf_are_real_and_the_same_again(grid: Collection, tmp_path: Path) -> None:
    summary = summarise(grid, draws=50)
    shown = {own.method: own.profile for own in summary.aggregates if own.profile}
    for name, make in {
        "curves": lambda: figures.learning_curves(figures.panels_of(grid)),
        "bars": lambda: figures.interval_bars(summary),
        "profiles": lambda: figures.profiles(shown),
    }.items():
        png, pdf = figures.save(make(), tmp_path / name)
        assert image.imread(png)[..., :3].std() > 0.01
        assert pdf.read_bytes().startswith(b"%PDF")
        again = figures.save(make(), tmp_path / f"{name}-again")
        assert [path.read_bytes() for path in again] == [png.read_bytes(), pdf.read_bytes()]


def test_an_ablation_grid_has_a_row_for_each_setting_and_a_column_for_each_task(grid: Collection) -> None:
    panels = figures.panels_of(grid)
    figure = figures.ablation_grid({"retention": panels, "features": {"AntFar": panels["AntFar"]}})
    titles = [own.get_title() for own in figure.axes]
    assert titles == ["AntStand", "AntFar", "", ""]
    assert [bool(own.lines) for own in figure.axes] == [True, True, False, True]


def test_a_change_is_drawn_beside_what_it_changes_as_far_as_both_go(grid: Collection) -> None:
    whole = figures.panels_of(grid)["AntFar"]
    base, other = list(whole)[:2]
    short = [
        dataclasses.replace(own, steps=own.steps[:3], returns=own.returns[:3], success=own.success[:3])
        for own in whole[other]
    ]
    figure = figures.change_grid(
        {"more": {base: whole[base], other: whole[other]}, "less": {base: whole[base], other: short}}
    )
    drawn = [own for own in figure.axes if own.lines]
    assert [own.get_title() for own in drawn] == ["more", "less"]
    assert [len(own.lines) for own in drawn] == [2, 2]
    assert drawn[1].get_xlim()[1] == short[0].steps[-1] < whole[base][0].steps[-1]
    assert drawn[0].get_xlim()[1] == whole[base][0].steps[-1]


def test_chances_stand_at_their_tasks_and_are_coloured_where_seeds_tell_the_two_apart() -> None:
    level, ahead, behind = Estimate(0.5, 0.3, 0.7), Estimate(0.9, 0.6, 1.0), Estimate(0.2, 0.1, 0.4)
    figure = figures.chances({"first": {"AntStand": level, "AntFar": ahead}, "second": {"AntFar": behind}})
    first, second = figure.axes
    assert [own.get_title() for own in figure.axes] == ["first", "second"]
    names = [own.get_text() for own in first.get_yticklabels()]
    for panel, expected in ((first, {"AntStand": level, "AntFar": ahead}), (second, {"AntFar": behind})):
        bars = panel.lines[1::2]  # after the line at 0.5, a bar and a point by turns
        assert {names[int(bar.get_ydata()[0])]: tuple(bar.get_xdata()) for bar in bars} == {
            task: (own.low, own.high) for task, own in expected.items()
        }
        assert [own.get_xdata()[0] for own in panel.lines[2::2]] == [own.value for own in expected.values()]
    assert names[-1] == "AntStand"  # the first on top
    grey, coloured = (own.get_color() for own in first.lines[1::2])
    assert grey != coloured == second.lines[1].get_color()


def test_visited_states_are_counted_by_periods() -> None:
    states = np.concatenate([np.full((25_000, 2), 0.25), np.full((10_000, 2), 0.75)])
    figure = figures.visit_density(states, bounds=((0.0, 1.0), (0.0, 1.0)), bins=2)
    panels = [own for own in figure.axes if own.images]
    assert [own.get_title() for own in panels] == ["0 – 25,000 steps", "25,000 – 35,000 steps"]
    first, second = (np.asarray(own.images[0].get_array()) for own in panels)
    assert np.flatnonzero(first).tolist() == [0]
    assert np.flatnonzero(second).tolist() == [3]
    with pytest.raises(ValueError, match=r"\(4, 3\) are not \(steps, 2\)"):
        figures.visit_density(np.zeros((4, 3)))


def test_the_success_rate_along_a_feature_is_its_mean_in_each_bin() -> None:
    height = np.array([0.0, 0.1, 0.9, 1.0])
    stage = figures.Stage("early", height, [0.1, 0.2, 0.8, 0.9], [0.0, 0.2, 0.8, 1.0])
    figure = figures.shaping_along_feature([stage, stage._replace(name="late")], bins=2)
    np.testing.assert_allclose(figure.axes[2].lines[0].get_ydata(), [0.1, 0.9])
    assert [own.get_title() for own in figure.axes[:2]] == ["early", "late"]
    with pytest.raises(ValueError, match="no stages"):
        figures.shaping_along_feature([])


def test_a_reference_is_cut_between_its_points_and_unknown_beyond_them(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("# for readers\n# more\n" + CSV)
    curve = read_reference(tmp_path / "curves.csv")["AntStand"]["sasr"]
    part = until(curve, 2_500)
    assert part.steps.tolist() == [0.0, 2_500.0]
    assert part.mean.tolist() == [1.0, 25.5]
    assert until(curve, 9_000) is curve
    assert at(curve, 2_500) == 25.5
    assert at(curve, 10_000) == 50.0  # its points are 5,000 steps apart: the next would come no sooner
    assert np.isnan(at(curve, 10_001))
    assert np.isnan(at(curve, -1))
    (tmp_path / "curves.csv").write_text("# for readers\n" + CSV + "AntStand,sasr,many,1,1\n")
    with pytest.raises(ValueError, match="line 6"):
        read_reference(tmp_path / "curves.csv")


def test_a_legend_of_long_names_stays_within_the_picture(grid: Collection) -> None:
    seeds = figures.panels_of(grid)["AntFar"]["sasr"]
    names = ["sasr", *(f"sac with a long name for its variant number {number}" for number in range(5))]
    figure = figures.over_authors(dict.fromkeys(names, seeds), {})
    (legend,) = figure.legends
    assert [own.get_text() for own in legend.get_texts()] == names
    figure.draw_without_rendering()
    inside, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= inside.x0
    assert inside.x1 <= whole.x1


def test_long_names_above_neighbouring_panels_do_not_run_into_each_other(grid: Collection) -> None:
    seeds = figures.panels_of(grid)["AntFar"]["sasr"]
    names = [f"without a background, ten more runs, number {number}" for number in range(4)]
    figure = figures.change_grid({name: {"sasr": seeds, name: seeds} for name in names})
    figure.draw_without_rendering()
    assert [panel.get_title().replace("\n", " ") for panel in figure.axes] == names
    boxes = [panel.title.get_window_extent() for panel in figure.axes]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert boxes[-1].x1 <= figure.bbox.x1


def test_a_change_is_drawn_as_far_as_both_go() -> None:
    long = SeedResult(seed=0, steps=(100, 200, 300), returns=(1.0, 2.0, 90.0))
    short = SeedResult(seed=0, steps=(100, 200), returns=(3.0, 4.0))
    (panel,) = figures.change_grid({"shorter": {"sasr": [long], "shorter": [short]}}).axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[1.0, 2.0], [3.0, 4.0]]
    assert panel.get_xlim() == (0.0, 200.0)
    assert panel.get_ylim()[1] < 10.0
    late = SeedResult(seed=0, steps=(500,), returns=(5.0,))
    (panel,) = figures.change_grid({"later": {"sasr": [short], "later": [late]}}).axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[3.0, 4.0]]


def test_returns_in_training_have_a_panel_of_their_own_where_they_are_stored() -> None:
    known = SeedResult(
        seed=0,
        steps=(100, 300, 500),
        returns=(9.0, 9.0, 9.0),
        episodes=(2, 0, 1),
        trained=(1.0, float("nan"), 3.0),
        lengths=(50.0, float("nan"), 50.0),
    )
    methods = {"sasr": [seed_result(0)], "sac": [known, dataclasses.replace(known, seed=1)]}
    assert figures.in_training(methods).keys() == {"sac"}
    evaluated, trained = figures.over_authors(methods, {}, title="a task").axes
    assert [evaluated.get_title(), trained.get_title()] == ["a task", "in training"]
    (line,) = (
        trained.lines
    )  # at the middles of stretches in which an episode ended, in the colour that sac has beside it
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([50.0, 400.0], [1.0, 3.0])
    assert line.get_color() == evaluated.lines[1].get_color() != evaluated.lines[0].get_color()
    assert len(figures.over_authors({"sasr": [seed_result(0)]}, {}).axes) == 1
