"""End-to-end training speed, side by side in one run: SASR on SAC, plain SAC, and Stable-Baselines3's SAC.

python -m benchmarks.throughput --label 2-cores --task Ant-v5
python -m benchmarks.throughput --label h200 --task AntStand --seeds 10 --device cuda
python -m benchmarks.throughput --goals --device cuda       all that we aim at, beside what was measured: three minutes
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import torch
import tyro
from rich.console import Console
from rich.table import Table

import sasr
from benchmarks.machine import figures_table, machine, save
from sasr.agents import SacConfig
from sasr.settings import Mode
from sasr.shaping.presets import preset_config
from sasr.tasks.catalogue import full_id
from sasr.training import TrainConfig, Trainer
from sasr.training.fast.compiled import has_bf16

assert sasr
BURN_IN = 2_000
SASR, WEIGHT_0, BF16, SAC = "SASR on SAC", "SASR of weight 0", "SASR on SAC, bf16", "SAC"
SB3 = "Stable-Baselines3 SAC, one seed"


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    task: str = "Ant-v5"
    """Task or Gymnasium id, the same for every contender."""
    seeds: int = 1
    """Members of our population; Stable-Baselines3 trains one seed."""
    device: str = "cpu"
    """Where all of them learn."""
    seconds: float = 5.0
    """Length of one timed stretch."""
    repeats: int = 5
    """Stretches of each contender; they take turns, so that other load on the machine meets all of them."""
    accelerate: Mode = "auto"
    """How our updates run."""
    estimator: Literal["linear", "squared"] = "linear"
    """How SASR counts: linear or squared."""
    sb3: bool = True
    """Run Stable-Baselines3 too."""
    goals: bool = False
    """Measure what we aim at on the device, task by task, in stretches of 2 seconds; task and seeds are given then."""


class Contender(NamedTuple):
    run: Callable[[], Any]
    steps: int  # seed-steps of one call of `run`
    close: Callable[[], None]


class Goal(NamedTuple):
    """A ratio, or seed-steps per second, and the least that it should be."""

    what: str
    measured: float
    least: float


def contender(name: str, settings: Settings) -> Contender:
    if name == SB3:
        return theirs(settings)
    options: dict[str, Any] = {"estimator": settings.estimator}
    if name == WEIGHT_0:  # all the work of SASR with the behaviour of SAC: a step of the simulator costs what it does
        options["reward_weight"] = 0.0
    changes: dict[str, Any] = {"shaper_config": preset_config("auto", **options)}
    if name == SAC:
        changes = {"shaper": "none"}
    if name == BF16:
        changes["precision"] = "bf16"
    config = TrainConfig(
        task=settings.task,
        seeds=tuple(range(settings.seeds)),
        steps=10**9,
        capacity=200_000 if settings.seeds < 50 else 100_000,
        device=settings.device,
        accelerate=settings.accelerate,
        agent_config=SacConfig(burn_in=BURN_IN),
        agent="sac",
        **changes,
    )
    trainer = Trainer(config)
    trainer.loop.run(BURN_IN + 50)
    return Contender(trainer.loop.turn, settings.seeds, trainer.close)


def theirs(settings: Settings) -> Contender:
    import stable_baselines3

    env = gym.make(full_id(settings.task))
    model = stable_baselines3.SAC(
        "MlpPolicy", env, learning_starts=BURN_IN, buffer_size=200_000, device=settings.device, seed=0
    )
    model.learn(BURN_IN + 20)

    def some() -> None:
        model.learn(20, reset_num_timesteps=False)

    return Contender(some, 20, env.close)


def timed(turn: Callable[[], Any], steps: int, seconds: float) -> float:
    """Seed-steps per second over about that many seconds."""
    start, turns = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        turn()
        turns += 1
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return turns * steps / (time.perf_counter() - start)


def race(names: Sequence[str], settings: Settings) -> dict[str, list[float]]:
    """Seed-steps per second in each stretch of each contender; a table of them is printed."""
    contenders = {name: contender(name, settings) for name in names}
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(settings.repeats):
        for name, (turn, steps, _) in contenders.items():
            timed(turn, steps, 0.2)
            speeds[name].append(timed(turn, steps, settings.seconds))
    for _, _, close in contenders.values():
        close()
    columns = ("contender", "seed-steps/s (median)", "min", "max", f"x {names[0]}")
    table = figures_table(*columns, title=f"{settings.task}, {settings.seeds} seeds, {settings.device}")
    medians = medians_of(speeds)
    for name, each in speeds.items():
        ratio = medians[name] / medians[names[0]]
        table.add_row(name, *(f"{figure:,.0f}" for figure in (medians[name], min(each), max(each))), f"{ratio:.2f}")
    Console().print(table)
    return speeds


def medians_of(speeds: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in speeds.items()}


def goals_on_a_gpu(settings: Settings) -> list[Goal]:
    """Four races: ten ants and one, a hundred cars, and Stable-Baselines3's ant."""
    ten = medians_of(race((SASR, WEIGHT_0, SAC), dataclasses.replace(settings, task="AntStand", seeds=10)))
    one = medians_of(race((SASR,), dataclasses.replace(settings, task="AntStand", seeds=1)))
    cars = medians_of(race((SASR,), dataclasses.replace(settings, task="MountainCar", seeds=100)))
    ant = medians_of(race((SASR, SB3), dataclasses.replace(settings, task="Ant-v5", seeds=1)))
    return [
        Goal("AntStand, ten seeds", ten[SASR], 14_000),
        Goal("speed of SASR over SAC at equal behaviour", ten[WEIGHT_0] / ten[SAC], 1 / 1.08),
        Goal("AntStand, one seed", one[SASR], 1_600),
        Goal("MountainCar, a hundred seeds", cars[SASR], 25_000),
        Goal("Ant-v5, SASR over Stable-Baselines3's SAC", ant[SASR] / ant[SB3], 1.0),
    ]


def goals_on_a_cpu(settings: Settings) -> list[Goal]:
    """One race of one ant, with bfloat16 where the processor has it."""
    bf16 = (BF16,) if has_bf16() else ()
    ant = medians_of(race((SASR, *bf16, WEIGHT_0, SAC, SB3), dataclasses.replace(settings, task="Ant-v5", seeds=1)))
    goals = [
        Goal("speed of SASR over SAC at equal behaviour", ant[WEIGHT_0] / ant[SAC], 1 / 1.08),
        Goal("Ant-v5, SASR over Stable-Baselines3's SAC", ant[SASR] / ant[SB3], 1.4),
    ]
    if bf16:
        goals.append(Goal("the same in bfloat16", ant[BF16] / ant[SB3], 1.8))
    return goals


def print_goals(goals: Sequence[Goal]) -> None:
    table = Table("what", "measured", "at least", "", title="What we aim at")
    for what, measured, least in goals:
        reached = "reached" if measured >= least else "missed"
        table.add_row(what, f"{measured:,.4g}", f"{least:,.4g}", reached)
    Console().print(table)


def main(settings: Settings) -> None:
    where = machine()
    if settings.goals:
        settings = dataclasses.replace(settings, seconds=2.0, repeats=3)
        goals = goals_on_a_cpu(settings) if settings.device == "cpu" else goals_on_a_gpu(settings)
        print_goals(goals)
        save(f"goals-{settings.label}", {"settings": asdict(settings), "goals": [g._asdict() for g in goals]}, where)
        return
    names = [SASR, WEIGHT_0, SAC]
    if settings.sb3:
        names.append(SB3)
    speeds = race(names, settings)
    medians = medians_of(speeds)
    overhead = {name: medians[SAC] / medians[name] for name in (SASR, WEIGHT_0)}
    for name, ratio in overhead.items():
        Console().print(f"time of {name} over SAC: {ratio:.3f}", highlight=False)
    figures = {"settings": asdict(settings), "seed_steps_per_second": speeds, "median": medians, "overhead": overhead}
    save(f"throughput-{settings.label}", figures, where)


if __name__ == "__main__":
    main(tyro.cli(Settings))
