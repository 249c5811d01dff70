"""`sasr eval`: how good a trained run is."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sasr.cli.options import AllowImport
from sasr.final_evaluation import INSTALL, evaluate_policy, film, rows, write_judgement
from sasr.logs.console import number
from sasr.policy import load_policy
from sasr.terminal import Terminal


def evaluate_run(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    *,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    video: bool = False,
    device: str = "cpu",
    workers: int | None = None,
    allow_import: AllowImport = [],  # noqa: B006  tyro's way to say "none given"; never changed
) -> None:
    """Play many episodes with a run's policy at its newest checkpoint; the result is kept in the run as eval.json.

    Args:
        run: Folder of the run.
        episodes: Episodes of each seed.
        seed: Another seed plays other episodes.
        deterministic: Take the best actions known, instead of exploring ones.
        video: Film an episode of each seed as an mp4 in the run's folder.
        device: Where the policy runs: cpu, cuda, …; auto takes CUDA where there is one.
        workers: Processes that step the environments; None chooses by cost and cores.
        allow_import: Modules that the run's task may be imported from, though they are not installed.
    """
    if video and not (importlib.util.find_spec("imageio") and importlib.util.find_spec("imageio_ffmpeg")):
        raise ImportError(INSTALL)  # before the work, not after it
    console = Terminal()
    newer: list[str] = []
    policy = load_policy(run, device=device, on_problem=lambda path, why: newer.append(f"{path.name} ({why})"))
    if newer:
        line = f"older checkpoint: {', '.join(newer)} can't be used; this is the one of step {policy.steps:,}"
        console.print(Text(line, "yellow"), soft_wrap=True)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("playing", total=episodes * len(policy.seeds))
        result = evaluate_policy(
            policy,
            episodes=episodes,
            seed=seed,
            deterministic=deterministic,
            workers=workers,
            allow_import=allow_import,
            progress=lambda ended: progress.update(bar, completed=ended),
        )
    console.print(
        f"{run} at step {policy.steps:,}, {episodes} episodes a seed", highlight=False, markup=False, soft_wrap=True
    )
    table = Table(box=box.SIMPLE)
    for column in ("", "return", "length", "success rate"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for row in rows(policy, result):
        table.add_row(row.name, _with_error(*row.ret), _with_error(*row.length), _with_error(*row.success, share=True))
    console.print(table)
    kept = [write_judgement(policy, result, seed=seed, deterministic=deterministic)]
    if video:
        for member in range(len(policy.seeds)):
            kept.append(film(policy, member=member, seed=seed, deterministic=deterministic, allow_import=allow_import))
    for path in kept:
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)


def _with_error(mean: float, error: float, *, share: bool = False) -> str:
    write = "{:.0%}".format if share else number
    return write(mean) + ("" if math.isnan(error) else f" ± {write(error)}")
