"""The `sasr` command."""

from __future__ import annotations

import sys

from rich.console import Console
from tyro.extras import SubcommandApp

app = SubcommandApp()


def main() -> None:
    """Run the command line; a user's mistake prints one clear line and exits with 2."""
    try:
        app.cli(prog="sasr", description="Self-adaptive success-rate reward shaping for sparse rewards.")
    except (ValueError, TypeError, LookupError, ImportError) as error:
        message = error.args[0] if error.args else error
        Console(stderr=True).print(f"[bold red]sasr:[/] {message}", highlight=False)
        sys.exit(2)
