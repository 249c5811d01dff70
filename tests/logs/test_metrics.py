from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

import sasr
from sasr.logs.metrics import MetricsFile, PeakMemory, read_metrics
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode

SEEDS = (7, 8)
CPU = torch.device("cpu")
BIG = 2**28


def trainer(steps: int = 0) -> Any:
    """What a metrics file asks of a trainer."""
    return SimpleNamespace(
        config=SimpleNamespace(seeds=SEEDS, log_every=100),
        loop=SimpleNamespace(steps=steps),
        device=torch.device("cpu"),
    )


def opened(
    folder: Path, *, saved: dict | None = None, steps: int = 0, warnings: list[str] | None = None
) -> MetricsFile:
    file = MetricsFile(folder, warn=(warnings if warnings is not None else []).append)
    if saved is not None:
        file.load(saved)
    file.begin(trainer(steps))
    return file


def test_every_event_comes_back_with_its_member_and_seed(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.episodes(10, [Episode(1, 0, -2.5, 10, True)])
    file.figures(20, {"train/loss": np.array([0.5, 1.5])})
    file.evaluation(30, Evaluation(np.array([[1.0, 3.0], [5.0, 7.0]]), np.full((2, 2), 4), np.eye(2) > 0))
    file.notice(40, "mind the step")
    file.close(50)
    episode, low, high, first, second, notice, clock = read_metrics(tmp_path)
    head = {"kind": "episode", "step": 10, "member": 1, "seed": 8}
    assert episode == head | {"environment": 0, "return": -2.5, "length": 10, "success": True}
    assert (low["train/loss"], high["train/loss"], high["seed"]) == (0.5, 1.5, 8)
    assert (first["return_mean"], second["returns"], second["success_rate"]) == (2.0, [5.0, 7.0], 0.5)
    assert notice["text"] == "mind the step"
    assert clock["kind"] == "clock"
    assert clock["seconds"] >= 0.0
    assert clock["peak_memory_bytes"] > 1e7
    assert read_metrics(tmp_path, "notice", "clock") == [notice, clock]


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.figures(1, {"a": np.array([math.nan, math.inf])})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text.splitlines()[0], parse_constant=pytest.fail)["a"] is None
    assert [event["a"] for event in read_metrics(tmp_path)] == [None, None]


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.notice(1, "there")
    assert read_metrics(tmp_path)[0]["text"] == "there"  # the file is open still


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_last_line_that_was_cut_off_is_left_out(cut: int, tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.notice(1, "whole")
    file.notice(2, "cut")
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert [event["text"] for event in read_metrics(tmp_path)] == ["whole"]


@pytest.mark.parametrize(
    "line", ['{"kind": no', '{"kind": "notice", "step": Infinity}', "[" * 10**5], ids=["cut", "infinite", "deep"]
)
def test_a_line_that_was_spoilt_in_the_middle_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        f'{{"kind": "notice", "step": 1}}\n{line}\n{{"kind": "notice", "step": 2}}\n'
    )
    with pytest.raises(ValueError, match="line 2 is not an event"):
        read_metrics(tmp_path)


def test_a_folder_without_metrics_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a run folder"):
        read_metrics(tmp_path)


def test_a_kind_of_event_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"kind": "notice", "step": 1}\n')
    with pytest.raises(ValueError, match="did you mean 'episode'"):
        read_metrics(tmp_path, cast(Any, "episodes"))


def test_going_on_cuts_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.notice(1, "before")
    saved = json.loads(json.dumps(file.save()))
    file.notice(2, "after")
    file.close(2)
    again = opened(tmp_path, saved=saved, steps=1)
    again.notice(2, "anew")
    assert [event["text"] for event in read_metrics(tmp_path, "notice")] == ["before", "resumed", "anew"]
    assert again.seconds >= saved["seconds"]


def test_a_run_killed_right_behind_its_checkpoint_has_told_the_time(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.turned(150)  # past 100, where the time is told anyway
    file.turned(170)
    saved = file.save()
    assert [event["step"] for event in read_metrics(tmp_path, "clock")] == [150, 170]
    assert saved["bytes"] == (tmp_path / "metrics.jsonl").stat().st_size  # so going on keeps that line
    assert read_metrics(tmp_path, "clock")[-1]["seconds"] == pytest.approx(saved["seconds"], abs=0.5)
    file.save()
    file.close(170)
    assert len(read_metrics(tmp_path, "clock")) == 2  # once for each moment


@pytest.mark.parametrize("cut", [1, 30, 60, 90])
def test_a_file_that_lost_its_end_goes_on_behind_its_last_whole_line(cut: int, tmp_path: Path) -> None:
    file = opened(tmp_path)
    for step in range(1, 4):
        file.notice(step, "before")
    saved = file.save()
    file.close(3)
    path = tmp_path / "metrics.jsonl"
    os.truncate(path, int(saved["bytes"]) - cut)
    left = path.read_bytes().count(b"\n")
    warnings: list[str] = []
    again = opened(tmp_path, saved=saved, steps=3, warnings=warnings)
    again.notice(4, "after")
    lost, resumed, after = [event["text"] for event in read_metrics(tmp_path)][left:]
    assert f"{cut:,} bytes shorter" in lost
    assert warnings == [lost]
    assert (resumed, after) == ("resumed", "after")
    assert again.save()["bytes"] == path.stat().st_size


def test_a_line_longer_than_what_is_read_at_a_time_is_cut_off_whole(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.notice(1, "short")
    file.notice(2, "long" * 50_000)
    saved = file.save()
    file.close(2)
    os.truncate(tmp_path / "metrics.jsonl", int(saved["bytes"]) - 1_000)
    opened(tmp_path, saved=saved, steps=2)
    before, lost, resumed = read_metrics(tmp_path, "notice")
    assert (before["text"], resumed["text"]) == ("short", "resumed")
    assert "bytes shorter" in lost["text"]


def test_starting_over_keeps_what_was_recorded_beside(tmp_path: Path) -> None:
    for text in ("first", "second", "third"):
        file = opened(tmp_path, saved={})
        file.notice(1, text)
        file.figures(1, {"train/loss": np.zeros(2)})
        file.close(1)
    kept = [(tmp_path / f"metrics{number}.jsonl").read_text() for number in (".1", ".2", "")]
    assert [text in words for text, words in zip(("first", "second", "third"), kept, strict=True)] == [True] * 3
    assert [event["text"] for event in read_metrics(tmp_path, "notice")] == ["third"]


def test_notices_from_before_the_run_begins_are_kept(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path)
    file.notice(0, "early")
    file.load({})
    file.begin(trainer())
    assert read_metrics(tmp_path)[0]["text"] == "early"


def test_two_processes_cannot_write_into_one_folder(tmp_path: Path) -> None:
    file = opened(tmp_path)
    with pytest.raises(FileExistsError, match="another process is training"):
        opened(tmp_path)
    file.close(0)
    opened(tmp_path)


class FullDisk:
    """A file that takes so many bytes and then none until there is room."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: self.room]
        self.room -= len(taken)
        return self.file.write(taken)


@pytest.mark.parametrize("room", [0, 5, 70, 100])
def test_lines_wait_while_the_disk_is_full_and_none_is_lost_or_doubled(room: int, tmp_path: Path) -> None:
    warnings: list[str] = []
    file = MetricsFile(tmp_path, warn=warnings.append)
    file.begin(trainer())
    real = file.file
    full: Any = FullDisk(real, room)
    file.file = full
    for step in range(3):
        file.notice(step, "line")
    assert len(warnings) == 1
    assert "No space left" in warnings[0]
    file.file = real
    file.notice(3, "line")
    assert [event["step"] for event in read_metrics(tmp_path)] == [0, 1, 2, 3]
    assert file.save()["bytes"] == (tmp_path / "metrics.jsonl").stat().st_size


def test_a_real_run_has_a_line_for_every_member_at_every_event(trained: sasr.Run) -> None:
    expected: dict[Any, Sequence[int]] = {
        "episode": [200, 400],
        "evaluation": [150, 300, 450],
        "figures": range(50, 451, 50),
    }
    for kind, steps in expected.items():
        found = [(event["step"], event["member"], event["seed"]) for event in trained.metrics(kind)]
        assert found == [(step, member, seed) for step in steps for member, seed in enumerate((3, 5))]
    assert [event["step"] for event in trained.metrics("clock")] == list(range(50, 451, 50))
    assert trained.finished


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell only of the process's whole life")
def test_a_peak_counts_what_was_given_back_but_not_what_was_before() -> None:
    before = PeakMemory(CPU)
    low = before.bytes()
    assert low is not None
    block = np.ones(BIG, np.uint8)
    grown = before.bytes()
    del block
    kept, again = before.bytes(), PeakMemory(CPU).bytes()
    assert grown is not None
    assert kept is not None
    assert again is not None
    assert again < low + BIG // 2 <= min(grown, kept)
