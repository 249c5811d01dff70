"""`sasr tasks`: the catalogue of tasks as a table, or one task as a card."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Annotated

import tyro
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sasr.tasks.catalogue import EVERY, Task, Variant, find
from sasr.terminal import Terminal

_MODULES = {
    "mujoco": ("mujoco",),
    "robotics": ("mujoco", "gymnasium_robotics"),
    "atari": ("ale_py",),
    "classic": (),
    "": (),
}


def tasks(name: Annotated[str, tyro.conf.Positional] = "") -> None:
    """List the tasks, or describe one of them.

    Args:
        name: Short name or id of a task; without it all tasks are listed.
    """
    Terminal().print(card(name) if name else table())


def missing_extra(task: Task) -> str | None:
    """The command that installs the task's missing dependencies; None if there are none."""
    if all(importlib.util.find_spec(module) for module in _MODULES[task.extra]):
        return None
    return f'pip install "sasr[{task.extra}]"'


def table() -> RenderableType:
    """All tasks, one a line, and how to install missing dependencies."""
    shown = Table(
        title="Tasks (limit and observation: code profile / paper profile)", title_justify="left", box=box.SIMPLE
    )
    shown.add_column("name", no_wrap=True)
    shown.add_column("limit", no_wrap=True)
    shown.add_column("obs", no_wrap=True)
    shown.add_column("rewarded when")
    shown.add_column("Table 1", justify="right")
    missing: dict[str, str] = {}
    for task in EVERY:
        shown.add_row(
            task.name,
            _both_profiles(task, lambda variant: str(variant.horizon)),
            _both_profiles(task, lambda variant: _size(variant.observation)),
            task.code.success,
            "" if task.table1 is None else f"{task.table1:g}",
        )
        command = missing_extra(task)
        if command:
            missing[command] = f"{task.family} tasks need: {command}"
    end = "Table 1: SASR's row in the paper. `sasr tasks NAME` shows one task."
    return Group(shown, *map(Text, missing.values()), Text(end))


def card(name: str) -> RenderableType:
    """One task in full."""
    task = find(name)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    needs = missing_extra(task) or "nothing more"
    if task.extra and missing_extra(task) is None:
        needs = f"sasr[{task.extra}], which is installed"
    table1 = "not in the paper"
    if task.table1 is not None:
        table1 = f"{task.table1:g} (SASR)"
    lines = [("action", _action(task)), ("Table 1", table1), ("needs", needs)]
    if task.note:
        lines.append(("note", task.note))
    for id, variant in task.variants().items():
        profile = "code"
        if id == task.paper_id:
            profile = "paper"
        lines += [
            ("", ""),
            (f"{profile} profile", f'gymnasium.make("{id}")   after   import sasr'),
            ("rewarded when", variant.success),
            ("ends", variant.ends),
            ("limit", f"{variant.horizon} steps"),
            ("run", f"{variant.steps:,} steps, unless --steps gives another number"),
            ("observation", _size(variant.observation)),
        ]
    for label, fact in lines:
        facts.add_row(label, Text(fact))  # Text, because square brackets are markup in a plain string
    return Panel(facts, title=task.name, expand=False)


def _both_profiles(task: Task, describe: Callable[[Variant], str]) -> str:
    texts = [describe(task.code)]
    if task.paper and describe(task.paper) not in texts:
        texts.append(describe(task.paper))
    return " / ".join(texts)


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _action(task: Task) -> str:
    if isinstance(task.action, int):
        return f"{task.action} discrete"
    return f"{_size(task.action)} in ±{task.action_bound:g}"
