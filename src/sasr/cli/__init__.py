"""The `sasr` command. A command's modules are imported when it runs: help and version need no torch."""

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

_LONGEST = 2_000  # characters of a message, which may quote a file
PLAIN = (ValueError, TypeError, LookupError, ImportError, OSError)
"""Errors whose message says what is wrong and how to fix it."""
_NO_MEMORY = re.compile("can't allocate memory|out of memory|^Unable to allocate", re.IGNORECASE)  # torch, CUDA, numpy


class Command(NamedTuple):
    """A command's function, and its line in the help."""

    module: str
    function: str
    summary: str

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        module = importlib.import_module(f"sasr.cli.{self.module}")
        function: Callable[..., Any] = getattr(module, self.function)
        return function


COMMANDS = {
    "train": Command(
        "train", "train", "Train an agent on a task; writes a run folder with metrics, checkpoints and plots."
    ),
    "resume": Command("train", "resume", "Continue a stopped or killed run from its newest complete checkpoint."),
    "eval": Command(
        "evaluate",
        "evaluate_run",
        "Evaluate a run's policy at its newest checkpoint; writes eval.json into the run folder.",
    ),
    "export": Command(
        "export", "export", "Export a run's policy and a model card into a folder for sharing; `sasr.load` reads it."
    ),
    "compare": Command(
        "compare", "compare", "Train every method on every task; the same command again resumes what was interrupted."
    ),
    "report": Command("report", "report", "Write an HTML report on runs and results, one file that works offline."),
    "settings": Command(
        "train", "settings", "List the settings for `sasr train --set`, of one agent or shaper or of all."
    ),
    "tune": Command(
        "tune", "tune", "Tune the settings for a task with Optuna; the same command again continues a stopped search."
    ),
    "doctor": Command(
        "doctor", "doctor", "Check whether SASR's shaped reward on a task is signal or noise, and suggest settings."
    ),
    "tasks": Command("tasks", "tasks", "List the tasks, or describe one of them."),
}
OPTIONS = {
    "-h, --help": "Show this help; `sasr COMMAND --help` shows the help of a command.",
    "--version": "Show the version.",
    "--debug": "With any command: show the traceback of an error.",
}


def main() -> None:
    """Run the command line; an error prints one line, and the exit code is 2."""
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
            raise ValueError(f"the argument {word} contains control characters; remove them")
    name, *arguments = words or ["--help"]
    if name in ("-h", "--help"):
        _show_help()
    elif name == "--version":
        print(f"sasr {__version__}")
    elif name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    else:
        import tyro

        tyro.cli(COMMANDS[name].load(), args=arguments, prog=f"sasr {name}")


def _show_help() -> None:
    console = Terminal()
    console.print("usage: sasr COMMAND …\n\nSelf-adaptive success-rate reward shaping for sparse rewards.")
    commands = {name: command.summary for name, command in COMMANDS.items()}
    for title, lines in (("commands", commands), ("options", OPTIONS)):
        table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for line, meaning in lines.items():
            table.add_row(Text(line, "bold"), Text(meaning))
        console.print(table)


def _show_warning(message: Warning | str, category: type[Warning], *place: object, **also: object) -> None:
    """Print a warning on one line, without the place in the code and without control characters."""
    line = " ".join(str(message).splitlines())[:_LONGEST]
    Terminal(stderr=True).print_line(Text.assemble(("sasr: note:", "yellow"), f" {line}"))


def _fail(error: Exception, *, debug: bool) -> NoReturn:
    console = Terminal(stderr=True)
    if debug:
        console.print_line("".join(traceback.format_exception(error)))
    console.print_line(Text.assemble(("sasr:", "bold red"), f" {_in_one_line(error)}"))
    sys.exit(2)


def _in_one_line(error: Exception) -> str:
    message = str(error)
    if isinstance(error, KeyError) and error.args:
        message = str(error.args[0])  # str() of a KeyError adds quotes
    line, _, worker_traceback = message.partition("\n\nThe worker's traceback:")
    line = " ".join(line.splitlines())[:_LONGEST]
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(line)):
        reason = f" ({line})" if line else ""
        return f"not enough memory{reason}; use fewer seeds, smaller networks or a smaller --capacity"
    if isinstance(error, PLAIN) and line:
        return line
    if not worker_traceback:
        place = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{type(error).__name__}: {line or 'no reason given'} ({Path(place.filename).name}, line {place.lineno})"
    return f"{line}; --debug shows the traceback"
