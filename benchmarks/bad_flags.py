"""Every flag of every command with five values that it can't mean anything by: is the answer one line?

python -m benchmarks.bad_flags --label NAME   writes benchmarks/results/bad_flags-NAME.json
"""

from __future__ import annotations

import contextlib
import inspect
import shutil
import tempfile
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import torch
import tyro
from rich.console import Console

import sasr
from benchmarks.caught import Outcome, call, count, in_a_fork, nothing_left, side_by_side, table_of, unfinished_files
from benchmarks.machine import machine, save
from sasr.agents import SacConfig
from sasr.cli import COMMANDS

BAD = ("", "-1", "nan", "1" + "0" * 40, "[/]:boom:")
TINY = {"steps": "60", "eval-every": "0", "set": "agent.hidden=8,8"}
SMALL = ["--set", "agent.burn_in=40", "--set", "agent.batch_size=16"]
WORDS = {
    **dict.fromkeys(("train", "doctor"), "Pendulum-v1"),
    "tune": "CartPole-v1",  # whose episodes are short, and a search evaluates often
    **dict.fromkeys(("resume", "eval", "export", "report"), "run"),
}
"""What stands behind a command where the bad value is not in that place."""
FLAGS = {
    "train": {**TINY, "workers": "0", "device": "cpu", "out": "new"},
    "eval": {"episodes": "1", "workers": "0"},
    "compare": {**TINY, "tasks": "Pendulum-v1", "methods": "sac", "on": "inline", "final-episodes": "1"},
    "tune": {"steps": "60", "set": "agent.hidden=8,8", "trials": "1", "seeds": "1", "workers": "0", "device": "cpu"},
    "export": {"to": "new"},
    "doctor": {"steps": "500"},
}
"""And the flags that make it quick."""


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    limit: int = 60
    """Seconds that a command may take."""
    jobs: int = 1
    """Commands that are tried at a time."""


def flags_of(command: str) -> dict[str, bool]:
    """Names of a command's parameters, and whether they are words without a flag."""
    flags: dict[str, bool] = {}
    for name, parameter in inspect.signature(COMMANDS[command].load(), eval_str=True).parameters.items():
        group = (get_args(parameter.annotation) or (parameter.annotation,))[0]
        hints = {name: parameter.annotation}
        if is_dataclass(group):
            hints = get_type_hints(group, include_extras=True)
        for flag, hint in hints.items():
            marks = get_args(hint)[1:]
            shown_name = next((mark.name for mark in marks if getattr(mark, "name", None)), flag)
            flags[shown_name.replace("_", "-")] = tyro.conf.Positional in marks
    return flags


def words_with(command: str, flag: str, value: str, *, positional: bool) -> list[str]:
    words = [command]
    if positional:
        words.append(value)
    elif command in WORDS:
        words.append(WORDS[command])
    for name, usual in FLAGS.get(command, {}).items():
        if name != flag:
            words += [f"--{name}", usual]
    if command in ("train", "compare", "tune"):
        words += SMALL
    if command in ("train", "compare"):
        words += ["--no-tensorboard"]
    if not positional:
        words += [f"--{flag}", value]
    return words


def finished_run(place: Path) -> Path:
    small = SacConfig(hidden=(8,), burn_in=40, batch_size=16)
    options: dict[str, Any] = {"workers": 0, "eval_every": 0, "progress": False, "events": False}
    return sasr.train("Pendulum-v1", agent=small, steps=60, out=place / "run", **options).folder


def run_command(words: list[str], limit: int, run: Path) -> tuple[Outcome | None, int]:
    """The outcome in a fork, so that no flag changes anything for the next one; None where it did not end.

    And how many files it left unfinished.
    """

    def work() -> tuple[Outcome, int]:
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            shutil.copytree(run, "run")
            return call(words, limit=limit), unfinished_files(Path(name))

    return in_a_fork(work, limit=limit + 10) or (None, 0)


class Case(NamedTuple):
    """A flag with a bad value."""

    command: str
    flag: str
    value: str
    words: list[str]


def main(settings: Settings) -> None:
    torch.set_num_threads(1)
    where, left = machine(), dict[str, Any]()
    cases = []
    for command in COMMANDS:
        for flag, positional in flags_of(command).items():
            for value in BAD:
                cases.append(Case(command, flag, value, words_with(command, flag, value, positional=positional)))
    with tempfile.TemporaryDirectory() as name, nothing_left(left):
        run = finished_run(Path(name))
        for command in COMMANDS:
            good, _ = run_command(words_with(command, "", "", positional=False)[:-2], settings.limit, run)
            if good is None or good.code not in (0, 1):
                raise SystemExit(f"sasr {command} does not work without a bad flag either: {good}")
        attempt = partial(run_command, limit=settings.limit, run=run)
        answers = side_by_side(attempt, [case.words for case in cases], settings.jobs)
    left["partial_files_left"] = sum(unfinished for _, unfinished in answers)
    outcomes = [(case, outcome) for case, (outcome, _) in zip(cases, answers, strict=True)]
    counts = {}
    for command in COMMANDS:
        tries = [(case, outcome) for case, outcome in outcomes if case.command == command]
        ended = [outcome for _, outcome in tries if outcome is not None]
        counts[command] = {
            "flags": len({case.flag for case, _ in tries}),
            "commands": len(tries),
            "accepted": sum(outcome.code in (0, 1) for outcome in ended),
            "hangs": len(tries) - len(ended),
            **count(ended),
        }
    console = Console(width=140)
    console.print(table_of(counts))
    odd: list[dict[str, Any]] = []
    accepted, seconds = [], []
    for case, outcome in outcomes:
        if outcome is None:
            odd.append({"words": case.words, "output": "did not end", "code": None})
            continue
        seconds.append(outcome.seconds)
        if outcome.is_odd or outcome.code not in (0, 1, 2):
            odd.append({"words": case.words, "output": outcome.output[-300:], "code": outcome.code})
        if outcome.code in (0, 1):
            accepted.append(f"{case.command} --{case.flag} {case.value!r}")
    for trial in odd:
        console.print(trial)
    console.print(f"left behind: {left}")
    result = {"settings": asdict(settings), "commands": counts, "slowest": max(seconds), "left_behind": left}
    result |= {"odd": odd, "accepted": accepted}
    save(f"bad_flags-{settings.label}", result, where)


if __name__ == "__main__":
    main(tyro.cli(Settings))
