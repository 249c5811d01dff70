from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import sasr
from sasr.cli import COMMANDS
from tests.cli.commands import run


def output_of(*words: str) -> str:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout


def test_the_command_is_installed_and_explains_itself() -> None:
    text = output_of("-m", "sasr", "--help")
    assert all(name in text for name in COMMANDS)
    assert output_of("-m", "sasr", "--version") == f"sasr {sasr.__version__}\n"


def test_importing_the_library_loads_no_heavy_extra() -> None:
    code = (
        "import sys, sasr; "
        "print([m for m in ('torch', 'stable_baselines3', 'mujoco', 'ale_py', 'matplotlib') if m in sys.modules])"
    )
    assert output_of("-c", code).strip() == "[]"


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_come_without_torch(word: str) -> None:
    code = (
        f"import sys; sys.argv = ['sasr', {word!r}]; from sasr.cli import main; main(); print('torch' in sys.modules)"
    )
    assert output_of("-c", code).splitlines()[-1] == "False"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    text = inspect.getdoc(COMMANDS[name].load())
    assert text is not None
    assert " ".join(text.partition("\n\n")[0].split()) == COMMANDS[name].summary


def test_a_mistyped_command_is_answered_with_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "trian", "MountainCar")
    assert code == 2
    assert "did you mean 'train'" in output


class Faulty(gym.Env):
    """Raises what it is asked to, where it is asked to."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, where: str, error: Exception) -> None:
        self.where, self.error = where, error
        self._go_through("constructor")

    def _go_through(self, place: str) -> None:
        if self.where == place:
            raise self.error

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self._go_through("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self._go_through("step")
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        self._go_through("close")


@pytest.fixture
def faulty() -> Callable[[str, Exception], str]:
    """A function that registers an environment and gives its id."""

    def register(where: str, error: Exception) -> str:
        if "Faulty-v0" in gym.registry:
            del gym.registry["Faulty-v0"]
        gym.register("Faulty-v0", f"{__name__}:Faulty", max_episode_steps=20, kwargs={"where": where, "error": error})
        return "Faulty-v0"

    return register


ERRORS = (
    gym.error.DependencyNotInstalled("it needs a package"),
    StopIteration("no more"),
    ZeroDivisionError("a division"),
    RuntimeError(),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
@pytest.mark.parametrize("command", ["train", "doctor"])
def test_what_an_environment_raises_is_one_line_that_names_it(
    command: str,
    where: str,
    error: Exception,
    faulty: Callable[[str, Exception], str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    flags = ("--steps", "100", "--no-tensorboard", "--set", "agent.burn_in=40", "--set", "agent.batch_size=16")
    words = (command, faulty(where, error), *(flags if command == "train" else ()))
    for asked in ((), ("--debug",)):
        out = ("--out", str(tmp_path / f"run{len(asked)}")) if command == "train" else ()
        code, output = run(capsys, *words, *out, *asked)
        assert code == 2
        assert " ".join(map(str, error.args)) in output
        assert command == "doctor" or "Faulty-v0" in output
        assert ("Traceback" in output) == bool(asked)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("alloc_cpu.cpp:127 DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        MemoryError("Unable to allocate 7.28 TiB for an array with shape (1,)"),
        MemoryError(),
    ],
    ids=["torch", "cuda", "numpy", "python"],
)
def test_too_little_memory_is_named_with_what_takes_less(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str) -> None:
        raise error

    monkeypatch.setattr("sasr.cli.tasks.card", fails)
    code, output = run(capsys, "tasks", "MountainCar")
    assert code == 2
    assert "not enough memory" in output
    assert "fewer seeds" in output
    assert "--debug" not in output


def test_an_environment_that_cannot_be_closed_spoils_nothing(
    faulty: Callable[[str, Exception], str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = run(capsys, "doctor", faulty("close", ZeroDivisionError("\x1b[2Ja division")), "--steps", "500")
    assert code in (0, 1)
    assert r"sasr: note: Faulty-v0: close() raised ZeroDivisionError: \x1b[2Ja division" in output
    assert "\x1b" not in output
    assert ".py" not in output
    assert "rank correlation" in output


@pytest.mark.parametrize(
    "words",
    [
        ("train", "Pendulum-v1", "--preset", "authors", "--shaper", "rnd"),
        ("train", "Pendulum-v1", "--preset", "authors", "--shaper", "none"),
        ("train", "Pendulum-v1", "--seed", "-1"),
        ("doctor", "Pendulum-v1", "--seed", "-1"),
        ("report", ".", "--seed", "-1"),
        ("doctor", "Pendulum-v1", "--steps", "1000000000000"),
        ("train", "Pendulum-v1", "--seeds", "1000000000000"),
        ("train", "Pendulum-v1", "--steps", "1" + "0" * 40),
        ("train", "Pendulum-v1", "--environments", "1000000000000"),
        ("train", "Pendulum-v1", "--max-episode-steps", "1" + "0" * 40),
        ("train", "Pendulum-v1", "--eval-episodes", "1000000000000"),
        ("train", "Pendulum-v1", "--set", "agent.hidden=64,1" + "0" * 30),
        ("train", "Pendulum-v1", "--set", "agent.n_step=1" + "0" * 12),
        ("train", "Pendulum-v1", "--set", "shaper.features=1" + "0" * 30),
        ("settings", "rnd", "--preset", "paper"),
        ("compare", "--tasks", "Pendulum-v1", "--methods", "sac", "--address", "auto"),
        ("compare", "--tasks", "Pendulum-v1", "--methods", "sac", "--gpus", "1"),
        ("compare", "--tasks", "Pendulum-v1", "--methods", "sac", "--on", "inline", "--jobs", "2"),
        ("compare", "--tasks", "Pendulum-v1", "--methods", "sac", "--results", "elsewhere"),
        ("compare", "--tasks", "Pendulum-v1", "--methods", "sac", "--final-episodes", "1000000000000"),
        ("compare", "--tasks", "Pendulum-v1", "--methods", "sac", "--seeds", "1000000000000"),
    ],
    ids=" ".join,
)
def test_flags_that_contradict_or_ask_too_much_are_refused_by_name(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = run(capsys, *words)
    assert code == 2
    name = words[-1].partition("=")[0] if words[-2] == "--set" else words[-2]
    assert name.rpartition(".")[2].strip("-").replace("-", "_") in output.replace("-", "_")
    assert list(tmp_path.iterdir()) == []


def test_an_argument_with_control_characters_is_shown_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "tasks", "--\x1b[2Jsteps")
    assert code == 2
    assert r"--\x1b[2Jsteps" in output
    assert "\x1b" not in output


def test_a_finished_run_has_nothing_to_track(kept_run: sasr.Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "resume", str(kept_run.folder), "--track", "wandb")
    assert code == 2
    assert "--track wandb" in output


def test_eval_says_when_it_uses_an_older_checkpoint(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest, before = sorted((copied / "checkpoints").iterdir(), reverse=True)
    (newest / "agent.safetensors").write_bytes(b"")
    code, output = run(capsys, "eval", str(copied), "--episodes", "1", "--workers", "0")
    assert code == 0, output
    assert f"{newest.name} (agent.safetensors has 0 bytes" in output
    assert before.exists()
