"""What somebody else's run folder can make the commands do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from sasr.agents import SacConfig
from tests.cli.commands import run


@pytest.fixture
def their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder with a task in it; importing it leaves a file called `ran`."""
    source = (
        "import pathlib, gymnasium\n"
        f"pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "gymnasium.register('Theirs-v0', gymnasium.spec('Pendulum-v1').entry_point, max_episode_steps=20)\n"
    )
    (tmp_path / "their_tasks.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.delitem(sys.modules, "their_tasks", raising=False)
    return "their_tasks"


@pytest.mark.parametrize("command", ["eval", "resume"])
def test_nothing_that_a_run_folder_names_is_imported_unasked(
    command: str,
    their_module: str,
    copied: Path,
    change_config: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    change_config(task=f"{their_module}:Theirs-v0", steps=600)
    code, output = run(capsys, command, str(copied))
    assert code == 2
    assert f"--allow-import {their_module}" in output
    assert not (tmp_path / "ran").exists()


def test_the_flag_that_the_message_names_allows_it(
    their_module: str,
    copied: Path,
    change_config: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    change_config(task=f"{their_module}:Theirs-v0")
    flags = ("--episodes", "1", "--workers", "0", "--allow-import", their_module)
    code, output = run(capsys, "eval", str(copied), *flags)
    assert code == 0, output
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "curve.png", "checkpoints", "eval.json"])
@pytest.mark.parametrize("command", ["eval", "resume"])
def test_a_run_folder_that_leads_elsewhere_is_refused(
    name: str, command: str, copied: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("untouched")
    if (copied / name).exists():
        (copied / name).rename(copied / "before")
    (copied / name).symlink_to(theirs)
    code, output = run(capsys, command, str(copied))
    assert code == 2
    assert f"{copied / name} is a link" in output
    assert theirs.read_text() == "untouched"


def test_names_in_a_run_folder_do_not_steer_the_terminal(
    copied: Path, change_config: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(task="\x1b[2J[/bold]:boom:", steps=600)
    for command in ("eval", "resume", "report"):
        code, output = run(capsys, command, str(copied))
        assert "\x1b" not in output
        assert "Traceback" not in output
        assert code == (0 if command == "report" else 2)


NESTED = asdict(SacConfig()) | {"hidden": [[8]]}


@pytest.mark.parametrize(
    "setting",
    [{"discount": "x"}, {"steps": 1.5}, {"seeds": [0, 1.5]}, {"agent_config": NESTED}, {"agent_config": 3}],
    ids=["discount", "steps", "seeds", "hidden", "agent"],
)
def test_a_setting_of_another_type_is_named(
    setting: dict, copied: Path, change_config: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(**setting)
    for command in ("eval", "resume"):
        code, output = run(capsys, command, str(copied))
        assert code == 2
        assert "changed by hand" in output
        assert "--debug" not in output
