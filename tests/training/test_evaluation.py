"""An evaluation that never ends can be stopped, says what it waits for, and is made when the run goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from sasr.envs.population import Population
from sasr.training import Trainer, evaluate, trainer
from sasr.training.trainer import CHECKPOINTS

from .runs import Ended, Everything, Line, checkpoint_in, config_of, differences, run, shaped


class Stuck(Line):
    """Line without an end; from its 100th step on it does not answer any more."""

    steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        while self.steps >= 100:
            Path(os.environ["STUCK"]).touch()
            time.sleep(0.01)
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


class Long(Line):
    """Line whose episodes take 50 steps, which no time limit says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        observation, reward, *_ = super().step(action)
        return observation, reward, self.steps == 50, False, {}


for name in ("Stuck", "Long"):
    if f"{name}-v0" not in gym.registry:
        gym.register(f"{name}-v0", f"{__name__}:{name}")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_evaluation_that_does_not_answer_with_a_checkpoint(
    number: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(task="Stuck-v0", shaper="none", steps=60, workers=workers)
    stuck = tmp_path / "stuck"
    monkeypatch.setenv("STUCK", str(stuck))

    def send() -> None:
        while not stuck.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    class Sends(Everything):
        def turned(self, steps: int) -> None:
            if steps == 59:
                threading.Thread(target=send, daemon=True).start()

    with Trainer(config, folder=tmp_path, recorder=Sends()) as under_way:
        assert not under_way.run()
        assert under_way.stopped_by == number
    assert checkpoint_in(tmp_path / CHECKPOINTS).facts["steps"] == 60


def unending(*what: Any, **options: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize("broken_off", [60, 180])
def test_an_evaluation_that_was_broken_off_is_made_when_the_run_goes_on(
    broken_off: Any, tmp_path: Path, whole: tuple[Everything, Ended]
) -> None:
    config = config_of(**shaped("auto"))
    recorder, expected = whole
    events: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        if broken_off == 180:
            run(config, tmp_path, stop_at=150, events=events)
        patch.setattr(trainer, "evaluate", unending)
        _, stopped = run(config, tmp_path, events=events)
    assert not stopped.finished
    assert stopped.loop.steps == broken_off
    _, ended = run(config, tmp_path, events=events)
    assert ended.finished
    assert events == recorder.events
    assert differences(ended.state, expected.state) == []


def warned_of(task: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(evaluate, "PATIENCE", 0.0)
    texts: list[str] = []
    with Population(task, seeds=[3, 4], workers=0) as population:
        evaluate.evaluate(population, lambda obs: torch.zeros(2, 1, 1), warn=texts.append)
    return texts


def test_episodes_that_may_never_end_are_told_once_with_the_flag_that_ends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (text,) = warned_of("Long-v0", monkeypatch)
    assert "2 of 2 episodes" in text
    assert "seed 3, environment 0" in text
    assert "--max-episode-steps" in text


def test_episodes_with_a_time_limit_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warned_of("Pendulum-v1", monkeypatch) == []


def test_a_run_takes_a_time_limit_of_its_own() -> None:
    config = config_of(task="Long-v0", shaper="none", max_episode_steps=20, steps=60, eval_every=60)
    recorder, _ = run(config)
    lengths = [episode[3] for kind, _, ended in recorder.events if kind == "episodes" for episode in ended]
    assert lengths == [20] * 6
    ((_, _, (_, evaluated, *_)),) = [event for event in recorder.events if event[0] == "evaluation"]
    assert evaluated == [[20, 20], [20, 20]]


def test_a_time_limit_is_at_least_one_step() -> None:
    with pytest.raises(ValueError, match="max_episode_steps=0 must be at least 1"):
        config_of(max_episode_steps=0)
