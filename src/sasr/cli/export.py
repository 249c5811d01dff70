"""`sasr export`: a folder with a run's policy, for sharing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from sasr.sharing import check_hub, export_run, push_to_hub
from sasr.terminal import Terminal


def export(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    *,
    to: Path,
    push_to_hub_as: Annotated[str, tyro.conf.arg(name="push-to-hub", metavar="OWNER/MODEL")] = "",
    private: bool = False,
) -> None:
    """Export a run's policy and a model card into a folder for sharing; `sasr.load` reads it.

    Args:
        run: Folder of the run.
        to: The new folder.
        push_to_hub_as: Also upload it to the Hugging Face Hub under this name.
        private: Make a new model on the hub visible to you alone.
    """
    if private and not push_to_hub_as:
        raise ValueError("--private needs --push-to-hub OWNER/MODEL; add it, or leave --private out")
    if push_to_hub_as:
        check_hub(push_to_hub_as)  # before the work, not after it
    console = Terminal()
    console.print_line(str(export_run(run, to)))
    if push_to_hub_as:
        console.print_line(push_to_hub(to, push_to_hub_as, private=private))
