"""The pages are true: links lead somewhere, Python runs, and every command parses with settings that exist."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

import sasr
from sasr import api
from sasr.cli import COMMANDS
from sasr.experiments.plan_file import parse_plan, read_suite, suites
from sasr.settings import TrainConfig
from tests.cli.commands import run

ROOT = Path(__file__).parents[1]
MADE = (ROOT / "docs" / "_build", ROOT / "docs" / "diary")  # by `make docs`
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for folder in ("docs", "results") for path in sorted((ROOT / folder).rglob("*.md"))),
]
PAGES = [page for page in PAGES if not any(page.is_relative_to(folder) for folder in MADE)]
GUIDE = ROOT / "docs" / "guides" / "own_task.md"
OTHERS = ("rl_zoo3.train",)  # modules of other packages that a page calls


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def pages_with(language: str) -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if blocks(page, language)]


def command_lines(page: Path) -> list[list[str]]:
    """The words of every command on a page, without comments, and with the environment's own folder left out."""
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [[words[0].removeprefix(".venv/bin/"), *words[1:]] for words in lines if words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


# ------------------------------------------------------------------ Python


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page trains is trained for 120 steps with tiny networks."""
    complete = api.complete

    def small(*given: Any) -> TrainConfig:
        full = complete(*given)
        agent = dataclasses.replace(full.agent_config, hidden=(8, 8), burn_in=100, batch_size=16)
        return dataclasses.replace(full, agent_config=agent, steps=120, eval_every=120, eval_episodes=1, workers=0)

    monkeypatch.setattr(api, "complete", small)
    for kind, steps in ((OffPolicyAlgorithm, 120), (OnPolicyAlgorithm, 1)):
        learn = kind.learn

        def learn_shortly(
            self: Any, total_timesteps: int, *rest: Any, learn: Any = learn, steps: int = steps, **named: Any
        ) -> Any:
            return learn(self, min(total_timesteps, steps), *rest, **named)

        monkeypatch.setattr(kind, "learn", learn_shortly)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_on_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_runs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "a_page"}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), names)


# ---------------------------------------------------------------- commands


class Reached(BaseException):
    """A command has read all its flags and settings, and would begin its work."""


def reach(*_: Any, **__: Any) -> NoReturn:
    raise Reached


@pytest.fixture
def no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands stop where their work would begin, in a folder with the files that pages name."""
    monkeypatch.chdir(tmp_path)
    plan = blocks(ROOT / "docs" / "experiments.md", "toml")[0].replace("my_package:MyTask-v0", "Pendulum-v1")
    (tmp_path / "own.toml").write_text(plan)
    (tmp_path / "curves.csv").write_text("task,variant,step,mean,spread\n")
    (tmp_path / "my_task.py").write_text(blocks(GUIDE, "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    work = {
        "train": ("start", "Run"),
        "evaluate": ("load_policy",),
        "export": ("export_run", "check_hub"),
        "compare": ("once_per_class",),
        "report": ("collect",),
        "doctor": ("visited",),
        "tune": ("complete",),
    }
    for module, functions in work.items():
        for function in functions:
            monkeypatch.setattr(importlib.import_module(f"sasr.cli.{module}"), function, reach)
    monkeypatch.setattr("sasr.cli.compare.choose_device", lambda device: device)  # a page may name a GPU
    monkeypatch.setattr("sasr.cli.compare.OnRay", lambda **_: None)  # or a cluster


@cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def check_sasr(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code, output = run(capsys, *words)
    except Reached:
        return
    assert code == 0, output


def check_module(module: str, flags: list[str]) -> None:
    """One of the repository's own modules is there, and names every flag it is given."""
    path = ROOT.joinpath(*module.split("."))
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__main__.py"
    text = source.read_text()
    for flag in flags:
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        assert re.search(rf"\b{name}\b", text), f"{module} has no {flag}"


def check_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A command of a page exists, and so do its flags, settings, targets and extras."""
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    match words:
        case ["sasr", *rest] | ["python", "-m", "sasr", *rest]:
            check_sasr(rest, capsys)
        case ["make", target]:
            assert target in make_targets()
        case ["pip", "install", *rest] | ["python", "-m", "pip", "install", *rest]:
            assert set(re.findall(r"\w+", "".join(re.findall(r"\[(.*?)\]", " ".join(rest))))) <= extras()
        case ["python" | "python3", "-m", "venv", _]:
            pass
        case ["python", "-m", module, *rest] if module not in OTHERS:
            check_module(module, [word for word in rest if word.startswith("--")])
        case ["python", "-m", _, *_]:
            pass
        case ["python", script, *_]:
            assert (ROOT / script).exists()
        case _:
            raise AssertionError(f"`{' '.join(words)}` is a command that no test knows; add it to check_command")


@pytest.mark.parametrize("page", pages_with("bash"))
def test_every_command_on_a_page_is_one_that_exists(
    page: Path, no_work: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in command_lines(page):
        check_command(words, capsys)


@pytest.mark.parametrize(
    "line",
    [
        "sasr train MountainCar --sedes 3",
        "sasr train MountainCar --set agent.critic_rl=1e-3",
        "sasr compare --tasks MountainCar --methods sasr,sacc",
        "sasr shape MountainCar",
        "make everything",
        "pip install sasr[everything]",
        "python -m benchmarks.costs --no-such-flag",
        "python examples/nothing.py",
        "sarsa train",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str, no_work: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):
        check_command(shlex.split(line), capsys)


@cache
def help_of(command: str) -> str:
    """All that a command's help says."""
    words = [sys.executable, "-m", "sasr", *([command] if command else []), "--help"]
    return subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "200"}).stdout


@pytest.mark.parametrize("page", ["training.md", "experiments.md", "report.md", "guides/resuming.md"])
def test_every_flag_named_on_a_page_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    every = "".join(help_of(command) for command in ("", *COMMANDS))
    for flag in set(re.findall(r"`(?:sasr [a-z]+ [^`]*?)?(--[a-z-]+)", text)):
        assert re.search(rf"{flag}\b", every), f"{page} names {flag}"


def test_the_experiments_pages_plan_and_table_of_suites_are_true() -> None:
    page = ROOT / "docs" / "experiments.md"
    plan = blocks(page, "toml")[0]
    found = parse_plan(plan.replace("my_package:MyTask-v0", "Pendulum-v1"), where="the page")
    assert [cell.method.name for cell in found.runs] == ["sac", "gentle", "bold"] * 2
    for name in suites():
        row = re.search(rf"\| `{name}` \|.*\| (\d+) \|", page.read_text())
        assert row is not None, f"the page has no suite {name}"
        assert int(row.group(1)) == len(read_suite(name).runs)


# --------------------------------------------------------------- first guide


def test_the_first_guide_takes_at_most_ten_commands() -> None:
    files = blocks(GUIDE, "python")
    assert len(command_lines(GUIDE)) + len(files) <= 10


@pytest.mark.slow
def test_the_first_guide_leads_from_an_empty_folder_to_a_report_of_two_methods(tmp_path: Path) -> None:
    """As printed, but for installing (`make wheel-test` does), fewer steps and episodes, and no browser."""
    shorter = {"--steps": "400", "--seeds": "1"}
    own = "--jobs 2 --final-episodes 2 --set agent.burn_in=300 --set agent.hidden=8,8"
    (tmp_path / "my_task.py").write_text(blocks(GUIDE, "python")[0])
    environment = os.environ | {"PYTHONPATH": str(Path(sasr.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    commands = [words[1:] for words in command_lines(GUIDE) if words[0] == "sasr"]
    assert [words[0] for words in commands] == ["doctor", "compare", "report"]
    for words in commands:
        for flag, value in shorter.items():
            if flag in words:
                words[words.index(flag) + 1] = value
        words = [word for word in words if word != "--open"] + (own.split() if words[0] == "compare" else [])
        done = subprocess.run(
            [sys.executable, "-m", "sasr", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "grid" / "report.html").read_text()
    assert "my_task:" in page
