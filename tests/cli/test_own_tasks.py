"""A task of one's own on the command line: a function in a module of the current folder."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sasr.logs.recorders import Recorders
from tests.cli.commands import run

SOURCE = """
import gymnasium as gym
from sasr.tasks import sparse

def make(render_mode=None):
    env = gym.make("Pendulum-v1", max_episode_steps=20, render_mode=render_mode)
    return sparse(env, lambda env, observation, info: observation[0] > 0.9)

NUMBER = 3
"""
SHORT = ("--steps", "60", "--workers", "0", "--eval-every", "30", "--eval-episodes", "1", "--no-tensorboard")
TINY = ("--set", "agent.burn_in=30", "--set", "agent.batch_size=16", "--set", "agent.hidden=8,8")


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "their_sparse_task.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, "their_sparse_task", raising=False)
    return "their_sparse_task"


def test_it_trains_resumes_and_is_evaluated(
    own_module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output = run(capsys, "train", f"{own_module}:make", "--out", "run", *SHORT, *TINY)
    assert code == 0, output
    assert f"{own_module}:make" in output
    for command in (["eval", "run", "--episodes", "1", "--workers", "0"], ["resume", "run"]):
        monkeypatch.delitem(sys.modules, own_module)
        monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(Path.cwd())])
        if command[0] == "eval":
            code, output = run(capsys, *command)
            assert code == 2
            assert f"--allow-import {own_module}" in output
        code, output = run(capsys, *command, "--allow-import", own_module)
        assert code == 0, output
        sys.modules.setdefault(own_module, sys)


def test_the_line_that_continues_a_stopped_run_allows_its_module(
    own_module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[int] = []

    def stop(recorders: Recorders, steps: int) -> None:
        if not stops:
            stops.append(steps)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Recorders, "turned", stop)
    code, output = run(capsys, "train", f"{own_module}:make", "--out", "my run", *SHORT, *TINY)
    assert code == 130
    _, _, line = output.rpartition("sasr resume ")
    monkeypatch.delitem(sys.modules, own_module)
    code, output = run(capsys, "resume", *shlex.split(line), "--no-tensorboard")
    assert code == 0, output


def test_the_doctor_takes_it(own_module: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", f"{own_module}:make", "--steps", "300")
    assert code == 0, output
    assert f"{own_module}:make" in output


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("{}:mak", "has no function of that name"),
        ("{}:NUMBER", "must be a function that makes an environment"),
        ("{}.py:make", "leave out .py"),
        ("not_there_either:make", "neither installed nor in the current folder"),
        ("make()", "commands need a function in a module"),
    ],
)
def test_a_mistake_is_one_line(task: str, message: str, own_module: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "train", task.format(own_module))
    assert code == 2
    assert message in output
    assert "Traceback" not in output


def test_the_installed_command_finds_a_module_of_the_current_folder(own_module: str) -> None:
    # Its script lies elsewhere, so Python does not look here by itself.
    code = f"import sys; sys.path.remove(''); from sasr.tasks import make; make('{own_module}:make').reset()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
