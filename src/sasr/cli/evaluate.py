"""`sasr eval`: the final evaluation of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.table import Table

from sasr.cli.options import AllowImport
from sasr.final_evaluation import evaluate_policy, need_video, record_video, rows, write_evaluation
from sasr.logs.console import with_error
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
    """Evaluate a run's policy at its newest checkpoint; writes eval.json into the run folder.

    Args:
        run: Folder of the run.
        episodes: Episodes of each seed.
        seed: Seed of the episodes.
        deterministic: Act deterministically instead of exploring.
        video: Record an episode of each seed as an mp4 in the run folder.
        device: Device of the policy: cpu or cuda; auto uses CUDA if it is available.
        workers: Processes that step the environments; None chooses by cost and cores.
        allow_import: Modules that the run's task may be imported from, though they are not installed.
    """
    if video:
        need_video()  # before the work, not after it
    console = Terminal()
    damaged: list[str] = []
    policy = load_policy(run, device=device, on_problem=lambda path, why: damaged.append(f"{path.name} ({why})"))
    if damaged:
        names = ", ".join(damaged)
        console.print_line(
            f"older checkpoint: {names} can't be used; this is the one of step {policy.steps:,}", "yellow"
        )
    with console.progress() as progress:
        bar = progress.add_task("evaluating", total=episodes * len(policy.seeds))
        result = evaluate_policy(
            policy,
            episodes=episodes,
            seed=seed,
            deterministic=deterministic,
            workers=workers,
            allow_import=allow_import,
            progress=lambda ended: progress.update(bar, completed=ended),
        )
    console.print_line(f"{run} at step {policy.steps:,}, {episodes} episodes a seed")
    table = Table(box=box.SIMPLE)
    columns = ["return", "length", "success rate"]
    if result.scores.size:
        columns.append("score")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows(policy, result):
        texts = [with_error(*row.ret), with_error(*row.length), with_error(*row.success, share=True)]
        if result.scores.size:
            texts.append(with_error(*row.score))
        table.add_row(row.name, *texts)
    console.print(table)
    console.print_line(str(write_evaluation(policy, result, seed=seed, deterministic=deterministic)))
    if video:
        for index in range(len(policy.seeds)):
            path = record_video(policy, index=index, seed=seed, deterministic=deterministic, allow_import=allow_import)
            console.print_line(str(path))
