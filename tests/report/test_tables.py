from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest

from sasr.report import tables
from sasr.report.read import Collection
from sasr.report.stats import interquartile_mean
from sasr.report.store import Result
from sasr.report.summary import Summary, summarise
from sasr.report.tables import Entry, Table

from .synthetic import make_result, seed_result


@pytest.fixture(scope="module")
def grid() -> Collection:
    levels = {
        ("AntStand", "sasr"): 90.0,
        ("AntStand", "sac"): 30.0,
        ("MountainCar", "sasr"): 0.9,
        ("MountainCar", "sac"): 0.1,
    }
    return Collection([make_result(task, method, level=level, seeds=5) for (task, method), level in levels.items()])


@pytest.fixture(scope="module")
def summary(grid: Collection) -> Summary:
    return summarise(grid, draws=200)


def test_a_cell_is_the_mean_and_standard_error_of_the_seeds(grid: Collection, summary: Summary) -> None:
    scores = np.array([np.mean(seed.final) for seed in grid.results[0].seeds])
    statistics = summary.statistics["AntStand", "sasr"]
    assert statistics.mean == pytest.approx(scores.mean())
    assert statistics.error == pytest.approx(scores.std(ddof=1) / math.sqrt(5))
    assert statistics.iqm.value == pytest.approx(float(interquartile_mean(scores)))
    assert statistics.iqm.low < statistics.iqm.value < statistics.iqm.high


def test_the_summary_depends_on_its_seed_alone(grid: Collection) -> None:
    first, again, other = (summarise(grid, seed=seed, draws=200) for seed in (1, 1, 2))
    assert first.aggregates[0].iqm == again.aggregates[0].iqm
    assert first.aggregates[0].iqm != other.aggregates[0].iqm


def test_normalised_means_of_the_best_and_the_worst_are_1_and_0(summary: Summary) -> None:
    best, worst = summary.aggregates
    assert (best.mean.value, worst.mean.value) == pytest.approx((1.0, 0.0))
    assert best.better.value == 0.5
    assert worst.better.value == 1.0


def test_the_steps_to_halfway_are_those_of_the_middle_seed_and_infinite_where_most_never_get_there(
    summary: Summary,
) -> None:
    sasr, sac = summary.statistics["AntStand", "sasr"], summary.statistics["AntStand", "sac"]
    assert sasr.reached == 5
    assert 0 < sasr.halfway < 10_000
    assert (sac.reached, sac.halfway) == (0, math.inf)
    assert "never" in tables.halfway_table(summary).to_markdown()


def test_areas_are_compared_up_to_the_shortest_plan() -> None:
    short, long = make_result(method="sasr", steps=5_000), make_result(method="sac", steps=10_000)
    found = summarise(Collection([short, long]), draws=20)
    assert found.statistics["AntStand", "sac"].area < np.mean([seed.returns[-1] for seed in long.seeds]) / 2
    stopped = replace(short, seeds=(replace(short.seeds[0], steps=(0,), returns=(1.0,), success=()),))
    assert math.isnan(summarise(Collection([stopped]), draws=20).statistics["AntStand", "sasr"].area)


def test_the_final_table_has_the_papers_form(summary: Summary) -> None:
    table = tables.final_table(summary)
    statistics = summary.statistics["AntStand", "sasr"]
    lines = table.to_markdown().splitlines()
    assert lines[2:4] == ["| task | sasr | sac |", "| --- | ---: | ---: |"]
    assert f"| AntStand | **{statistics.mean:.1f} ± {statistics.error:.1f}** |" in lines[4]
    assert rf"\textbf{{{statistics.mean:.1f} $\pm$ {statistics.error:.1f}}}" in table.to_latex()
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert float(rows[0]["sasr"]) == statistics.mean
    assert float(rows[0]["sasr error"]) == statistics.error


def test_what_is_incomplete_or_nan_is_marked_and_explained() -> None:
    half = make_result(method="sasr", planned=(0, 1, 2, 9))
    failed = make_result(method="sac", seeds=2)
    failed = replace(failed, seeds=(failed.seeds[0], replace(failed.seeds[1], final=(math.nan,))))
    empty = make_result(method="rnd", seeds=0, planned=(0,))
    summary = summarise(Collection([half, failed, empty]), draws=20)
    text = tables.final_table(summary).to_markdown()
    assert "* incomplete" in text.replace("\\", "")
    assert "‡ without seeds that gave NaN" in text
    assert summary.statistics["AntStand", "sac"].failed == 1
    row = tables.final_table(summary).rows[0]
    assert [each.mark for each in row] == ["°", "*", "‡", "*"]
    assert row[3].text() == "–*"
    assert tables.aggregate_table(summary).to_markdown().count("0 of 1") == 1


def test_a_method_that_lacks_tasks_is_marked_as_not_comparable(grid: Collection) -> None:
    found = Collection([*grid.results[:3], make_result("MountainCar", "rnd", level=0.2)])
    text = tables.aggregate_table(summarise(found, draws=20)).to_markdown()
    assert "| sac\\* |" in text
    assert "not comparable" in text


def test_costs_are_multiples_of_the_first_methods_and_differing_machines_are_marked() -> None:
    results = [
        make_result(method="sasr", wall_seconds=100.0, peak_memory_bytes=2e9),
        make_result(method="sac", wall_seconds=50.0, peak_memory_bytes=1e9, machine={"processor": "another"}),
        make_result("AntFar", "sasr", wall_seconds=30.0, peak_memory_bytes=math.nan),
    ]
    summary = summarise(Collection(results), draws=20)
    time, memory = tables.cost_table(summary, "time"), tables.cost_table(summary, "memory")
    assert [each.text() for each in time.rows[0]] == ["AntStand†", "1.00", "0.50"]
    assert [each.text() for each in memory.rows[0]] == ["AntStand†", "1.00", "0.50"]
    assert [each.text() for each in memory.rows[1]] == ["AntFar", "–", "–"]
    assert "different machines" in time.to_markdown()


def test_a_table_has_the_rows_and_columns_that_are_asked_for_and_a_dash_for_what_is_not_known(summary: Summary) -> None:
    columns = ["sac", "sasr", "td3"]
    table = tables.table_by_task("Two and one", ["AntStand"], columns, summary.statistics, tables.area_entry)
    assert table.columns == ("task", *columns)
    assert table.rows[0][3].text() == "–"


def test_the_best_of_a_row_is_bold_unless_a_method_is_missing_or_unfinished(summary: Summary) -> None:
    two = tables.table_by_task("Two", ["AntStand"], ["sac", "sasr"], summary.statistics, tables.final_entry)
    assert [entry.best for entry in two.rows[0]] == [False, False, True]
    missing = tables.table_by_task(
        "Three", ["AntStand"], ["sac", "sasr", "td3"], summary.statistics, tables.final_entry
    )
    assert not any(entry.best for entry in missing.rows[0])
    stopped = make_result(method="rnd", level=120.0, steps=5_000)
    results = [make_result(method="sasr"), make_result(method="sac"), replace(stopped, steps=10_000)]
    stopped_summary = summarise(Collection(results), draws=20)
    unfinished = tables.final_table(stopped_summary)
    assert not any(entry.best for entry in unfinished.rows[0])
    assert "not ranked" in unfinished.to_markdown()
    best_last = tables.aggregate_table(stopped_summary).rows[-1][0]
    assert best_last.text() == "rnd*"  # though its returns are the highest


def test_a_task_that_no_seed_learned_has_no_normalised_return() -> None:
    def result(task: str, method: str, level: float, success: float) -> Result:
        seeds = []
        for seed in range(3):
            result = seed_result(seed, level=level)
            rates = tuple(success for _ in result.steps)
            seeds.append(replace(result, success=rates, final_success=success))
        return replace(make_result(task, method), seeds=tuple(seeds))

    learned = [result("AntStand", "sasr", 90.0, 0.5), result("AntStand", "sac", 30.0, 0.0)]
    failed = [result("RobotPush", "sasr", 0.01, 0.0), result("RobotPush", "sac", 0.02, 0.0)]
    together = summarise(Collection([*learned, *failed]), draws=20)
    assert together.learned == ["AntStand"]
    assert [aggregate.mean.value for aggregate in together.aggregates] == pytest.approx([1.0, 0.0])
    assert "Without RobotPush" in tables.aggregate_table(together).to_markdown()
    nothing = summarise(Collection(failed), draws=20)
    assert [aggregate.tasks for aggregate in nothing.aggregates] == [0, 0]
    assert math.isnan(nothing.aggregates[0].iqm.value)


def test_signs_that_mean_something_to_latex_and_markdown_are_escaped() -> None:
    table = Table(title="50 % of a_b", columns=("task", "#Explo|x"), rows=((Entry("R&D_{x}"), Entry(1.0)),))
    assert r"R\&D\_\{x\}" in table.to_latex()
    assert r"\#Explo" in table.to_latex()
    assert r"50 \% of a\_b" in table.to_latex()
    assert r"#Explo\|x" in table.to_markdown()
    assert list(csv.reader(io.StringIO(table.to_csv())))[1] == ["R&D_{x}", "1.0"]


def test_no_name_is_a_formula_to_a_spreadsheet() -> None:
    hostile = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1")
    rows = tuple((Entry(name), Entry(-1.5)) for name in hostile)
    first, *rest = csv.reader(io.StringIO(Table(title="", columns=("=task", "a-b"), rows=rows).to_csv()))
    assert first == ["'=task", "a-b"]
    assert rest == [[f"'{name}", "-1.5"] for name in hostile]


def test_a_csv_file_does_not_steer_the_terminal_it_is_shown_on() -> None:
    table = Table(title="", columns=("task",), rows=((Entry("\x1b[2Jname"),), (Entry("\r=1"),)))
    assert list(csv.reader(io.StringIO(table.to_csv()))) == [["task"], [r"\x1b[2Jname"], [r"\r=1"]]


@pytest.mark.parametrize(
    ("level", "shown"), [(6737.94, "6,738"), (94.92, "94.9"), (1.04, "1.04"), (0.052, "0.052"), (0.0041, "0.0041")]
)
def test_figures_have_the_digits_that_suit_their_size(level: float, shown: str) -> None:
    result = make_result(seeds=1, level=1.0)
    result = replace(result, seeds=(replace(seed_result(0), final=(level,)),))
    assert tables.final_table(summarise(Collection([result]), draws=20)).rows[0][1].text() == shown


def test_zero_has_no_sign() -> None:
    assert Entry(-0.001, 0.0).text() == "0.00 ± 0.00"


def test_an_interval_may_end_at_never() -> None:
    assert Entry(200.0, low=100.0, high=math.inf, digits=0).text() == "200 [100, never]"
    assert Entry(math.inf, low=math.inf, high=math.inf, digits=0).text() == "never [never, never]"
