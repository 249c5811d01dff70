from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sasr
from sasr.agents import SacConfig
from sasr.logs.plots import read_maps
from sasr.report.read import collect, from_run, method_name
from sasr.report.store import write_result

from .synthetic import add_maps, make_result, make_run


def test_a_run_becomes_a_result(tmp_path: Path) -> None:
    found = from_run(make_run(tmp_path / "run", seeds=(4, 7)))
    assert (found.task, found.method, found.commit) == ("MountainCar", "sasr", "0123456789")
    assert [seed.seed for seed in found.seeds] == [4, 7]
    assert found.seeds[1].steps == (1_000, 2_000, 3_000)
    assert found.seeds[1].returns == (8.0, 9.0, 10.0)
    assert found.seeds[1].success == (0.5, 0.5, 0.5)
    assert found.wall_seconds == 30.0
    assert found.gaps == ("seeds 4, 7 without a final evaluation: the last point of the curve is taken",)
    assert found.seeds[0].score == 7.0


def test_a_real_run_is_understood(tmp_path: Path) -> None:
    run = sasr.train(
        "SASR/MountainCar-v0",
        agent=SacConfig(hidden=(8, 8), burn_in=100, batch_size=16),
        seeds=(3, 5),
        steps=300,
        eval_every=100,
        eval_episodes=1,
        out=tmp_path / "run",
        progress=False,
        events=False,
        workers=0,
    )
    found = collect(tmp_path)
    (result,) = found.results
    curve = run.evaluation()
    assert (result.task, result.method, result.planned) == ("MountainCar", "sasr", (3, 5))
    assert result.seeds[1].steps == tuple(curve.steps.tolist())
    assert result.seeds[1].returns == pytest.approx(curve.returns[1])
    assert result.gaps == ("seeds 3, 5 without a final evaluation: the last point of the curve is taken",)
    assert result.wall_seconds > 0.0
    assert result.command
    assert found.maps[0].maps.rate.shape[1] == 2


def test_names_of_tasks_are_short_for_our_own_alone(tmp_path: Path) -> None:
    assert from_run(make_run(tmp_path / "a", task="SASR/AntStandPaper-v0")).task == "AntStandPaper"
    assert from_run(make_run(tmp_path / "b", task="CartPole-v0")).task == "CartPole-v0"


def test_a_final_evaluation_is_taken_from_eval_json(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    members = [{"seed": seed, "returns": [5.0 + seed] * 100, "success": [True] * 100} for seed in (0, 1)]
    (run / "eval.json").write_text(json.dumps({"step": 3_000, "members": members}))
    found = from_run(run)
    assert found.scores.tolist() == [5.0, 6.0]
    assert found.gaps == ()
    assert found.seeds[0].final_success == 1.0


def test_a_run_that_was_not_evaluated_shows_its_training_episodes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    lines = [line for line in (run / "metrics.jsonl").read_text().splitlines() if '"evaluation"' not in line]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    found = from_run(run)
    assert found.curve_of == "training"
    assert found.seeds[0].returns == (0.5, 1.0, 1.5)


def test_a_half_finished_run_is_shown_as_incomplete(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "half", last=2_000)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "evaluation", "step": 3000, "mem')
    found = collect(tmp_path / "runs")
    assert found.problems == []
    assert found.results[0].gaps == ("seeds 0–1 stopped at 2,000 of 3,000 steps",)


def test_a_run_in_which_nothing_happened_yet_is_shown_as_incomplete(tmp_path: Path) -> None:
    (make_run(tmp_path / "runs" / "new") / "metrics.jsonl").unlink()
    (result,) = collect(tmp_path / "runs").results
    assert result.seeds == ()
    assert result.gaps == ("seeds 0–1 not run",)


def test_nan_in_metrics_stays_nan_and_bad_lines_are_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    text = (run / "metrics.jsonl").read_text().replace('"return_mean": 2.0', '"return_mean": null')
    (run / "metrics.jsonl").write_text("rubbish\n[1]\n" + text)
    found = from_run(run)
    assert math.isnan(found.seeds[0].returns[1])
    assert "2 lines of metrics.jsonl cannot be read and are left out" in found.remarks


def test_folders_that_are_no_whole_runs_are_named_beside_those_that_are(tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    (make_run(tmp_path / "unsettled") / "config.json").unlink()
    (make_run(tmp_path / "cut") / "config.json").write_text('{"format": 1, "conf')
    found = collect(tmp_path)
    assert len(found.results) == 1
    problems = dict(found.problems)
    assert problems.keys() == {"cut", "empty", "unsettled"}
    assert "never started" in problems["empty"]
    assert "config.json" in problems["cut"]


@pytest.mark.parametrize("kind", ["missing", "empty", "file", "broken"])
def test_a_folder_without_anything_to_report_is_a_clear_error(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "here"
    if kind == "file":
        place.write_text("")
    elif kind != "missing":
        place.mkdir()
    if kind == "broken":
        (make_run(place / "run") / "config.json").unlink()
    with pytest.raises(ValueError, match=r"not a folder|nothing to report"):
        collect(place)


def test_a_run_itself_and_a_tree_of_stores_and_runs_can_be_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path / "all" / "deep" / "run")
    write_result(make_result("AntStand", "sac"), tmp_path / "all" / "store")
    assert len(collect(run).results) == 1
    found = collect(tmp_path / "all")
    assert set(found.tasks) == {"AntStand", "MountainCar"}
    assert found.methods == ["sasr", "sac"]
    assert found.result("AntStand", "sasr") is None


def test_runs_that_differ_in_their_seeds_alone_are_joined(tmp_path: Path) -> None:
    for first in (0, 5):  # how they were run does not count
        make_run(tmp_path / f"from-{first}", seeds=(first, first + 1), workers=first, checkpoint_minutes=first)
    (result,) = collect(tmp_path).results
    assert [seed.seed for seed in result.seeds] == [0, 1, 5, 6]
    assert result.planned == (0, 1, 5, 6)
    assert result.wall_seconds == 60.0


def test_runs_of_one_method_are_with_unique_names_by_what_differs(tmp_path: Path) -> None:
    for features in (50, 1000):
        make_run(tmp_path / f"m{features}", shaper_config={"features": features, "clip": 5.0})
    assert set(collect(tmp_path).methods) == {"sasr (features=50)", "sasr (features=1000)"}


def test_the_same_run_twice_is_with_unique_names_by_its_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        make_run(tmp_path / name)
    assert set(collect(tmp_path).methods) == {"sasr in first", "sasr in second"}


def test_commits_of_a_store_are_with_unique_names_on_every_task(tmp_path: Path) -> None:
    write_result(make_result("AntStand", commit="aaaaaaaaa"), tmp_path)
    write_result(make_result("AntStand", commit="bbbbbbbbb"), tmp_path)
    write_result(make_result("AntFar", commit="aaaaaaaaa"), tmp_path)
    found = collect(tmp_path)
    assert sorted((result.task, result.method) for result in found.results) == [
        ("AntFar", "sasr @aaaaaaa"),
        ("AntStand", "sasr @aaaaaaa"),
        ("AntStand", "sasr @bbbbbbb"),
    ]


def test_methods_are_named_by_shaper_preset_and_agent() -> None:
    assert method_name({"shaper": "sasr", "agent": "td3", "preset": "auto"}) == "sasr+td3"
    assert method_name({"shaper": "rnd"}) == "rnd"
    assert method_name({"shaper": "none", "agent": "auto"}) == "sac"


def test_what_is_no_file_of_the_runs_own_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the user's own")
    run = make_run(tmp_path / "runs" / "run")
    (run / "video-seed-0.mp4").symlink_to(tmp_path / "secret")
    (run / "success_map.npz").symlink_to("/dev/zero")
    (run / "eval.json").symlink_to("/dev/zero")
    os.mkfifo(run / "video-seed-1.mp4")
    os.mkfifo(tmp_path / "runs" / "result.json")
    other = make_run(tmp_path / "runs" / "other")
    (other / "metrics.jsonl").unlink()
    os.mkfifo(other / "metrics.jsonl")
    found = collect(tmp_path / "runs")
    assert found.videos == []
    assert found.maps == []
    problems = " ".join(problem.path + problem.text for problem in found.problems)
    assert "success_map.npz" in problems
    assert "result.json" in problems
    assert any("metrics.jsonl cannot be read" in note for result in found.results for note in result.notes)


def test_maps_and_videos_are_found_and_a_broken_map_is_named(tmp_path: Path) -> None:
    run, broken = make_run(tmp_path / "run"), make_run(tmp_path / "broken", task="AntStand")
    add_maps(run)
    (run / "videos").mkdir()
    (run / "videos" / "seed-0.mp4").write_bytes(b"film")
    (broken / "success_map.npz").write_bytes(b"PK\x03\x04cut")
    found = collect(tmp_path)
    assert [of_run.run for of_run in found.maps] == ["run"]
    assert found.maps[0].axes == ("position", "velocity")
    assert found.maps[0].maps.rate.shape == (4, 2, 15, 21)
    assert [video.path.name for video in found.videos] == ["seed-0.mp4"]
    assert [problem.path for problem in found.problems] == ["broken"]
    assert len(found.results) == 2


def test_a_map_never_runs_code(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    np.savez(run / "success_map.npz", steps=np.array([object()]), x=[0.0], y=[0.0], rate=[0.0])
    with pytest.raises(ValueError, match="cannot be read"):
        read_maps(run)


def test_seeds_that_clash_are_not_joined(tmp_path: Path) -> None:
    one = make_result("AntStand")
    write_result(one, tmp_path / "a")
    write_result(replace(one, seeds=one.seeds[:1]), tmp_path / "b")
    assert len(collect(tmp_path).results) == 2
