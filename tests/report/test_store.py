from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sasr.report.seeds import MAX_POINTS, SeedResult, thin
from sasr.report.store import Result, cut_short, read_result, read_results, write_result

from .synthetic import make_result, seed_result

numbers = st.floats(allow_nan=True, allow_infinity=False, width=64)


@given(
    st.lists(st.tuples(numbers, numbers), max_size=8),
    st.lists(numbers, max_size=4),
    st.text(min_size=1, max_size=8),
    st.dictionaries(st.text(max_size=4), st.one_of(st.none(), st.integers(), st.text(max_size=3), st.booleans())),
)
def test_a_result_comes_back_from_json_as_it_was(
    points: list[tuple[float, float]], final: list[float], name: str, config: dict[str, Any]
) -> None:
    seed = SeedResult(
        seed=3,
        steps=tuple(range(len(points))),
        returns=tuple(r for r, _ in points),
        success=tuple(s for _, s in points),
        final=tuple(final),
    )
    result = Result(task=name, method="sasr", config=config, seeds=(seed,), planned=(3, 4), notes=("a note",))
    text = json.dumps(result.to_json(), allow_nan=False)
    # NaN differs from itself, so the comparison is in words.
    assert repr(Result.from_json(json.loads(text))) == repr(result)


def test_a_store_gives_back_what_was_written(tmp_path: Path) -> None:
    written = [make_result("AntStand"), make_result("pkg:Other/Task-v0", "#Explo")]
    paths = [write_result(result, tmp_path / "new" / "store") for result in written]
    assert len(set(paths)) == 2
    assert read_results(tmp_path / "new" / "store").problems == []
    assert {each.task for each in read_results(tmp_path / "new" / "store").results} == {"AntStand", "pkg:Other/Task-v0"}
    assert read_result(paths[0]).to_json() == written[0].to_json()
    assert [path.parent.relative_to(tmp_path / "new" / "store") for path in paths] == [
        Path("AntStand"),
        Path("pkg-Other-Task-v0"),
    ]


@pytest.mark.parametrize(
    ("name", "today"),
    [
        ("sac", "sac-paper"),
        ("sasr", "sasr, paper's agent"),
        ("sac, time limits terminal", "sac-paper, time limits terminal"),
        ("sasr-authors", "sasr-authors"),
    ],
)
def test_records_of_the_papers_agent_have_the_name_that_it_has_today(name: str, today: str) -> None:
    paper = {"agent": "sac", "agent_config": {"hidden": [256, 256]}}
    ours = {"agent": "sac", "agent_config": {"hidden": [256, 256], "critic_norm": "layer"}}
    for config, expected in ((paper, today), (ours, name)):
        data = make_result(method=name, config=config).to_json()
        assert Result.from_json(data).method == expected
    again = Result.from_json(make_result(method=today, config=paper).to_json())
    assert again.method == today


def test_names_that_look_alike_as_files_do_not_share_one(tmp_path: Path) -> None:
    alike = [
        make_result("a/b"),
        make_result("a:b"),
        *(make_result(method=name) for name in ("φ=1", "phi 1", "λ=1", "→")),
    ]
    paths = {write_result(each, tmp_path) for each in alike}
    assert len(paths) == len(alike)
    assert all(str(path.relative_to(tmp_path)).isascii() for path in paths)


def test_a_file_is_of_a_commit_and_of_settings_but_of_no_seeds_and_no_machine(tmp_path: Path) -> None:
    base = make_result()
    same = replace(base, config=base.config | {"seeds": [7], "device": "cuda", "workers": 3}, steps=5_000)
    others = [replace(base, commit="other"), replace(base, config=base.config | {"discount": 0.9})]
    paths = [write_result(each, tmp_path) for each in (base, same, *others)]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3


def test_writing_again_replaces_the_file_and_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_result(make_result(), tmp_path).read_bytes()
    assert write_result(make_result(), tmp_path).read_bytes() == first
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_curves_are_thinned_to_200_points_with_both_ends(tmp_path: Path) -> None:
    long = make_result(points=1_234)
    seed = read_result(write_result(long, tmp_path)).seeds[0]
    assert len(seed.steps) == len(seed.returns) == len(seed.success) == MAX_POINTS
    assert (seed.steps[0], seed.steps[-1]) == (long.seeds[0].steps[0], long.seeds[0].steps[-1])
    assert set(zip(seed.steps, seed.returns, strict=True)) <= set(
        zip(long.seeds[0].steps, long.seeds[0].returns, strict=True)
    )


@given(st.integers(0, 5_000), st.integers(2, 300))
def test_thinning_never_repeats_a_point(count: int, points: int) -> None:
    kept = thin(count, points)
    assert len(kept) == len(set(kept)) == min(count, points)


def test_a_file_of_another_version_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    good = write_result(make_result(), tmp_path)
    data = json.loads(good.read_text())
    (tmp_path / "newer.json").write_text(json.dumps(data | {"version": 7}))
    reading = read_results(tmp_path)
    assert len(reading.results) == 1
    ((path, text),) = reading.problems
    assert path == "newer.json"
    assert "version 7" in text
    with pytest.raises(ValueError, match=r"newer\.json: format version 7, but this sasr reads version 1"):
        read_result(tmp_path / "newer.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "no part 'colour'"),
        ({"seeds": [{"steps": [1]}]}, "no integer as its seed"),
        ({"seeds": [{"seed": 1, "steps": [1, 2], "returns": [0.0]}]}, "seed 1 has 2 steps, but 1 returns"),
        ({"seeds": [{"seed": 1, "steps": [2, 1], "returns": [0.0, 0.0]}]}, "do not ascend"),
        ({"seeds": [{"seed": 1, "steps": [1], "returns": ["high"]}]}, "'high' is not a number"),
        ({"seeds": [{"seed": 1, "taken": "all"}]}, "seed 1 took 'all' steps"),
        ({"seeds": [{"seed": 1}, {"seed": 1}]}, "have duplicates"),
        ({"task": ""}, "needs a task"),
    ],
)
def test_a_file_that_was_changed_by_hand_is_refused_by_name(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    data = make_result().to_json() | change
    (tmp_path / "odd.json").write_text(json.dumps(data))
    assert message in read_results(tmp_path).problems[0].text


def test_a_file_that_was_cut_off_is_named_and_other_json_is_passed_over(tmp_path: Path) -> None:
    whole = write_result(make_result(), tmp_path).read_text()
    (tmp_path / "cut.json").write_text(whole[: len(whole) // 2])
    (tmp_path / "plan.json").write_text('{"tasks": []}')
    (tmp_path / "noise.json").write_text("\x00\x01")
    reading = read_results(tmp_path)
    assert len(reading.results) == 1
    assert [problem.path for problem in reading.problems] == ["cut.json", "noise.json"]


def test_nan_is_null_in_the_file_and_told_about(tmp_path: Path) -> None:
    result = make_result()
    broken = replace(result.seeds[1], returns=(math.nan, *result.seeds[1].returns[1:]), final=(math.nan, math.inf))
    path = write_result(replace(result, seeds=(result.seeds[0], broken)), tmp_path)
    assert "NaN" not in path.read_text()
    found = read_result(path)
    assert math.isnan(found.seeds[1].returns[0])
    assert math.isnan(found.scores[1])
    assert "seed 1 with values that are not finite (null)" in found.remarks


def test_what_is_missing_is_said_in_words() -> None:
    half = replace(seed_result(1), steps=(0, 50), returns=(0.0, 1.0), success=())
    unjudged = replace(seed_result(2), final=())
    found = Result(
        task="AntStand", method="sasr", steps=10_000, planned=(0, 1, 2, 7, 8), seeds=(seed_result(0), half, unjudged)
    )
    assert found.gaps == (
        "seeds 7–8 not run",
        "seed 1 stopped at 50 of 10,000 steps",
        "seed 2 without a final evaluation: the last point of the curve is taken",
    )
    assert "curves of different lengths: from 50 to 10,000 steps" in found.remarks
    assert make_result().gaps == make_result().remarks == ()


def test_a_final_evaluation_of_fewer_episodes_is_told_about() -> None:
    assert make_result(final=5).remarks == ("final evaluation over 5 episodes, not 100",)


@pytest.mark.parametrize("where", ["/proc/store", "file/store"])
def test_a_place_that_cannot_be_written_to_is_said_so(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="can't be written to"):
        write_result(make_result(), tmp_path / where)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_said_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="can't be written to"):
        write_result(make_result(), tmp_path)


def test_a_store_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        read_results(tmp_path / "nowhere")


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_stopped_runs_are_cut_where_the_shortest_ends(lengths: list[int]) -> None:
    def made(seed: int, points: int) -> SeedResult:
        steps, returns = tuple(range(100, 100 * points + 1, 100)), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)[:points]
        return SeedResult(seed=seed, steps=steps, returns=returns, taken=999, final=(7.0,))

    seeds = [made(k, length) for k, length in enumerate(lengths)]
    planned = tuple(range(len(lengths)))
    whole = Result(
        task="t", method="m", steps=1_000, planned=planned, seeds=tuple(each for each in seeds if each.steps)
    )
    found = cut_short(whole)
    if min(lengths) == 0:
        assert found is None
        return
    assert found is not None
    end = 100 * min(lengths)
    assert found.steps == end
    assert [each.steps[-1] for each in found.seeds] == [end] * len(lengths)
    assert {each.score for each in found.seeds} == {float(min(lengths))}  # not of an evaluation that came later
    assert {each.last for each in found.seeds} == {end}
    assert f"the first {end:,} steps of runs of 1,000" in found.remarks[0]


def test_what_nobody_planned_can_t_be_cut() -> None:
    assert cut_short(Result(task="t", method="m")) is None
