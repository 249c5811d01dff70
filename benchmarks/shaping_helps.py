"""Does shaping help? Learning curves of presets of SASR and of the plain agent on one task, seeds as one population.

python -m benchmarks.shaping_helps --task MountainCar --steps 60000 --seeds 10 --device cuda
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.machine import machine, save
from sasr.training import TrainConfig, Trainer
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Silent


@dataclass(frozen=True)
class Settings:
    task: str = "MountainCar"
    """Task or Gymnasium id."""
    methods: tuple[str, ...] = ("auto", "none")
    """Presets of SASR; none is the plain agent."""
    seeds: int = 5
    """Members of the population: seeds 0, 1, …"""
    steps: int = 60_000
    """Steps of each seed."""
    evaluations: int = 20
    """How many evaluations a run has."""
    eval_episodes: int = 10
    """Episodes of each seed in an evaluation."""
    solved: float | None = None
    """An evaluation return that counts as solved; the table then says how many seeds ended there."""
    device: str = "auto"
    """Where the agents learn."""
    label: str = "local"
    """Ends the name of the result file; say which machine."""


class Curves(Silent):
    """Remembers what each seed earned, in training and in evaluations."""

    def __init__(self, seeds: int, progress: Progress, bar: Any) -> None:
        self.training: list[list[tuple[int, float]]] = [[] for _ in range(seeds)]
        self.evaluations: list[tuple[int, list[float], list[float]]] = []
        self.first_success: list[int | None] = [None] * seeds
        self.progress, self.bar = progress, bar

    def turned(self, steps: int) -> None:
        if steps % 100 == 0:
            self.progress.update(self.bar, completed=steps)

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        for episode in ended:
            self.training[episode.member].append((steps, episode.ret))
            if episode.success and self.first_success[episode.member] is None:
                self.first_success[episode.member] = steps

    def evaluation(self, steps: int, result: Evaluation) -> None:
        self.evaluations.append((steps, result.returns.mean(1).tolist(), result.success.mean(1).tolist()))


def run(settings: Settings, method: str, progress: Progress) -> dict[str, Any]:
    bar = progress.add_task(f"{settings.task} {method}", total=settings.steps)
    recorder = Curves(settings.seeds, progress, bar)
    config = TrainConfig(
        task=settings.task,
        shaper="none" if method == "none" else "sasr",
        preset="auto" if method == "none" else method,
        seeds=tuple(range(settings.seeds)),
        steps=settings.steps,
        device=settings.device,
        eval_every=settings.steps // settings.evaluations,
        eval_episodes=settings.eval_episodes,
        log_every=10**9,
    )
    start = time.perf_counter()
    with Trainer(config, recorder=recorder) as trainer:
        if not trainer.run():
            raise SystemExit(
                f"{method} was stopped after {trainer.loop.steps:,} steps; the methods before it are saved"
            )
    # Episodes end at different moments, so a seed's return at a step is the mean of its last ten until then.
    grid = [step for step, _, _ in recorder.evaluations]
    recent = [[_mean([value for at, value in own if at <= step][-10:]) for step in grid] for own in recorder.training]
    return {
        "seconds": time.perf_counter() - start,
        "steps": grid,
        "evaluation": [returns for _, returns, _ in recorder.evaluations],  # by step, then seed
        "success": [success for _, _, success in recorder.evaluations],
        "training": recent,  # by seed, then step
        "first_success": recorder.first_success,
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def with_error(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    error = statistics.stdev(known) / len(known) ** 0.5 if len(known) > 1 else 0.0
    return f"{statistics.mean(known):.2f} ± {error:.2f}"


def main(settings: Settings) -> None:
    told, console = machine(), Console()
    found: dict[str, Any] = {}
    with Progress(console=console) as progress:
        for method in settings.methods:
            found[method] = run(settings, method, progress)
            figures = {"settings": asdict(settings), "methods": found}
            save(f"shaping_helps-{settings.task}-{settings.label}", figures, told)  # what is done is kept
    quarters = [settings.evaluations * part // 4 - 1 for part in (1, 2, 3, 4)]
    table = Table(title=f"{settings.task}: evaluation return, mean ± standard error of {settings.seeds} seeds")
    table.add_column("method")
    for index in quarters:
        table.add_column(f"{found[settings.methods[0]]['steps'][index]:,} steps", justify="right")
    for heading in ("training return at the end", "seeds ever rewarded", "solved at the end", "steps/s"):
        table.add_column(heading, justify="right")
    for method, own in found.items():
        last = own["evaluation"][-1]
        solved = "" if settings.solved is None else f"{sum(v >= settings.solved for v in last)} of {settings.seeds}"
        table.add_row(
            method,
            *(with_error(own["evaluation"][index]) for index in quarters),
            with_error([curve[-1] for curve in own["training"]]),
            f"{sum(step is not None for step in own['first_success'])} of {settings.seeds}",
            solved,
            f"{settings.seeds * settings.steps / own['seconds']:,.0f}",
        )
    console.print(table)


if __name__ == "__main__":
    main(tyro.cli(Settings))
