"""docs/results is what the folder results/ gives; tables say what numpy says; bad files and placeholders are named."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sasr.experiments.plan_file import read_plan
from sasr.report.analysis import Stage, bin_stages, count_visits, write_analysis
from sasr.report.figures import png_data
from sasr.report.pages.guard import duels
from sasr.report.pages.inputs import MAIN, methods_of, read_store, takes_apart
from sasr.report.pages.rows import figures_of
from sasr.report.pages.tasks import rows_by_task
from sasr.report.pages.write import differences, pages_of, write_pages
from sasr.report.seeds import SeedResult
from sasr.report.store import Result, write_result
from tests.report.synthetic import make_result

ROOT = Path(__file__).parents[1]
LEVELS = {"sasr": 1.0, "sac": 0.4, "rnd": 0.7}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two tasks, three methods, eight seeds."""
    folder = tmp_path / "results"
    shutil.copytree(ROOT / "results" / "reference", folder / "reference")
    (folder / "thresholds.toml").write_text("MountainCar = 0.5\n")
    for task, scale in (("MountainCar", 1.0), ("HumanKeep", 150.0)):
        for method, level in LEVELS.items():
            write_result(make_result(task, method, seeds=8, level=scale * level), folder)
    return folder


def text_of(folder: Path, page: str) -> str:
    return next(own.text for own in pages_of(folder) if own.name == page)


def table_row(text: str, method: str) -> dict[str, str]:
    """A row of the first table of a page whose second or first column is the method."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    row = next(line for line in lines if line[0] == method)
    return dict(zip(lines[0], (cell.strip("*") for cell in row), strict=True))


def test_the_pages_in_docs_are_what_the_store_gives() -> None:
    assert differences(ROOT / "results", ROOT / "docs" / "results") == [], "run `make results`"


def test_plans_can_be_run_and_those_that_take_the_default_apart_change_its_settings_alone() -> None:
    plans = {path.stem: read_plan(path) for path in (ROOT / "results" / "plans").glob("*.toml")}
    assert {name for name, plan in plans.items() if takes_apart(plan)} == {"default", "reach"}
    assert next(iter(methods_of(plans["reach"]))) == "without background"
    methods = methods_of(plans["default"])
    assert next(iter(methods)) == "start"
    start = methods["start"].shaper_settings
    beaten = ("start", "sasr", "sac", "sasr-authors")  # where it began, the default, and what it is measured against
    for name, own in methods.items():
        if name not in beaten:
            assert own.shaper_settings.keys() >= start.keys()
            assert own.shaper_settings != start


def test_the_authors_curves_have_few_points_and_names_that_are_ours() -> None:
    found = read_store(ROOT / "results")
    assert {"sasr", "sac", "relara", "explo", "h=0.01"} <= found.reference["AntStand"].keys()
    assert max(len(curve.steps) for own in found.reference.values() for curve in own.values()) <= 50
    assert found.paper["table1"].keys() >= found.reference.keys() - {"AntSpeed"}


def test_tables_say_what_numpy_says(store: Path) -> None:
    results = {own.method: own for own in read_store(store).main.results if own.task == "MountainCar"}
    text = text_of(store, "MountainCar")
    finals = {name: np.array([np.mean(own.final) for own in result.seeds]) for name, result in results.items()}
    for method, scores in finals.items():
        row = table_row(text, method)
        error = scores.std(ddof=1) / np.sqrt(8)
        assert row["final, mean ± s.e."] == f"{scores.mean():.2f} ± {error:.2f}"
        assert row["final, IQM [95 %]"].startswith(f"{np.sort(scores)[2:6].mean():.2f} [")
        areas = [np.trapezoid(own.returns, own.steps) / 10_000 for own in results[method].seeds]
        assert row["area to 10,000 [95 %]"].startswith(f"{np.mean(areas):.2f} [")
        assert (row["seeds"], row["steps"]) == ("8", "10,000")
        first = [
            next((s for s, r in zip(o.steps, o.returns, strict=True) if r >= 0.5), np.inf)
            for o in results[method].seeds
        ]
        reached = int(np.isfinite(first).sum())
        middle = np.sort(first)[4]  # the higher of the two in the middle
        assert row["steps to 0.5"].startswith(f"{middle:,.0f}" if np.isfinite(middle) else "never")
        assert row["steps to 0.5"].endswith(f"({reached} of 8)")
        assert (
            row["P(final \\> sac)"].startswith(f"{(scores[:, None] > finals['sac']).mean():.2f} [") or method == "sac"
        )
        assert row["paper, Table 1"] == {"sasr": "1.00", "sac": "-0.10", "rnd": "1.00"}[method]
    best = max(finals, key=lambda name: finals[name].mean())
    assert f"| **{finals[best].mean():.2f} ±" in text


def test_the_index_has_every_row_and_links_to_every_page(store: Path) -> None:
    text = text_of(store, "README")
    for result in read_store(store).main.results:
        mean, digits = result.scores.mean(), 2 if result.task == "MountainCar" else 1
        assert re.search(rf"\| {result.method} \| \**{mean:.{digits}f} ± .*\| 8 \| 10,000 \|", text)
    for page in pages_of(store):
        assert page.name == "README" or f"]({page.name}.md)" in text


def test_every_row_has_its_command_machine_seeds_and_commit(store: Path) -> None:
    text = text_of(store, "HumanKeep")
    for method in LEVELS:
        command = f"sasr compare --tasks HumanKeep --methods {method} --seeds 8 --save results/"
        assert f"- `{method}`: seeds 0–7, commit abc1234, a processor, 2 cores: `{command}`" in text
    write_result(make_result("MountainCar", "explo", machine={"processor": "another", "cores": 1}), store)
    assert "commit abc1234, another, 1 core: `" in text_of(store, "MountainCar")


def test_the_same_store_gives_the_same_bytes_and_old_pages_go(store: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one).mkdir()
    (one / "by-hand.md").write_text("# Not ours\n")
    for out in (one, two):
        write_pages(store, out)
    assert differences(store, one) == []
    assert {path.name for path in one.iterdir()} - {"by-hand.md"} == {path.name for path in two.iterdir()}
    for path in two.iterdir():
        assert path.read_bytes() == (one / path.name).read_bytes(), path.name
    for file in store.glob("HumanKeep-*.json"):
        file.unlink()
    assert "HumanKeep.md belongs to no page" in differences(store, one)
    write_pages(store, one)
    assert sorted(path.name for path in one.iterdir()) == [
        "MountainCar.md", "MountainCar.png", "README.md", "by-hand.md", "costs.md", "guard.png",
    ]  # fmt: skip


def test_a_picture_that_is_older_than_its_data_is_found_and_drawn_again(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "docs"
    write_pages(store, out)
    before = png_data(out / "MountainCar.png")
    assert before in (out / "MountainCar.md").read_text()
    write_result(make_result("MountainCar", "sasr", seeds=8, level=0.9), store)
    assert {"MountainCar.md is not what the results give", "MountainCar.png was drawn from other data"} <= {
        *differences(store, out)
    }
    write_pages(store, out)
    assert differences(store, out) == []
    assert png_data(out / "MountainCar.png") != before


def test_files_that_cannot_be_used_are_all_named(store: Path, tmp_path: Path) -> None:
    file = next(store.glob("MountainCar-sac-*.json"))
    data = json.loads(file.read_text())
    (store / "newer.json").write_text(json.dumps(data | {"version": 99}))
    (store / "nan.json").write_text(file.read_text().replace('"final_success": 0.9', '"final_success": NaN', 1))
    (store / "cut.json").write_text(file.read_text()[:200])
    (store / "analysis").mkdir()
    (store / "analysis" / "odd.json").write_text("{}")
    with pytest.raises(ValueError) as error:
        write_pages(store, tmp_path / "docs")
    told = str(error.value).splitlines()
    for name, why in (
        ("newer.json", "version 99"),
        ("nan.json", "NaN is no JSON"),
        ("cut.json", "line"),
        ("analysis/odd.json", "no analysis"),
    ):
        assert any(name in line and why in line for line in told), told
    assert not (tmp_path / "docs").exists()


def test_seeds_that_gave_nan_and_seeds_that_are_missing_are_marked(store: Path) -> None:
    whole = make_result("MountainCar", "sasr", seeds=8)
    broken = (SeedResult(seed=7, steps=(0, 10_000), returns=(0.0, float("nan"))),)
    lame = Result(**{**whole.__dict__, "seeds": whole.seeds[:6] + broken})
    write_result(lame, store)
    text = text_of(store, "MountainCar")
    assert table_row(text, "sasr\\*‡")["seeds"] == "6"
    assert "seed 6 not run" in text
    assert "seed 7 with figures that are not finite" in text


def test_a_result_whose_seeds_have_not_begun_is_shown_as_missing(store: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results" / "plans", store / "plans")
    for method in ("sasr", "raw kernel", "h=0.01", "h=0.1"):
        nothing = Result(**{**make_result("MountainCar", method).__dict__, "seeds": ()})
        write_result(nothing if method != "h=0.1" else make_result("MountainCar", method), store)
    write_pages(store, tmp_path / "docs")
    for page, row in (("MountainCar", "sasr\\*"), ("default", "raw kernel\\*")):
        found = table_row((tmp_path / "docs" / f"{page}.md").read_text(), row)
        assert (found["seeds"], found["final, mean ± s.e."]) == ("0", "–")
    assert "| MountainCar | –\\* |" in (tmp_path / "docs" / "ablations.md").read_text()


def test_runs_of_unequal_length_are_compared_by_their_common_part_only(store: Path) -> None:
    write_result(make_result("MountainCar", "sac", seeds=8, steps=5_000, level=0.4), store)
    row = table_row(text_of(store, "MountainCar"), "sasr")
    assert "P(final \\> sac)" not in row
    assert "area to 5,000 [95 %]" in row
    assert row["P(area \\> sac)"] != "–"


def test_a_short_run_of_a_third_method_cuts_no_area_off_but_its_own(store: Path) -> None:
    before = table_row(text_of(store, "MountainCar"), "sasr")
    assert before["area to 10,000 [95 %]"] != "–"
    write_result(make_result("MountainCar", "rnd", seeds=8, steps=5_000, level=0.7), store)
    page = text_of(store, "MountainCar")
    ours, short = table_row(page, "sasr"), table_row(page, "rnd")
    assert ours["area to 10,000 [95 %]"] == before["area to 10,000 [95 %]"]
    assert (short["area to 10,000 [95 %]"], short["P(final \\> sac)"]) == ("–", "–")
    found = read_store(store).main
    cut = {}
    for method in ("rnd", "sac"):
        seeds = found.cell("MountainCar", method).seeds
        points = [[(x, y) for x, y in zip(own.steps, own.returns, strict=True) if x <= 5_000] for own in seeds]
        cut[method] = np.array([np.trapezoid(*np.array(own).T[::-1]) for own in points])
    assert short["P(area \\> sac)"].startswith(f"{(cut['rnd'][:, None] > cut['sac']).mean():.2f} [")


def test_only_runs_of_the_same_length_have_a_best(store: Path) -> None:
    assert re.search(r"\| \*\*[01]\.\d\d ± ", text_of(store, "MountainCar"))
    write_result(make_result("MountainCar", "rnd", seeds=8, steps=5_000, level=0.7), store)
    assert not re.search(r"\| \*\*\d", text_of(store, "MountainCar"))


def test_the_index_says_where_the_default_is_better_and_where_worse(tmp_path: Path) -> None:
    for task, ours, theirs in (("AntStand", 9.0, 1.0), ("AntFar", 1.0, 90.0), ("Other-v0", 9.0, 1.0)):
        write_result(make_result(task, "sasr", seeds=6, level=ours), tmp_path)
        write_result(make_result(task, "sac", seeds=6, level=theirs, steps=20_000, points=40), tmp_path)
    write_result(make_result("AntStand", "sasr-authors", seeds=6, level=9.1), tmp_path)
    text = text_of(tmp_path, "README")
    lines = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in text.splitlines() if "[" in line}
    assert lines["AntStand"][:3] == ["10,000", "1.00 [1.00, 1.00]", "better"]
    assert lines["AntStand"][5].startswith("not told apart")
    assert lines["AntFar"][:3] == ["10,000", "0.00 [0.00, 0.00]", "worse"]
    assert lines["AntFar"][3:5] == ["–", "–"]
    assert lines["Other-v0"][2] == "better"
    assert lines["all of the catalogue"][1:3] == ["0.50 [0.50, 0.50]", "not told apart"]  # without the other one
    (picture,) = next(page for page in pages_of(tmp_path) if page.name == "README").pictures
    assert f"({picture.file})\n<!-- drawn from data {picture.data} -->" in text
    assert [own.get_title() for own in picture.draw().axes] == [
        "against plain SAC",
        "against the released code's settings",
    ]


def test_one_seed_each_gives_no_verdict_and_no_rival_no_table(tmp_path: Path) -> None:
    write_result(make_result("AntStand", "sasr", seeds=1), tmp_path)
    write_result(make_result("AntStand", "rnd", seeds=1), tmp_path)
    assert "The default against" not in text_of(tmp_path, "README")
    write_result(make_result("AntStand", "sac", seeds=1, level=0.1), tmp_path)
    (duel,) = duels(rows_by_task(read_store(tmp_path)), "sac")
    assert duel.verdict == "one seed"
    assert "| AntStand | 10,000 | 1.00 | one seed | – | – | – |" in text_of(tmp_path, "README")
    assert "all of the catalogue |" not in text_of(tmp_path, "README")
    assert "guard.png" not in text_of(tmp_path, "README")  # no interval, nothing to look at
    assert duel.better.value == 1.0


def test_notes_are_filled_in_from_the_store(store: Path) -> None:
    (store / "notes").mkdir()
    note = store / "notes" / "MountainCar.md"
    note.write_text("SASR {sasr.final} against {sac.final}, {sasr.seeds} seeds; on HumanKeep {HumanKeep/sac.auc}.\n")
    text = text_of(store, "MountainCar")
    ours, theirs = table_row(text, "sasr"), table_row(text, "sac")
    other = table_row(text_of(store, "HumanKeep"), "sac")["area to 10,000 [95 %]"]
    said = f"SASR {ours['final, mean ± s.e.']} against {theirs['final, mean ± s.e.']}, 8 seeds; on HumanKeep {other}."
    assert text.endswith(f"## In short\n\n{said}\n")
    assert "`results/notes/HumanKeep.md`" in text_of(store, "HumanKeep")


def test_notes_can_quote_a_point_of_the_curve(store: Path) -> None:
    (store / "notes").mkdir()
    (own,) = (own for own in read_store(store).main.results if (own.task, own.method) == ("MountainCar", "sasr"))
    step = own.seeds[0].steps[3]
    (store / "notes" / "MountainCar.md").write_text(f"There it is at {{sasr.at {step:,}}}.\n")
    there = np.array([seed.returns[3] for seed in own.seeds])
    said = f"There it is at {there.mean():.2f} ± {there.std(ddof=1) / len(there) ** 0.5:.2f}."
    assert text_of(store, "MountainCar").endswith(f"## In short\n\n{said}\n")


def test_notes_can_quote_an_area_and_a_duel_up_to_any_point(store: Path) -> None:
    (store / "notes").mkdir()
    (store / "notes" / "MountainCar.md").write_text(
        "{sasr.area to 10,000} is {sasr.auc}; {MountainCar/sasr.beats sac to 10,000} is {sasr.better_auc}; "
        "{rises 0.3.area to 5,000}, {rises 0.3.area to 10,000}; {rises 0.3.beats sac to 5,000}, "
        "{rises 0.3.beats rises 0.6 to 5,000}, {rises 0.6.beats rises 0.3 to 10,000}.\n"
    )
    for name, steps, returns in (
        ("rises 0.3", (5_000, 10_000), (90.0, 10.0)),
        ("rises 0.6", (5_000, 10_000), (60.0, 300.0)),
    ):
        seeds = tuple(SeedResult(seed=k, steps=steps, returns=returns, final=(0.0,)) for k in range(3))
        write_result(replace(make_result("MountainCar", name), seeds=seeds, planned=(0, 1, 2)), store)
    said = text_of(store, "MountainCar").splitlines()[-1]
    same = re.fullmatch(r"(.+) is (.+); (.+) is (.+?); (.*)", said)
    assert same is not None, said
    assert same[1] == same[2]
    assert same[3] == same[4]
    # A curve begins at its first point: 90, then down to 10.
    assert same[5] == ("90.0 [90.0, 90.0], 50.0 [50.0, 50.0]; 1.00 [1.00, 1.00], 1.00 [1.00, 1.00], 1.00 [1.00, 1.00].")


def test_notes_can_quote_what_was_paid_in_training(store: Path) -> None:
    (store / "notes").mkdir()
    seeds = [
        SeedResult(
            seed=k,
            steps=(1_000, 9_000, 10_000),
            returns=(0.0, 0.0, 0.0),
            episodes=(2, 0, 3),
            trained=(1.0 + k, float("nan"), 40.0 + 10.0 * k),
            lengths=(10.0, float("nan"), 50.0),
            bonus=(-0.5, -0.25, 0.0),
            failures=(1.0, 0.5, 0.25),
            values=(10.0, 200.0 + k, float("nan")),
            final=(0.0,),
        )
        for k in range(3)
    ]
    write_result(replace(make_result("MountainCar", "rnd"), seeds=tuple(seeds), planned=(0, 1, 2)), store)
    (store / "notes" / "MountainCar.md").write_text(
        "{rnd.trained}; {rnd.trained 1,000-10,000}; {rnd.lowest 0-1,000} to {rnd.highest 0-1,000}; "
        "{rnd.above 2.5 in 0-1,000} and {rnd.above 45 in 9,000-10,000} above; {rnd.lengths 0-10,000} steps; "
        "{rnd.bonus 0-9,000} and {rnd.failures 9,000-10,000}; {rnd.values 0-10,000}, "
        "{rnd.valued 201 in 0-10,000} and {rnd.valued 9.5 in 0-1,000} above.\n"
    )
    # Two episodes of 10 steps and three of 50 are 34 steps long in the mean; bonuses weigh by 1,000 and 8,000 steps.
    text = text_of(store, "MountainCar")
    said = "50.00 ± 5.77; 50.00 ± 5.77; 1.00 to 3.00; 1 and 2 above; 34 steps; -0.278 and 0.25; 202, 1 and 3 above.\n"
    assert text.endswith(said)
    assert table_row(text, "rnd")["in training, last tenth"] == "50.00 ± 5.77"
    assert table_row(text, "sasr")["in training, last tenth"] == "–"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("MountainCar", "{sasr.trained 0-10,000}", r"from 0 to 10,000, .* of the first are without such figures"),
        ("MountainCar", "{sasr.bonus 0-10,000}", r"\{sasr\.bonus 0-10,000\}: not every seed has"),
        ("MountainCar", "{sasr.above 0-10,000}", r"'above' has no border, as in above 25 in …"),
        ("MountainCar", "{sasr.valued 0-10,000}", r"'valued' has no border, as in valued 25 in …"),
        ("MountainCar", "{sasr.values 3 in 0-10,000}", r"'values' has a border too many"),
        ("MountainCar", "{sasr.above 2.5.1 in 0-10,000}", r"\{sasr\.above 2\.5\.1 in 0-10,000\}: method"),
        ("MountainCar", "{sasr.trained 10,000-0}", r"not every seed has episodes of training from 10,000 to 0"),
        ("MountainCar", "{sasr.lowest 3 in 0-10,000}", r"'lowest' has a border too many"),
        (
            "MountainCar",
            "{sascr.final}",
            r"MountainCar\.md: \{sascr\.final\}: method 'sascr' is unknown; did you mean 'sasr'",
        ),
        ("MountainCar", "{sasr.finl}", r"\{sasr\.finl\}: figure 'finl' is unknown; did you mean 'final'"),
        (
            "MountainCar",
            "{sasr.at 1,234}",
            r"\{sasr\.at 1,234\}: not every seed was evaluated after 1,234 steps; .* 1,052, ",
        ),
        (
            "MountainCar",
            "{sasr.area to 99,000}",
            r"not every seed was evaluated up to 99,000 steps; runs are of 10,000$",
        ),
        ("MountainCar", "{sasr.beats sca to 9,000}", r"method 'sca' is unknown; did you mean 'sac'"),
        ("MountainCar", "{HumanKeep/sasr.beats sca to 9,000}", r"did you mean 'HumanKeep/sac'"),
        ("MountainCar", "{sasr.beats sac}", r"figure 'beats sac' is unknown"),
        ("MountainCar", "{sasr.at ,}", r"\{sasr\.at ,\}: figure 'at ,' is unknown"),
        ("MountainCar", "{sasr}", r"\{sasr\} is not \{METHOD\.FIGURE\}"),
        ("MountianCar", "words", r"MountianCar\.md: page 'MountianCar' is unknown; did you mean 'MountainCar'"),
    ],
)
def test_a_placeholder_or_a_page_that_is_not_there_is_named(file: str, text: str, message: str, store: Path) -> None:
    (store / "notes").mkdir()
    (store / "notes" / f"{file}.md").write_text(text)
    with pytest.raises(ValueError, match=message):
        pages_of(store)


def test_the_folders_readme_lists_every_placeholder(store: Path) -> None:
    row = rows_by_task(read_store(store))["MountainCar"][0]
    listed = re.findall(r"`\{METHOD\.(\w+)\}`", (ROOT / "results" / "README.md").read_text())
    assert sorted(listed) == sorted(figures_of(row))


def test_results_go_where_their_names_folders_and_commands_say(store: Path) -> None:
    shutil.copytree(ROOT / "results" / "plans", store / "plans")
    write_result(make_result("HumanKeep", "h=0.01", level=50.0), store)
    for method in ("raw kernel", "start"):
        write_result(make_result("HumanKeep", method, level=50.0), store)
    write_result(make_result("AntStand", "sasr", seeds=1, wall_seconds=10.0), store / "cost")
    write_result(make_result("AntStand", "rnd", seeds=1, wall_seconds=15.0), store / "cost")
    write_result(make_result("AntStand", "sac", command="sasr compare --save rff-on-off"), store)
    groups = {name: [own.method for own in found.results] for name, found in read_store(store).groups.items()}
    assert groups["ablation-bandwidth"] == ["h=0.01"]
    assert groups["default"] == ["raw kernel", "start"]
    assert groups["cost"] == ["rnd", "sasr"]
    assert groups["rff-on-off"] == ["sac"]
    assert len(groups[MAIN]) == 6
    pages = {page.name: page for page in pages_of(store)}
    assert "| HumanKeep, paper | 194.9 ± 0.0 |" in pages["ablations"].text
    assert table_row(pages["default"].text, "raw kernel")["P(final \\> start)"] != "–"
    assert table_row(pages["costs"].text, "AntStand")["rnd"] == "1.50"
    assert table_row(pages["costs"].text, "AntStand, paper")["rnd"] == "1.11"
    for page in (pages["ablations"], pages["default"]):
        for picture in page.pictures:
            assert any(panel.lines for panel in picture.draw().axes)


def test_the_papers_own_settings_run_in_one_suite_serve_the_others(store: Path) -> None:
    for method, level in (("λ=0.6", 50.0), ("λ=0.2", 40.0), ("M=50", 30.0), ("h=1", 20.0)):
        write_result(make_result("HumanKeep", method, level=level), store)
    write_result(make_result("HumanKeep", "φ=1", steps=5_000), store)  # a run of another length
    write_result(make_result("HumanKeep", "h=0.2", level=25.0), store)  # has been run here too
    text = text_of(store, "ablations")
    weight, features, retention, bandwidth = (
        table_row(text[text.index(f"## Ablation {number}") :], "HumanKeep") for number in (5, 4, 3, 6)
    )
    assert features["M=1000"] == weight["λ=0.6"] != bandwidth["h=0.2"]
    assert "φ=0.1" not in retention
    assert "`M=1000` on HumanKeep: run as `λ=0.6`, which has the same settings" in text
    assert "`h=0.2` on HumanKeep: run as" not in text


def test_notes_of_plans_and_of_tasks_can_quote_each_others_rows(store: Path) -> None:
    shutil.copytree(ROOT / "results" / "plans", store / "plans")
    for method, level in (("start", 0.5), ("raw kernel", 0.1)):
        write_result(make_result("MountainCar", method, level=level), store)
    (store / "notes").mkdir()
    (store / "notes" / "default.md").write_text("{HumanKeep/rnd.final}\n")  # neither the task's nor the method's plan
    (store / "notes" / "HumanKeep.md").write_text("{MountainCar/raw kernel.final}\n")
    write_result(make_result("MountainCar", "h=1"), store)
    (store / "notes" / "ablations.md").write_text("{HumanKeep/rnd.final}\n")
    rnd = table_row(text_of(store, "HumanKeep"), "rnd")["final, mean ± s.e."]
    raw = table_row(text_of(store, "default"), "raw kernel")["final, mean ± s.e."]
    for page in ("default", "ablations"):
        assert text_of(store, page).endswith(f"## In short\n\n{rnd}\n")
    assert text_of(store, "HumanKeep").endswith(f"## In short\n\n{raw}\n")


def test_the_page_of_costs_ends_with_a_note_where_there_is_one(store: Path) -> None:
    assert "In short" not in text_of(store, "costs")
    (store / "notes").mkdir()
    (store / "notes" / "costs.md").write_text("Words.\n")
    assert text_of(store, "costs").endswith("## In short\n\nWords.\n")


def test_the_default_is_the_first_row_whatever_files_are_called(store: Path) -> None:
    write_result(make_result("AntFar", "sasr-authors"), store)  # its file is read before all others
    write_result(make_result("MountainCar", "sasr-authors"), store)
    assert [own.method for own in rows_by_task(read_store(store))["MountainCar"]][:2] == ["sasr", "sasr-authors"]


def test_the_authors_curve_goes_with_their_preset_and_ends_where_ours_do(store: Path) -> None:
    write_result(make_result("MountainCar", "sasr-authors", seeds=2), store)
    page = next(own for own in pages_of(store) if own.name == "MountainCar")
    near, far = page.pictures[0].draw().axes
    dashed = [line for line in near.lines if line.get_linestyle() == "--"]
    solid = {line.get_color() for line in near.lines} - {line.get_color() for line in dashed}
    assert len(dashed) == 3  # of SASR, SAC and RND
    assert len(solid) == 1  # the default's: its curve is nobody's but ours
    assert max(line.get_xdata()[-1] for line in dashed) <= 10_000
    assert max(line.get_xdata()[-1] for line in far.lines) > 100_000


def test_an_empty_store_still_gives_a_sensible_index(tmp_path: Path) -> None:
    pages = {page.name: page.text for page in pages_of(tmp_path)}
    assert pages.keys() == {"README", "costs"}
    assert "No task has been measured" in pages["README"]
    with pytest.raises(ValueError, match="is not a folder"):
        pages_of(tmp_path / "nowhere")


def test_analyses_become_a_page_with_a_picture_each(store: Path) -> None:
    rng = np.random.default_rng(0)
    facts = {"task": "MountainCar", "method": "sasr", "seed": 3, "commit": "abc1234", "run": "sasr train MountainCar"}
    states = rng.normal(size=(300, 2))
    write_analysis(count_visits(states, period=100, bins=8, **facts), store / "analysis" / "visits.json")
    stage = Stage("100 steps", states[:, 0], states[:, 1], rng.uniform(size=300))
    write_analysis(bin_stages([stage], bins=8, **facts), store / "analysis" / "along.json")
    page = next(own for own in pages_of(store) if own.name == "analysis")
    assert [picture.file for picture in page.pictures] == ["analysis-along.png", "analysis-visits.png"]
    assert "Seed 3, commit abc1234" in page.text
    assert "`sasr train MountainCar`" in page.text
    along, visits = (picture.draw() for picture in page.pictures)
    assert along.axes[1].lines
    assert len([panel for panel in visits.axes if panel.images]) == 3
