"""The `sasr` command. What a command needs is imported when it runs: help and version come without torch."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rich import box
from rich.table import Table
from rich.text import Text

from sasr import __version__
from sasr.errors import unknown_name
from sasr.terminal import Terminal, harmless

_LONGEST = 2_000  # characters of a message: it may quote what was found in a file
PLAIN = (ValueError, TypeError, LookupError, ImportError, OSError)
"""Errors whose message says all: what is wrong, and what to do."""
_NO_MEMORY = re.compile("can't allocate memory|out of memory|^Unable to allocate", re.IGNORECASE)  # torch, CUDA, numpy


class Command(NamedTuple):
    """Where a command is, and what it does."""

    module: str
    function: str
    summary: str

    def load(self) -> Callable[..., Any]:
        """The function itself."""
        found: Callable[..., Any] = getattr(importlib.import_module(f"sasr.cli.{self.module}"), self.function)
        return found


COMMANDS = {
    "train": Command(
        "train",
        "train",
        "Train an agent on a task; ends with a run folder that has metrics, checkpoints and pictures.",
    ),
    "resume": Command(
        "train", "resume", "Go on with a run that was stopped or killed, from its newest whole checkpoint."
    ),
    "eval": Command(
        "evaluate",
        "evaluate_run",
        "Play many episodes with a run's policy at its newest checkpoint; the result is kept in the run as eval.json.",
    ),
    "export": Command(
        "export", "export", "Write a run's policy with a model card into a folder that can be shared and loaded."
    ),
    "compare": Command(
        "compare",
        "compare",
        "Train every method on every task; the same command again continues runs that were interrupted.",
    ),
    "report": Command(
        "report", "report", "Write one HTML page about runs and results, which opens from disk, offline."
    ),
    "settings": Command(
        "train", "settings", "List what `sasr train --set` can set: of one agent or shaper, or of all."
    ),
    "tune": Command(
        "tune", "tune", "Search settings that suit a task; the same command again goes on where it was stopped."
    ),
    "doctor": Command(
        "doctor",
        "doctor",
        "Tell whether the shaped reward on an environment would be signal or noise, and what to change.",
    ),
    "tasks": Command("tasks", "tasks", "List the tasks, or show the card of one."),
}
OPTIONS = {
    "-h, --help": "Show this help; `sasr COMMAND --help` shows a command's.",
    "--version": "Show the version.",
    "--debug": "With any command: where something goes wrong, show the traceback.",
}


def main() -> None:
    """Run the command line; a mistake prints one clear line and exits with 2, whoever made it."""
    words = sys.argv[1:]
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            _run(words)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        _fail(error, debug=debug)


def _run(words: list[str]) -> None:
    for word in words:
        if harmless(word) != word:
            raise ValueError(f"the argument {word} has control characters in it; leave them out")
    name, rest = (words[0], words[1:]) if words else ("--help", [])
    if name in ("-h", "--help"):
        _show_help()
    elif name == "--version":
        print(f"sasr {__version__}")
    elif name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    else:
        import tyro

        tyro.cli(COMMANDS[name].load(), args=rest, prog=f"sasr {name}")


def _show_help() -> None:
    console = Terminal()
    console.print("usage: sasr COMMAND …\n\nSelf-adaptive success-rate reward shaping for sparse rewards.")
    named = {name: command.summary for name, command in COMMANDS.items()}
    for title, lines in (("commands", named), ("options", OPTIONS)):
        table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for line, meaning in lines.items():
            table.add_row(Text(line, "bold"), Text(meaning))
        console.print(table)


def _show_warning(message: Warning | str, category: type[Warning], *place: object, **also: object) -> None:
    """One line, where Python's own has the place in the code, and lets control characters through."""
    line = " ".join(str(message).splitlines())[:_LONGEST]
    Terminal(stderr=True).print(Text.assemble(("sasr: note:", "yellow"), f" {line}"), soft_wrap=True)


def _fail(error: Exception, *, debug: bool) -> NoReturn:
    console = Terminal(stderr=True)
    if debug:
        console.print("".join(traceback.format_exception(error)), highlight=False, markup=False, soft_wrap=True)
    console.print(Text.assemble(("sasr:", "bold red"), f" {_in_one_line(error)}"), soft_wrap=True)
    sys.exit(2)


def _in_one_line(error: Exception) -> str:
    # str() of a KeyError has quotes around it, and str() of a system's error has more than its first argument.
    message = str(error) if isinstance(error, OSError) else str(error.args[0] if error.args else "")
    line, _, more = message.partition("\n\nThe worker's traceback:")
    line = " ".join(line.splitlines())[:_LONGEST]
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(line)):
        reason = f" ({line})" if line else ""
        return f"there is not enough memory{reason}; take fewer seeds, smaller networks or a smaller --capacity"
    if isinstance(error, PLAIN) and line:
        return line
    if not more:
        place = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{type(error).__name__}: {line or 'no reason given'} ({Path(place.filename).name}, line {place.lineno})"
    return f"{line}; --debug shows the traceback"
