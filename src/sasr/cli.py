"""The `sasr` command."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.extras import SubcommandApp

from sasr.tasks import cards

app = SubcommandApp()


@app.command
def tasks(name: Annotated[str, tyro.conf.Positional] = "") -> None:
    """List the tasks, or show the card of one.

    Args:
        name: Short name or id of a task; without one, all tasks are listed.
    """
    Console().print(cards.card(name) if name else cards.table())


def main() -> None:
    """Run the command line; a user's mistake prints one clear line and exits with 2."""
    try:
        app.cli(prog="sasr", description="Self-adaptive success-rate reward shaping for sparse rewards.")
    except (ValueError, TypeError, LookupError, ImportError) as error:
        message = error.args[0] if error.args else error
        Console(stderr=True).print(f"[bold red]sasr:[/] {escape(str(message))}", highlight=False, soft_wrap=True)
        sys.exit(2)
