from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from sasr.report import figures, stats
from sasr.report.read import Collection, read_reference, reference_of
from sasr.report.summary import summarise

from .synthetic import make_result

CSV = "task,variant,step,mean,spread\nAntStand,sasr,0,1.0,0.1\nAntStand,sasr,5000,50.0,\nAntStand,rlara,0,2.0,0.1\n"


@pytest.fixture(scope="module")
def grid() -> Collection:
    return Collection([make_result(task, method) for task in ("AntStand", "AntFar") for method in ("sasr", "sac")])


def test_a_line_is_the_mean_of_the_seeds_and_its_band_their_standard_error(grid: Collection) -> None:
    figure = figures.learning_curves(figures.panels_of(grid))
    panel = figure.axes[0]
    steps, values = stats.aligned([(seed.steps, seed.returns) for seed in grid.results[0].seeds])
    line, band = panel.lines[0], panel.collections[0]
    np.testing.assert_allclose(line.get_xdata(), steps)
    np.testing.assert_allclose(line.get_ydata(), values.mean(0))
    highest = band.get_paths()[0].vertices[:, 1].max()
    assert highest == pytest.approx((values.mean(0) + values.std(0, ddof=1) / np.sqrt(3)).max())
    assert [axes.get_title() for axes in figure.axes] == ["AntStand", "AntFar"]


def test_reference_curves_lie_over_those_of_the_same_method(grid: Collection, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV)
    reference = read_reference(tmp_path / "curves.csv")
    figure = figures.learning_curves(figures.panels_of(grid), reference=reference)
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1
    np.testing.assert_allclose(dashed[0].get_ydata(), [1.0, 50.0])
    assert not [line for line in figure.axes[1].lines if line.get_linestyle() == "--"]


def test_a_reference_is_cut_where_our_curves_end(grid: Collection, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV + "AntFar,sasr,0,1.0,\nAntFar,sasr,20000,41.0,\n")
    reference = read_reference(tmp_path / "curves.csv")
    figure = figures.learning_curves(figures.panels_of(grid), reference=reference)
    (dashed,) = [line for line in figure.axes[1].lines if line.get_linestyle() == "--"]
    assert dashed.get_xdata().tolist() == [0.0, 10_000.0]
    assert dashed.get_ydata().tolist() == [1.0, 21.0]
    whole = reference["AntFar"]["sasr"]
    assert whole.until(30_000) is whole


def test_a_rival_that_was_run_elsewhere_has_its_reference_curve_here(grid: Collection, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV)
    found = Collection([*grid.results, make_result("AntFar", "relara")])
    reference = read_reference(tmp_path / "curves.csv")
    figure = figures.learning_curves(figures.panels_of(found), reference=reference)
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert len(dashed) == 2


def test_rivals_that_were_run_nowhere_have_their_reference_curves(grid: Collection, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV + "AntStand,M=50,0,3.0,\nAntFar,ppo,0,3.0,\n")
    reference = read_reference(tmp_path / "curves.csv")
    rivals = ["sasr", "relara", "ppo", "explors"]
    figure = figures.learning_curves(figures.panels_of(grid), reference=reference, rivals=rivals)
    starts = [{line.get_ydata()[0] for line in panel.lines if line.get_linestyle() == "--"} for panel in figure.axes]
    assert starts == [{1.0, 2.0}, {3.0}]
    legend = figure.legends[0]
    lines = {text.get_text(): line for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert list(lines) == ["sasr", "sac", "relara", "ppo", "reference"]
    assert [name for name, line in lines.items() if line.get_linestyle() == "--"] == ["relara", "ppo", "reference"]


def test_a_task_without_any_curve_says_that_it_was_not_run() -> None:
    figure = figures.learning_curves({"RobotSlide": {}}, reference={})
    assert [text.get_text() for text in figure.axes[0].texts] == ["not run"]


def test_a_task_that_was_not_run_has_whole_reference_curves(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV)
    reference = read_reference(tmp_path / "curves.csv")
    figure = figures.learning_curves({"AntStand": {}}, reference=reference, rivals=["sasr"])
    (line,) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [0.0, 5_000.0]


def test_the_density_of_visits_has_a_row_for_each_method_and_a_panel_for_each_period() -> None:
    x, y = np.linspace(-1.2, 0.6, 4), np.linspace(-0.07, 0.07, 3)
    densities = {"sasr": np.ones((4, 2, 3)), "sac": np.arange(24.0).reshape(4, 2, 3)}
    steps = [0, 25_000, 50_000, 75_000, 100_000]
    figure = figures.visit_density(densities, x=x, y=y, steps=steps, axes=("position", "velocity"))
    panels = figure.axes[:8]
    assert [panel.get_ylabel() for panel in panels[::4]] == ["sasr", "sac"]
    assert panels[3].get_title() == "75k – 100k steps"
    np.testing.assert_allclose(panels[5].collections[0].get_array(), np.log1p(densities["sac"][1]))


def test_bonuses_along_a_feature_stand_over_the_learning_curve() -> None:
    rng = np.random.default_rng(0)
    steps = [1_000 * k for k in range(1, 9)]
    feature, bonus = rng.normal(size=(8, 100)), rng.uniform(-1.0, 0.0, size=(8, 100))
    seeds = make_result().seeds
    figure = figures.bonus_along_feature(steps=steps, feature=feature, bonus=bonus, name="height", seeds=seeds)
    *stages, below = figure.axes
    assert [panel.get_title() for panel in stages] == ["2k steps", "4k steps", "6k steps", "8k steps"]
    assert below.get_title() == ""
    marks = [line.get_xdata()[0] for line in below.lines if line.get_linestyle() == "--"]
    assert marks == [2_000, 4_000, 6_000, 8_000]


def test_reference_names_are_ours_and_variants_of_a_method_share_its_curve(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CSV)
    curves = read_reference(tmp_path / "curves.csv")["AntStand"]
    assert curves.keys() == {"sasr", "relara"}
    assert np.isnan(curves["sasr"].spread[1])
    assert reference_of("sasr (features=50)", curves) is reference_of("sasr-authors", curves) is curves["sasr"]
    assert reference_of("sac", curves) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a file"),
        ("task,variant,step,mean\n", "no column 'spread'"),
        ("", "no column 'task'"),
        (CSV + "AntStand,sasr,many,1,1\n", "line 5"),
        (CSV + "AntStand,sasr\n", "line 5"),
        ("# for readers\n# more\n" + CSV + "AntStand,sasr,many,1,1\n", "line 7"),
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
    shown = {aggregate.method: aggregate.profile for aggregate in summary.aggregates if aggregate.profile}
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
