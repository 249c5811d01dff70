from __future__ import annotations

import io
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sasr
from sasr import api
from sasr.logs import console as view
from sasr.logs.console import ConsoleView, sparkline
from sasr.logs.recorders import EPISODES, RecentEpisodes
from sasr.terminal import Terminal
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from tests.conftest import settings


class Clock:
    """A time that passes only when told."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(view, "time", clock)
    return clock


def begun(
    folder: Path, *, terminal: bool = False, steps: int = 0, total: int = 10_000
) -> tuple[ConsoleView, io.StringIO]:
    out = io.StringIO()
    shown = ConsoleView(folder, console=Terminal(file=out, force_terminal=terminal, width=110, color_system=None))
    trainer: Any = SimpleNamespace(
        config=settings(steps=total, log_every=1000),
        loop=SimpleNamespace(steps=steps),
        learner=SimpleNamespace(burn_in=1000, held_bytes=3 * 2**29),
        pace=None,
        device="cpu",
    )
    shown.begin(trainer)
    return shown, out


def result(low: float, high: float) -> Evaluation:
    returns = np.array([[low], [high]])
    return Evaluation(returns, np.full((2, 1), 7), returns > 0)


def test_plain_lines_come_every_few_seconds_and_at_evaluations(tmp_path: Path, clock: Clock) -> None:
    shown, out = begun(tmp_path)
    shown.episodes(1000, [Episode(0, 0, 1.0, 50, True), Episode(1, 0, 3.0, 70, False)])
    for step in range(1000, 3000):
        clock.now += 0.01
        shown.turned(step)
    shown.evaluation(3000, result(0.5, 0.7))
    title, *lines = out.getvalue().splitlines()
    assert title == "Pendulum-v1 · sac · shaper sasr (auto) · 2 seeds · cpu · memory 1.5 GiB"
    assert len(lines) == 5  # at 5, 10, 15 and 20 seconds, and at the evaluation
    assert lines[-2].startswith("step 2,9")
    assert "return 2.000 ± 1.000 | success 50% ± 50% | length 60.0 ± 10.0" in lines[0]
    assert lines[-1].startswith("step 3,000/10,000 (30%) | return")
    assert "evaluation 0.600 ± 0.100 | " in lines[-1]


def test_the_score_of_a_game_stands_beside_the_return(tmp_path: Path, clock: Clock) -> None:
    shown, out = begun(tmp_path)
    shown.evaluation(3000, result(0.5, 0.7)._replace(scores=np.array([[20.0], [22.0]])))
    assert "| evaluation 0.600 ± 0.100 | score 21.0 ± 1.0" in out.getvalue().splitlines()[-1]


def test_speed_and_time_left_are_those_of_the_last_half_minute(tmp_path: Path, clock: Clock) -> None:
    shown, out = begun(tmp_path)
    for _ in range(10):
        clock.now += 6.0
        shown.turned(shown.steps + 600)
    assert out.getvalue().splitlines()[-1].endswith("100 steps/s × 2 seeds | 0:40 left")


def test_the_burn_in_is_named_while_it_lasts_beside_the_least_time_left(tmp_path: Path, clock: Clock) -> None:
    shown, out = begun(tmp_path)
    burn_in = shown.burn_in
    clock.now += 6.0
    shown.turned(burn_in - 100)
    assert "burn-in" in out.getvalue().splitlines()[-1]
    assert "at least" in out.getvalue().splitlines()[-1]
    for steps in (burn_in + 100, burn_in + 400, burn_in + 700):
        clock.now += 6.0
        shown.turned(steps)
        assert "burn-in" not in out.getvalue().splitlines()[-1]
        assert " left" in out.getvalue().splitlines()[-1]
    assert "| 50 steps/s × 2 seeds |" in out.getvalue().splitlines()[-1]  # of learning alone


def test_the_live_view_has_a_line_for_each_metric_and_a_curve(tmp_path: Path, clock: Clock) -> None:
    shown, out = begun(tmp_path, terminal=True)
    for k, mean in enumerate((0.0, 0.2, 0.4, 0.7)):
        clock.now += 10.0
        shown.episodes(1000 * (k + 1), [Episode(0, 0, 10.0 ** (k == 3), 5, True)])
        shown.evaluation(1000 * (k + 1), result(mean - 0.1, mean + 0.1))
        shown.turned(1000 * (k + 1))
    shown.figures(4000, {"train/critic_loss": np.array([0.25, 0.75])})
    shown.save()
    shown.close(4000)
    last = out.getvalue().split("Pendulum-v1 · sac")[-1]
    assert "evaluation return" in last
    assert "0.700 ± 0.100" in last
    assert "▁▃▅█" in last  # the evaluations
    assert "▁▁▁█" in last  # the training episodes, whose mean rises at the end
    assert "train/critic_loss" in last
    assert "0.500 ± 0.250" in last
    assert "checkpoint at step 4,000" in last
    assert "4,000/10,000 steps" in last
    assert str(tmp_path)[:40] in last


def test_notices_are_said_at_once_and_whole(tmp_path: Path, clock: Clock) -> None:
    shown, out = begun(tmp_path)
    text = "no [bold]checkpoint[/] was written " + "because " * 30
    shown.notice(5, text)
    assert out.getvalue().splitlines()[-1] == f"step 5: {text}"


def test_a_resumed_run_shows_what_was_before(trained: sasr.Run, clock: Clock) -> None:
    shown, out = begun(trained.folder, steps=450, total=10_000)
    assert "resumed at step 450" in out.getvalue()
    assert [step for step, _, _ in shown.evaluations] == [150, 300, 450]
    assert (
        np.array([returns for _, returns, _ in shown.evaluations]).T.tolist() == trained.evaluation().returns.tolist()
    )
    returns = [[event["return"] for event in trained.metrics("episode") if event["member"] == m] for m in range(2)]
    assert shown.recent.means()["ep_rew_mean"].tolist() == pytest.approx(np.mean(returns, axis=1).tolist())


def test_a_run_in_plain_mode_ends_with_its_last_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.start(settings(steps=60, eval_every=30), out=tmp_path / "run", progress=True, events=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("step 60/60 (100%) | evaluation -")


@given(st.lists(st.floats(-1e9, 1e9) | st.just(math.nan), max_size=200), st.integers(1, 60))
def test_a_sparkline_fits_its_width_and_rises_where_the_values_do(values: list[float], width: int) -> None:
    known = [value for value in values if not math.isnan(value)]
    assert len(sparkline(values, width=width)) == min(len(known), width)
    bars = sparkline(sorted(known), width=width)
    assert list(bars) == sorted(bars)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-100, 100)), max_size=400))
def test_the_window_is_the_mean_of_the_last_hundred_of_each_member(episodes: list[tuple[int, float]]) -> None:
    window = RecentEpisodes(3)
    for member, ret in episodes:
        window.add(member, ret=ret, length=1, success=False)
    for member, mean in enumerate(window.means()["ep_rew_mean"]):
        returns = [ret for m, ret in episodes if m == member][-EPISODES:]
        assert mean == pytest.approx(np.mean(returns), abs=1e-9) if returns else np.isnan(mean)
