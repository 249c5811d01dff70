"""Visited states and bonuses of a run, for figures 4 and 5 of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sasr.logs.states import NAME, VisitedStates, read_states
from sasr.shaping.sasr import SASR
from sasr.training import TrainConfig, Trainer
from tests.training.runs import config_of, differences, shaped, state_of


class Watched(VisitedStates):
    """Also keeps every state, and stops at some step as a signal would."""

    def __init__(self, folder: Path, *, stop_at: int | None = None) -> None:
        super().__init__(folder)
        self.seen: list[NDArray[Any]] = []
        self.stop_at = stop_at

    def turned(self, steps: int) -> None:
        self.seen.append(self.trainer.loop.obs.copy())
        super().turned(steps)
        if steps == self.stop_at:
            self.trainer.signals.received = 15


def settings(**given: Any) -> TrainConfig:
    usual: dict[str, Any] = {"task": "MountainCar", "eval_every": 0, "log_states": 60, **shaped("auto")}
    return config_of(**(usual | given))


def test_every_visited_state_is_counted_in_its_bin_and_period(tmp_path: Path) -> None:
    recorder = Watched(tmp_path)
    with Trainer(settings(environments=2, steps=200), recorder=recorder) as trainer:
        trainer.run()
        shaper = trainer.shaper
    states = read_states(tmp_path)
    assert states.steps.tolist() == [60, 120, 180, 200]  # the last period ends with the run
    seen = np.stack(recorder.seen)  # (turns, P, E, 2)
    for period in range(4):
        for member in range(2):
            part = seen[30 * period : 30 * (period + 1), member].reshape(-1, 2)
            expected, _, _ = np.histogram2d(part[:, 1], part[:, 0], bins=(states.y, states.x))
            np.testing.assert_array_equal(states.visits[period, member], expected)
            assert set(states.feature[period, member]) <= set(seen[: 30 * (period + 1), member, :, 0].ravel())
    assert isinstance(shaper, SASR)
    low, high = shaper.config.reward_min, shaper.config.reward_max
    bounds = np.sort(shaper.config.reward_weight * np.array([low, high]))
    assert (bounds[0] - 1e-6 <= states.bonus).all()
    assert (states.bonus <= bounds[1] + 1e-6).all()


def test_a_run_that_logs_its_states_is_the_same_run(tmp_path: Path) -> None:
    found = []
    for log_states in (0, 60):
        with Trainer(settings(log_states=log_states), recorder=VisitedStates(tmp_path)) as trainer:
            trainer.run()
            found.append(state_of(trainer))
        assert (tmp_path / NAME).exists() == bool(log_states)
    assert differences(*found) == []


def test_a_resumed_run_counts_as_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    with Trainer(settings(), recorder=VisitedStates(whole)) as trainer:
        trainer.run()
    with Trainer(settings(), folder=parts, recorder=Watched(parts, stop_at=85)) as trainer:
        assert not trainer.run()
    with Trainer(settings(), folder=parts, recorder=VisitedStates(parts)) as trainer:
        assert trainer.resume()
        trainer.run()
    expected, found = read_states(whole), read_states(parts)
    np.testing.assert_array_equal(found.visits, expected.visits)
    np.testing.assert_array_equal(found.bonus[0], expected.bonus[0])


def test_where_states_are_no_picture_only_bonuses_are_kept_and_without_sasr_none(tmp_path: Path) -> None:
    config = config_of(task="Line-v0", eval_every=0, log_states=90, shaper="none")
    with Trainer(config, recorder=VisitedStates(tmp_path)) as trainer:
        trainer.run()
    states = read_states(tmp_path)
    assert states.visits.shape == (2, 2, 0, 0)
    assert np.isnan(states.bonus).all()
    assert np.isfinite(states.feature).all()


@pytest.mark.parametrize("part", ["visits", "bonus", "steps"])
def test_a_damaged_file_is_named(part: str, tmp_path: Path) -> None:
    with Trainer(settings(), recorder=VisitedStates(tmp_path)) as trainer:
        trainer.run()
    arrays = read_states(tmp_path)._asdict()
    np.savez_compressed(tmp_path / NAME, **(arrays | {part: arrays[part][:1]}))
    with pytest.raises(ValueError, match=NAME):
        read_states(tmp_path)
