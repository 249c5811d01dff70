from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pages.rows import at, median_steps, rows_of, sources
from sasr.report.read import Reference
from sasr.report.seeds import SeedResult
from tests.report.synthetic import make_result


def test_a_reference_holds_for_as_long_as_its_points_are_apart_and_is_unknown_beyond() -> None:
    curve = Reference(np.array([0.0, 5_000.0]), np.array([1.0, 50.0]), np.zeros(2))
    assert at(curve, 2_500) == 25.5
    assert at(curve, 10_000) == 50.0  # its points are 5,000 steps apart: the next would come no sooner
    assert math.isnan(at(curve, 10_001))
    assert math.isnan(at(curve, -1))


def test_median_steps_are_one_of_the_runs_own_and_never_where_most_never_got_there() -> None:
    took = [300.0, 100.0, 200.0, math.inf]
    median = median_steps(took, seed=1)
    assert median == median_steps(took, seed=1)
    assert median.value == 300.0
    assert {median.low, median.high} <= {*took}
    assert median_steps([100.0, math.inf]).value == math.inf
    assert math.isnan(median_steps([100.0]).low)
    drawn = np.random.default_rng(0).choice(took, size=(20_000, 4))
    share = (np.sort(drawn)[:, 2] <= 200.0).mean()  # of medians that are 200 or less
    assert (share > 0.025) == (median.low <= 200.0)


def test_returns_in_training_are_those_of_the_last_tenth() -> None:
    seeds = tuple(
        SeedResult(
            seed=number,
            steps=(1_000, 9_000, 10_000),
            returns=(0.0, 0.0, 0.0),
            episodes=(2, 0, 3),
            trained=(1.0, float("nan"), 40.0 + 10.0 * number),
            lengths=(10.0, float("nan"), 50.0),
            final=(0.0,),
        )
        for number in range(3)
    )
    known = replace(make_result("MountainCar", "rnd"), seeds=seeds, planned=(0, 1, 2))
    row, other = rows_of([known, make_result("MountainCar", "sac")], base="sac")
    assert row.trained.text() == "50.00 ± 5.77"
    assert other.trained.text() == "–"


def test_every_result_has_its_command_machine_seeds_and_commit() -> None:
    methods = [make_result("HumanKeep", method, seeds=8) for method in ("sasr", "sac")]
    same = replace(methods[1], method="rnd", command=methods[0].command)
    origin = "seeds 0–7, commit abc1234, a processor, 2 cores"
    command = "sasr compare --tasks HumanKeep --methods {} --seeds 8 --save results/"
    assert sources([*methods, same]) == [
        f"- `sasr`, `rnd`: {origin}: `{command.format('sasr')}`",
        f"- `sac`: {origin}: `{command.format('sac')}`",
    ]
    other = make_result("MountainCar", "explo", machine={"processor": "another", "cores": 1})
    last = sources([*methods, other])[-1]
    assert last.startswith("- `explo` on MountainCar: seeds")
    assert "another, 1 core: `" in last


def test_a_command_has_one_line_whatever_seeds_and_commits_it_ran_with() -> None:
    one, other = make_result("HumanKeep", "sasr", seeds=8), make_result("HumanKeep", "sac", seeds=8)
    other = replace(other, command=one.command, commit="def5678", seeds=other.seeds[::-1])
    (line,) = sources([one, other])
    assert "`sasr`: seeds 0–7, commit abc1234" in line
    assert "; `sac`: seeds 0–7, commit def5678" in line


def test_a_remark_stands_once_with_its_methods_and_their_tasks() -> None:
    results = []
    for task, method in (("HumanKeep", "sasr"), ("AntFar", "sasr"), ("HumanKeep", "sac"), ("AntFar", "sac")):
        results.append(replace(make_result(task, method), notes=("on loan",)))
    results.append(replace(make_result("AntFar", "rnd"), notes=("on loan", "late", "later")))
    lines = sources(results)
    assert lines[:2] == ["What is missing or odd:", ""]
    assert "- on loan (`sasr`, `sac` on HumanKeep, AntFar; `rnd` on AntFar)." in lines
    assert "- late; later (`rnd` on AntFar)." in lines


def test_what_is_missing_stands_before_where_it_is_from() -> None:
    whole = make_result("MountainCar", "sasr", seeds=8)
    broken = (SeedResult(seed=7, steps=(0, 10_000), returns=(0.0, float("nan"))),)
    lines = sources([replace(whole, seeds=whole.seeds[:6] + broken)])
    assert lines[0] == "What is missing or odd:"
    assert lines[2].startswith("- seed 6 not run; ")
    assert any("seed 7 with values that are not finite" in line for line in lines)
