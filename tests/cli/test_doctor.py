from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from gymnasium.wrappers import FlattenObservation

from tests.cli.commands import run


def test_doctor_says_signal_and_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", "MountainCar", "--steps", "2000")
    assert code == 0
    assert "signal: under auto" in output
    assert "rank correlation with the exact kernel" in output


def test_doctor_says_noise_exits_1_and_suggests_flags(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", "Ant-v5", "--preset", "authors", "--steps", "2000")
    assert code == 1
    assert "noise:" in output
    assert "Try --preset auto:" in output


@pytest.mark.parametrize("task", ["FrozenLake-v1", "tests.cli.test_doctor:one_hot"])
def test_what_training_flattens_is_judged(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", task, "--steps", "600")
    assert code == 0
    assert "signal: under auto" in output


def one_hot() -> gym.Env[Any, Any]:
    return FlattenObservation(gym.make("FrozenLake-v1"))


def test_a_task_that_always_rewards_is_called_not_sparse(capsys: pytest.CaptureFixture[str]) -> None:
    _, dense = run(capsys, "doctor", "CartPole-v1", "--steps", "600")
    _, seldom = run(capsys, "doctor", "FrozenLake-v1", "--steps", "600")
    assert "not sparse" in dense
    assert "not sparse" not in seldom


@pytest.mark.slow
def test_doctor_checks_images_against_the_agents_place(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", "tests.evidence.small_world:make", "--steps", "1200")
    assert code == 0
    assert "rank correlation with visits" in output
    assert "signal: under auto counts follow" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("MountainCarContinuos-v0",), "MountainCarContinuous-v0"),
        (("Ant-v5", "--preset", "author"), "did you mean 'authors'"),
        (("CartPole-v1", "--steps", "0"), "steps=0 must be at least 1"),
        (("CartPole-v1", "--steps", "20"), "20 states are too few"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = run(capsys, "doctor", *arguments)
    assert code == 2
    assert message in output
    assert "Traceback" not in output


def test_a_task_that_can_have_no_success_is_not_called_signal_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", "Acrobot-v1", "--steps", "600")
    assert code == 0
    assert "signal, but no success seen: nothing has counted as a success: rewards were -1, never above" in output


def test_a_number_of_info_is_judged_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", "MountainCar", "--steps", "1200", "--info", "position")
    assert code == 0
    assert "position in the next 200 steps" in output
