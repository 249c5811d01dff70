"""The catalogue, its registration, and how `sasr tasks` shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import gymnasium as gym
import pytest

import sasr
from sasr import cli
from sasr.tasks import TASKS, catalogue, find, make

IDS = list(catalogue.VARIANTS)


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, timeout=300
    )


def test_there_are_seventeen_tasks_and_fourteen_in_the_paper() -> None:
    assert len(TASKS) == len({task.name for task in TASKS}) == 17
    assert sum(task.table1 is not None for task in TASKS) == 14
    assert len(IDS) == 17 + 9 + len(catalogue.OURS)
    assert sasr.__version__


def test_importing_sasr_registers_ids_and_loads_no_simulator() -> None:
    told = run(
        "import sys, sasr, gymnasium as gym\n"
        "print([m for m in ('mujoco', 'gymnasium_robotics', 'ale_py', 'cv2', 'pygame') if m in sys.modules])\n"
        "print(sum(id.startswith('SASR/') for id in gym.registry))"
    )
    assert told.stdout.split("\n")[:2] == ["[]", "27"], told.stderr


@pytest.mark.parametrize("id", IDS)
def test_sizes_are_those_of_the_table(id: str) -> None:
    task, variant = find(id), catalogue.VARIANTS[id]
    env: Any = gym.make(id)
    assert env.observation_space.shape == variant.observation
    assert env.spec.max_episode_steps == variant.horizon
    if isinstance(task.action, int):
        assert env.action_space.n == task.action
    else:
        assert env.action_space.shape == task.action
        assert env.action_space.high == pytest.approx(task.action_bound)
        assert env.action_space.low == pytest.approx(-task.action_bound)
    env.close()


def test_names_and_ids_lead_to_the_same_task() -> None:
    for name in ("AntFar", "AntFarPaper", "SASR/AntFar-v0", "SASR/AntFarPaper-v0"):
        assert find(name).name == "AntFar"
    for name in ("MountainCarPaper", "SASR/MountainCarPaper-v0"):
        spec = make(name).spec
        assert spec is not None
        assert spec.id == "SASR/MountainCarPaper-v0"


@pytest.mark.parametrize(
    ("asked", "offered"), [("AntStnad", "AntStand"), ("humankeep", "HumanKeep"), ("CartPol-v1", "CartPole-v1")]
)
def test_an_unknown_name_is_answered_with_the_closest(asked: str, offered: str) -> None:
    with pytest.raises(LookupError, match=f"unknown task '{asked}'.*did you mean.*{offered}"):
        make(asked)


def test_nothing_close_still_says_where_to_look() -> None:
    with pytest.raises(LookupError, match="sasr tasks"):
        make("qqqqqqqq")


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ImportError, match="no module 'no_such_module'"):
        make("no_such_module:Task-v0")


@pytest.mark.parametrize(
    ("task", "module", "line"),
    [
        ("AntStand", "mujoco", 'pip install "sasr[mujoco]"'),
        ("RobotReach", "gymnasium_robotics", 'pip install "sasr[robotics]"'),
        ("Freeway", "ale_py", 'pip install "sasr[atari]"'),
    ],
)
def test_a_missing_extra_gives_the_line_that_installs_it(task: Any, module: str, line: str) -> None:
    # None in sys.modules is what the import system itself uses for "known to be missing".
    hidden = f"import sys, sasr.tasks; sys.modules[{module!r}] = None\n"
    asked = run(hidden + f"sasr.tasks.make({task!r})")
    assert "ImportError" in asked.stderr
    assert line in asked.stderr
    shown = run(
        hidden
        + "import importlib.util as u; found = u.find_spec\n"
        + f"u.find_spec = lambda name: None if name == {module!r} else found(name)\n"
        + f"from sasr.cli import main; sys.argv = ['sasr', 'tasks', {task!r}]; main()",
        COLUMNS="120",
    )
    assert line in shown.stdout, shown.stderr


def test_the_command_lists_every_task(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["sasr", "tasks"])
    cli.main()
    shown = capsys.readouterr().out
    assert all(task.name in shown for task in catalogue.EVERY)
    assert "6737.9" in shown


def test_the_command_shows_one_card_with_both_profiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sasr", "tasks", "HumanStand"])
    cli.main()
    shown = capsys.readouterr().out
    for fact in ("SASR/HumanStand-v0", "SASR/HumanStandPaper-v0", "79.8", "376", "348", "sasr[mujoco]", "swaps"):
        assert fact in shown
    assert "1,000,000 steps" in shown


def test_a_run_of_the_two_cheap_tasks_takes_minutes_by_default() -> None:
    assert {catalogue.BY_NAME[name].code.steps for name in ("MountainCar", "TwoRooms")} == {40_000, 20_000}


def test_the_command_answers_an_unknown_name_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sasr", "tasks", "HumanStnad"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    told = capsys.readouterr().err.strip()
    assert "HumanStand" in told
    assert "\n" not in told
