from __future__ import annotations

import subprocess
import sys

import pytest

from sasr import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sasr", *arguments])
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


def test_doctor_says_signal_and_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", "MountainCarContinuous-v0", "--steps", "2000")
    assert code == 0
    assert "signal: under auto" in output
    assert "rank correlation with the exact kernel" in output


def test_doctor_says_noise_exits_1_and_suggests_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "doctor", "Ant-v5", "--preset", "authors", "--steps", "2000")
    assert code == 1
    assert "noise:" in output
    assert 'Try SASR(preset="auto")' in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("MountainCarContinuos-v0",), "MountainCarContinuous-v0"),
        (("Ant-v5", "--preset", "author"), "did you mean 'authors'"),
        (("FrozenLake-v1",), "use Box, MultiBinary, or a Dict"),
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


def test_the_command_is_installed_and_explains_itself() -> None:
    found = subprocess.run([sys.executable, "-m", "sasr", "--help"], capture_output=True, text=True, check=True)
    assert "doctor" in found.stdout


def test_importing_the_library_loads_no_heavy_extra() -> None:
    code = (
        "import sys, sasr; "
        "print([m for m in ('torch', 'stable_baselines3', 'mujoco', 'ale_py', 'matplotlib') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
