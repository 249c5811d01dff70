"""Ten environments in lockstep: our population beside Gymnasium's Sync- and AsyncVectorEnv, in one run.

python -m benchmarks.environments --label NAME    writes benchmarks/results/environments-NAME.json
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from rich.console import Console

import sasr
from benchmarks.machine import RESULTS, figures_table, machine
from sasr.envs.population import Population
from sasr.tasks.catalogue import full_id

assert sasr


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    task: str = "AntStand"
    """Short name or Gymnasium id, the same for every engine."""
    members: int = 10
    """Environments in lockstep."""
    rounds: int = 200
    """Timed rounds in one repeat; each steps every environment once."""
    repeats: int = 9
    """Repeats; the engines take turns, so that other load on the machine meets all of them."""
    workers: tuple[int, ...] = ()
    """Further populations, with these numbers of workers."""


def population(settings: Settings, workers: int | None) -> tuple[Callable[[Any], Any], Callable[[], None], str]:
    made = Population(settings.task, seeds=range(settings.members), workers=workers)
    made.reset()
    return lambda actions: made.step(actions[:, None]), made.close, f"sasr population, workers: {made.workers}"


def gymnasium_vector(settings: Settings, engine: Any) -> tuple[Callable[[Any], Any], Callable[[], None], str]:
    id = full_id(settings.task)
    made = engine([lambda: gym.make(id)] * settings.members)
    made.reset(seed=0)
    return made.step, made.close, f"gymnasium {engine.__name__}"


def timed(step: Callable[[Any], Any], actions: Any) -> float:
    start = time.perf_counter()
    for each in actions:
        step(each)
    return len(actions) / (time.perf_counter() - start)


def main(settings: Settings) -> None:
    where = machine()
    engines = [gymnasium_vector(settings, SyncVectorEnv), gymnasium_vector(settings, AsyncVectorEnv)]
    engines += [population(settings, workers) for workers in (None, *settings.workers)]
    space = gym.make(full_id(settings.task)).action_space
    space.seed(0)
    actions = np.stack([[space.sample() for _ in range(settings.members)] for _ in range(settings.rounds)])
    speeds: dict[str, list[float]] = {name: [] for _, _, name in engines}
    for step, _, _ in engines:
        timed(step, actions[:20])
    for _ in range(settings.repeats):
        for step, _, name in engines:
            speeds[name].append(timed(step, actions))
            time.sleep(0.02)  # the workers of this engine go to sleep before the next one is timed
    for _, close, _ in engines:
        close()

    medians = {name: statistics.median(each) for name, each in speeds.items()}
    slowest = medians["gymnasium AsyncVectorEnv"]
    columns = ("engine", "rounds/s (median)", "min", "max", "environment steps/s", "x AsyncVectorEnv")
    title = f"{settings.members} x {settings.task}, {where['cores']} cores, {where['processor']}"
    table = figures_table(*columns, title=title)
    for name, each in speeds.items():
        figures = (medians[name], min(each), max(each), medians[name] * settings.members)
        table.add_row(name, *(f"{figure:,.0f}" for figure in figures), f"{medians[name] / slowest:.2f}")
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    result = {"settings": asdict(settings), "machine": where, "rounds_per_second": speeds, "median": medians}
    written = RESULTS / f"environments-{settings.label}.json"
    written.write_text(json.dumps(result, indent=1) + "\n")
    Console().print(f"written: {written.relative_to(RESULTS.parent.parent)}", highlight=False)


if __name__ == "__main__":
    main(tyro.cli(Settings))
