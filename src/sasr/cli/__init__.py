"""The `sasr` command."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

from sasr.cli import doctor, evaluation, training  # noqa: F401  each registers its commands
from sasr.cli.app import app
from sasr.tasks.vector import PopulationError


def main() -> None:
    """Run the command line; a user's mistake prints one clear line and exits with 2."""
    try:
        app.cli(prog="sasr", description="Self-adaptive success-rate reward shaping for sparse rewards.")
    except (ValueError, TypeError, LookupError, ImportError, OSError, PopulationError) as error:
        # str() of a KeyError has quotes around it, and str() of a system's error has more than its first argument.
        message = str(error) if isinstance(error, OSError) else str(error.args[0] if error.args else error)
        Console(stderr=True).print(f"[bold red]sasr:[/] {escape(message)}", highlight=False, soft_wrap=True)
        sys.exit(2)
