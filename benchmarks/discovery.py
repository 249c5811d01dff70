"""Who finds the goal of TwoRooms: every reward shaper and none, ten seeds of each as one population.

python -m benchmarks.discovery --label 2-cores
"""

from __future__ import annotations

import functools
import multiprocessing
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine, save
from sasr.agents import SacConfig
from sasr.shaping.registry import NONE, SHAPERS
from sasr.training import TrainConfig, Trainer


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    shapers: tuple[str, ...] = (NONE, *SHAPERS)
    """Names of the reward shapers, each with its default settings."""
    seeds: int = 10
    """Members of each population."""
    first_seed: int = 0
    """The first of them; the shapers' defaults were chosen with an eye on runs of seeds 0 to 3."""
    steps: int = 20_000
    """Environment steps of each seed."""
    hidden: int = 64
    """Units in each hidden layer of the agent, and of the shapers that have networks."""
    batch_size: int = 64
    """Transitions of each seed in an update."""
    burn_in: int = 1_000
    """Steps with random actions."""
    temperature_lr: float = 1e-2
    """With the paper's 1e-4 the temperature stays near 1 for as long as this benchmark lasts, and nothing but entropy
    is sought."""
    workers: int = 2
    """Processes; each trains one shaper's population at a time."""
    device: str = "cpu"
    """Where the agents learn."""


def train(shaper: str, settings: Settings, **options: Any) -> dict[str, Any]:
    width = settings.hidden
    agent = SacConfig(
        hidden=(width, width),
        batch_size=settings.batch_size,
        burn_in=settings.burn_in,
        temperature_lr=settings.temperature_lr,
        critic_lr=1e-3,
        actor_lr=1e-3,
    )
    known = set() if shaper == NONE else {field.name for field in fields(SHAPERS[shaper].config)}
    if "hidden" in known:
        options = {"hidden": (width, width)} | options
    elif "width" in known:
        options = {"width": width} | options
    config = TrainConfig(
        task="TwoRooms",
        agent="sac",
        agent_config=agent,
        shaper=shaper,
        shaper_config=SHAPERS[shaper].config(**options) if options else None,
        seeds=tuple(range(settings.first_seed, settings.first_seed + settings.seeds)),
        steps=settings.steps,
        workers=0,
        device=settings.device,
    )
    first: list[int | None] = [None] * settings.seeds
    goals, crossed = np.zeros(settings.seeds, int), np.full(settings.seeds, settings.steps)
    began = time.process_time()
    with Trainer(config) as trainer:
        for _ in range(settings.steps):
            for episode in trainer.loop.turn():
                if episode.success:
                    goals[episode.member] += 1
                    first[episode.member] = first[episode.member] or trainer.loop.steps
            crossed = np.where(trainer.loop.obs[:, 0, 0] > 1.0, np.minimum(crossed, trainer.loop.steps), crossed)
        figures = {name: [round(v, 5) for v in value.tolist()] for name, value in trainer.loop.figures.items()}
    return {
        "shaper": shaper,
        "options": options,
        "first_goal": first,
        "first_crossing": [int(step) if step < settings.steps else None for step in crossed],
        "goals": goals.tolist(),
        "cpu_seconds": round(time.process_time() - began, 1),
        "last_figures": figures,
    }


def _one_thread() -> None:
    torch.set_num_threads(1)


def main(settings: Settings) -> None:
    where, runs = machine(), []
    with multiprocessing.get_context("spawn").Pool(settings.workers, _one_thread) as pool:
        found = pool.imap_unordered(functools.partial(train, settings=settings), settings.shapers)
        for run in track(found, total=len(settings.shapers), description="training"):
            runs = sorted([*runs, run], key=lambda each: settings.shapers.index(each["shaper"]))
            path = save(f"discovery-{settings.label}", {"settings": asdict(settings), "runs": runs}, where)
    table = Table(title=f"TwoRooms, {settings.seeds} seeds, {settings.steps:,} steps of each")
    for column in ("shaper", "found the other room", "found the goal", "first time, median step", "goals a seed"):
        table.add_column(column, justify="left" if column == "shaper" else "right")
    for run in runs:
        found = [step for step in run["first_goal"] if step is not None]
        crossed = sum(step is not None for step in run["first_crossing"])
        median = f"{np.median(found):,.0f}" if found else "never"
        table.add_row(
            run["shaper"],
            f"{crossed} of {settings.seeds}",
            f"{len(found)} of {settings.seeds}",
            median,
            f"{np.mean(run['goals']):.1f}",
        )
    console = Console()
    console.print(table)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(tyro.cli(Settings))
