from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from pages.comparison import ALL, comparison_table, comparisons, promises, rivals_table
from pages.rows import BASE, DEFAULT, Row, rows_of
from sasr.report.seeds import SeedResult
from sasr.report.store import Result
from sasr.shaping.presets import PRESETS
from tests.report.synthetic import make_result


def rows(*results: Result) -> dict[str, list[Row]]:
    by_task: dict[str, list[Result]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(result)
    return {task: rows_of(task_rows, base="sac") for task, task_rows in by_task.items()}


def result(task: str, method: str, level: float, **options: int) -> Result:
    return make_result(task, method, seeds=6, level=level, **options)


def test_the_default_is_better_or_worse_where_the_whole_interval_says_so() -> None:
    task_rows = [result("AntStand", "sasr-authors", 9.1)]
    for task, ours, theirs in (("AntStand", 9.0, 1.0), ("AntFar", 1.0, 90.0), ("Other-v0", 9.0, 1.0)):
        task_rows += [result(task, DEFAULT, ours), result(task, BASE, theirs, steps=20_000, points=40)]
    table = rivals_table(rows(*task_rows), DEFAULT, {BASE: "plain SAC", "sasr-authors": "the released settings"})
    lines = {str(row[0].value): [entry.text() for entry in row[1:]] for row in table.rows}
    assert lines["AntStand"][:3] == ["10,000", "1.00 [1.00, 1.00]", "better"]
    assert lines["AntStand"][5] == "not told apart"
    assert lines["AntFar"][:3] == ["10,000", "0.00 [0.00, 0.00]", "worse"]
    assert lines["AntFar"][3:5] == ["–", "–"]
    assert lines["Other-v0"][2] == "better"
    assert lines[ALL][1:3] == ["0.50 [0.50, 0.50]", "not told apart"]  # without the one that is not of the catalogue


def test_one_seed_each_gives_no_verdict_and_a_single_task_no_line_over_all() -> None:
    pair = [make_result("AntStand", method, seeds=1, level=level) for method, level in (("sasr", 1.0), ("sac", 0.1))]
    assert comparisons(rows(*pair), "sasr", "sac").keys() == {"AntStand"}
    comparison = comparisons(rows(*pair), "sasr", "sac")["AntStand"]
    assert (comparison.verdict, comparison.better.value) == ("one seed", 1.0)


def test_areas_are_compared_as_far_as_both_go() -> None:
    def curves(method: str, returns: Sequence[float], steps: int) -> Result:
        points = tuple(range(5_000, steps + 1, 5_000))
        seeds = [SeedResult(seed=seed, steps=points, returns=tuple(returns), final=(0.0,)) for seed in range(3)]
        return replace(make_result("AntFar", method, steps=steps), seeds=tuple(seeds))

    table = comparison_table(
        rows(curves("sasr", (90.0, 10.0), 10_000), curves("sac", (0, 80, 0), 15_000)), "sasr", "sac", title=""
    )
    (line,) = ([entry.text() for entry in row] for row in table.rows)
    assert line == ["AntFar", "10,000", "50.0 [50.0, 50.0]", "40.0 [40.0, 40.0]", "1.00 [1.00, 1.00]"]


def test_promises_say_how_new_results_stand_and_never_fail() -> None:
    settings = {"shaper_config": asdict(PRESETS["auto"])}
    task_rows = [replace(result("HumanKeep", DEFAULT, 10.0), config=settings), result("HumanKeep", BASE, 90.0)]
    task_rows += [result("MountainCar", DEFAULT, 1.0), result("MountainCar", BASE, 0.1)]
    lines = promises(rows(*task_rows))
    assert lines[0].startswith("the default against plain SAC: worse on HumanKeep; better on MountainCar")
    assert lines[-1].endswith(": MountainCar")  # its settings are not today's
    assert promises({})
