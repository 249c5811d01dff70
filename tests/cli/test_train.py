"""`sasr train`, `resume` and `eval` as typed, on runs that are small but real."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import sasr
from sasr.training import TrainConfig
from tests.cli.commands import run

ROOT = Path(__file__).parents[2]
SMALL = ("--set", "agent.hidden=8,8", "--set", "agent.batch_size=16", "--set", "agent.burn_in=40", "--workers", "0")


def process(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "sasr", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_train_stop_resume_and_eval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the middle of a real process, on to the end, then the table."""
    training = process(
        *("train", "Pendulum-v1", "--seeds", "2", "--seed", "7", "--steps", "700", "--out", "run"),
        *(*SMALL, "--eval-every", "100", "--eval-episodes", "2", "--log-every", "100", "--no-tensorboard"),
        folder=tmp_path,
    )
    assert training.stdout is not None
    for line in training.stdout:
        if "evaluation" in line:
            break
    training.send_signal(signal.SIGINT)
    output, _ = training.communicate(timeout=300)
    assert training.returncode == 130, output
    assert output.splitlines()[-1] == "sasr resume run"
    stopped = sasr.Run(tmp_path / "run")
    assert stopped.config.seeds == (7, 8)
    at = stopped.steps
    assert 100 <= at < 700

    monkeypatch.chdir(tmp_path)
    code, output = run(capsys, "resume", "run", "--no-tensorboard")
    assert code == 0, output
    assert f"resumed at step {at} " in output
    assert "step 700/700 (100%)" in output
    assert output.endswith("curve: run/curve.png run: run")
    assert stopped.finished
    code, output = run(capsys, "resume", "run")
    assert code == 0
    assert "has taken all its 700 steps" in output

    code, output = run(capsys, "eval", "run", "--episodes", "3", "--workers", "0")
    assert code == 0, output
    judged = json.loads((tmp_path / "run" / "eval.json").read_text())
    assert [row["name"] for row in judged["rows"]] == ["seed 7", "seed 8", "all"]
    for row in judged["rows"]:
        (shown,) = re.findall(rf"{row['name']} +(-[\d,.]+)", output)
        assert float(shown.replace(",", "")) == pytest.approx(row["return_mean"], rel=1e-3)


def test_a_run_gets_a_folder_of_its_own_under_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ("--steps", "60", "--eval-every", "0", "--shaper", "none", "--no-tensorboard")
    code, output = run(capsys, "train", "MountainCar", *flags, *SMALL)
    assert code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"MountainCar-none-\d{8}-\d{6}", folder.name)
    assert output.endswith(f"run: runs/{folder.name}")
    assert sasr.Run(folder).config.agent_config.hidden == (8, 8)


@pytest.fixture
def nan_task() -> str:
    """An environment that goes wrong in its 50th step."""
    if "NanTask-v0" not in gym.registry:
        gym.register("NanTask-v0", entry_point=f"{__name__}:NanTask")
    return "NanTask-v0"


class NanTask(gym.Env):
    """NaN where a number should be."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps += 1
        return np.array([0.0, np.nan if self.steps >= 50 else 0.0], np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("MountainCarr",), "did you mean MountainCar"),
        (("Pendulum-v1", "--agent", "sacc"), "did you mean 'sac'"),
        (("Pendulum-v1", "--shaper", "sassr"), "did you mean 'sasr'"),
        (("Pendulum-v1", "--preset", "papper"), "did you mean 'paper'"),
        (("Pendulum-v1", "--device", "cuda"), "use device='cpu'"),
        (("Pendulum-v1", "--device", "gpu"), "use cpu, cuda, cuda:1 or auto"),
        (("CartPole-v1", "--agent", "sac"), "action space Discrete(2)"),
        (("Pendulum-v1", "--steps", "30", *SMALL), "steps=30 is less than burn_in=40"),
        (("Pendulum-v1", "--steps", "300", *SMALL, "--set", "agent.batch_size=200"), "less than batch_size=200"),
        (("Pendulum-v1", "--seeds", "0"), "--seeds 0 must be from 1 to"),
        (("Pendulum-v1", "--set", "agent.critic_rl=1"), "did you mean 'critic_lr'"),
        (("Pendulum-v1", "--exploration", "noissy"), "exploration=noissy is not one of gaussian, noisy"),
        (("Pendulum-v1", "--agent", "td3", "--exploration", "noisy"), "exploration"),
        (("Pendulum-v1", "--shaper", "none", "--set", "shaper.reward_weight=1"), "none has no settings"),
        (
            ("NanTask-v0", "--steps", "100", "--eval-every", "0", *SMALL),
            "NanTask-v0, step 49: observation of seed 0, environment 0 is nan in dimension 1",
        ),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_2(
    arguments: tuple[str, ...], message: str, nan_task: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    code, output = run(capsys, "train", *arguments, "--out", str(tmp_path / "run"), "--no-tensorboard")
    assert code == 2, output
    assert message in output
    assert "Traceback" not in output


def test_a_run_folder_that_exists_is_half_written_or_newer_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    flags = ("--steps", "60", "--eval-every", "0", *SMALL, "--no-tensorboard", "--out", str(folder))
    assert run(capsys, "train", "Pendulum-v1", *flags)[0] == 0
    file = folder / "config.json"
    whole = file.read_text()
    said = [run(capsys, "train", "Pendulum-v1", *flags)]
    file.write_text(whole[:100])
    shutil.rmtree(folder / "checkpoints")
    said.append(run(capsys, "resume", str(folder)))
    file.write_text(json.dumps(json.loads(whole) | {"format": 99}))
    said.append(run(capsys, "eval", str(folder)))
    file.unlink()
    said += [run(capsys, "train", "Pendulum-v1", *flags), run(capsys, "resume", str(tmp_path / "nothing"))]
    assert [code for code, _ in said] == [2] * 5
    for (_, output), message in zip(
        said,
        (f"sasr resume {folder}", "an incomplete one", "by a newer sasr", "an incomplete one", "there is no run in"),
        strict=True,
    ):
        assert message in output
        assert "Traceback" not in output


def test_a_film_is_asked_for_before_the_episodes_are_played(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, output = run(capsys, "eval", "runs/none", "--video")
    assert code == 2
    assert 'pip install "sasr[video]"' in output


def test_every_setting_of_a_run_has_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    flags = set(re.findall(r"--[a-z-]+", run(capsys, "train", "--help")[1]))
    own = {"agent_config", "shaper_config", "task_settings", "task"}  # --set, and the word without a flag
    for field in dataclasses.fields(TrainConfig):
        assert field.name in own or f"--{field.name.replace('_', '-')}" in flags


# ------------------------------------------------------------------ games


def test_a_game_is_rewarded_by_its_score_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ale_py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    flags = [
        "--steps",
        "40",
        "--max-episode-steps",
        "10",
        "--eval-every",
        "20",
        "--eval-episodes",
        "1",
        "--workers",
        "0",
    ]
    flags += ["--device", "cpu", "--no-tensorboard", "--out", "run", "--set", "task.reward_mode=score"]
    for text in ("features=8", "batch_size=8", "burn_in=30", "update_every=8"):
        flags += ["--set", f"agent.{text}"]
    code, output = run(capsys, "train", "Frogger", *flags)
    assert code == 0, output
    assert "learning from images is slow on a CPU" in output
    assert "score" in output
    done = sasr.Run("run")
    assert (done.config.task_settings, done.config.frame_stack) == ({"reward_mode": "score"}, 4)
    for event in done.metrics("evaluation"):
        assert event["score_mean"] == event["return_mean"]
    code, output = run(capsys, "eval", "run", "--episodes", "2", "--workers", "0")
    assert code == 0, output
    assert "score_mean" in json.loads(Path("run/eval.json").read_text())["rows"][0]


def test_settings_that_differ_on_images_have_a_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, output = run(capsys, "settings", "sac_discrete")
    assert code == 0
    assert "on images" in output
    assert re.search(r"agent.batch_size +256 +64 ", output)
    assert re.search(r"agent.update_every +1 +4 ", output)
    _, output = run(capsys, "settings", "sac")
    assert "on images" not in output


@pytest.mark.parametrize("agent", ["sac", "td3"])
def test_a_continuous_agent_on_a_game_is_one_line_that_names_another(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ale_py")
    monkeypatch.chdir(tmp_path)
    code, output = run(capsys, "train", "Freeway", "--agent", agent, "--device", "cpu", "--capacity", "1000")
    assert code == 2
    assert "sac_discrete" in output
    assert not list(tmp_path.iterdir())
