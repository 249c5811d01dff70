"""The `sasr` command."""

from __future__ import annotations

import sys

from rich.text import Text
from tyro.extras import SubcommandApp

from sasr.cli.comparing import compare
from sasr.cli.doctor import doctor, tasks
from sasr.cli.evaluation import evaluate_run
from sasr.cli.reporting import report
from sasr.cli.training import resume, settings, train
from sasr.tasks.vector import PopulationError
from sasr.terminal import Terminal

app = SubcommandApp()
app.command(train)
app.command(resume)
app.command(name="eval")(evaluate_run)
app.command(compare)
app.command(report)
app.command(settings)
app.command(doctor)
app.command(tasks)


def main() -> None:
    """Run the command line; a user's mistake prints one clear line and exits with 2."""
    try:
        app.cli(prog="sasr", description="Self-adaptive success-rate reward shaping for sparse rewards.")
    except (ValueError, TypeError, LookupError, ImportError, OSError, PopulationError) as error:
        # str() of a KeyError has quotes around it, and str() of a system's error has more than its first argument.
        message = str(error) if isinstance(error, OSError) else str(error.args[0] if error.args else error)
        Terminal(stderr=True).print(Text.assemble(("sasr:", "bold red"), f" {message}"), soft_wrap=True)
        sys.exit(2)
