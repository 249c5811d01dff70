"""`sasr tasks`: the catalogue as a reader sees it in a terminal."""

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
    """List the tasks, or show the card of one.

    Args:
        name: Short name or id of a task; without one, all tasks are listed.
    """
    Terminal().print(card(name) if name else table())


def missing_extra(task: Task) -> str | None:
    """The line that installs what the task still needs, if anything."""
    if all(importlib.util.find_spec(module) for module in _MODULES[task.extra]):
        return None
    return f'pip install "sasr[{task.extra}]"'


def table() -> RenderableType:
    """All tasks, one a line, and how to install what some of them still need."""
    shown = Table(
        title="Tasks (steps and observation: code profile / paper profile)", title_justify="left", box=box.SIMPLE
    )
    shown.add_column("name", no_wrap=True)
    shown.add_column("steps", no_wrap=True)
    shown.add_column("obs", no_wrap=True)
    shown.add_column("paid when")
    shown.add_column("Table 1", justify="right")
    for task in EVERY:
        shown.add_row(
            task.name,
            _pair(task, lambda variant: str(variant.horizon)),
            _pair(task, lambda variant: _size(variant.observation)),
            task.code.success,
            "" if task.table1 is None else f"{task.table1:g}",
        )
    wanting = {line: task.family for task in EVERY if (line := missing_extra(task))}
    return Group(
        shown,
        *(Text(f"{family} tasks need: {line}") for line, family in wanting.items()),
        Text("Table 1: SASR's row in the paper. `sasr tasks NAME` shows one task."),
    )


def card(name: str) -> RenderableType:
    """One task in full."""
    task = find(name)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    installed = f"sasr[{task.extra}], which is installed" if task.extra else "nothing more"
    needs = missing_extra(task) or installed
    lines = [
        ("action", _action(task)),
        ("Table 1", "not in the paper" if task.table1 is None else f"{task.table1:g} (SASR)"),
        ("needs", needs),
    ]
    if task.note:
        lines.append(("note", task.note))
    for id, variant in task.variants().items():
        profile = "paper" if id == task.paper_id else "code"
        lines += [
            ("", ""),
            (f"{profile} profile", f'gymnasium.make("{id}")   after   import sasr'),
            ("paid when", variant.success),
            ("ends", variant.ends),
            ("limit", f"{variant.horizon} steps"),
            ("observation", _size(variant.observation)),
        ]
    for label, fact in lines:
        facts.add_row(label, Text(fact))  # Text, because square brackets are markup in a plain string
    return Panel(facts, title=task.name, expand=False)


def _pair(task: Task, shown: Callable[[Variant], str]) -> str:
    code = shown(task.code)
    paper = shown(task.paper) if task.paper else code
    return code if code == paper else f"{code} / {paper}"


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _action(task: Task) -> str:
    if isinstance(task.action, int):
        return f"{task.action} discrete"
    return f"{_size(task.action)} in ±{task.action_bound:g}"
