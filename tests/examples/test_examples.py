"""The examples run, with short settings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sasr
from examples import own_agent, own_shaper, own_task
from sasr import check_shaper
from sasr.agents import SacConfig

SHORT = SacConfig(hidden=(8, 8), burn_in=30, batch_size=16)


@pytest.mark.parametrize("shaping", [True, False])
def test_own_agent_learns_from_shaped_rewards(shaping: bool, capsys: pytest.CaptureFixture[str]) -> None:
    args = own_agent.Args(steps=1100, learning_starts=1050, batch_size=16, hidden=8, shaping=shaping)
    returns = own_agent.main(args)
    assert len(returns) == 1
    assert np.isfinite(returns).all()
    assert "step 999" in capsys.readouterr().out


def test_own_shaper_fulfils_the_contract_and_counts_visits() -> None:
    check_shaper(own_shaper.Visits())


def test_own_shaper_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_with = short_training(monkeypatch)
    own_shaper.main(steps=60, out=tmp_path / "run")
    assert isinstance(trained_with[0]["shaper"], own_shaper.Visits)
    figures = sasr.Run(tmp_path / "run").metrics("figures")
    assert figures[-1]["shaping/cells_visited"] > 1


def test_own_task_is_diagnosed_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short_training(monkeypatch)
    own_task.main(steps=60, out=tmp_path)
    assert sasr.Run(tmp_path / "sasr").config.task == "examples.own_task:make"
    assert re.search(r"doctor says (signal|noise)", capsys.readouterr().out)


def test_a_script_s_function_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from sasr.tasks.environment import task_text

    main = type(sys)("__main__")
    main.__file__ = "somewhere/own_task.py"

    def make() -> gym.Env[Any, Any]:
        raise AssertionError

    make.__module__, main.make = "__main__", make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert task_text(make) == "own_task:make"
    main.__file__ = None
    assert task_text(make) == "make()"


def short_training(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Let the examples train for a moment; what they asked for."""
    asked: list[dict] = []
    train = sasr.train

    def short(task: Any, **settings: Any) -> sasr.Run:
        asked.append(settings)
        more: dict[str, Any] = {"agent": SHORT, "workers": 0, "eval_every": 30, "eval_episodes": 1, "log_every": 30}
        return train(task, progress=False, events=False, **more, **settings)

    monkeypatch.setattr(sasr, "train", short)
    return asked
