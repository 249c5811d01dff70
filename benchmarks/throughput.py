"""End-to-end training speed, side by side in one run: SASR on SAC, plain SAC, and Stable-Baselines3's SAC.

python -m benchmarks.throughput --label 2-cores --task Ant-v5
python -m benchmarks.throughput --label h200 --task AntStand --seeds 10 --device cuda
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import gymnasium as gym
import torch
import tyro
from rich.console import Console
from rich.table import Table

import sasr
from benchmarks.machine import machine, save
from sasr.agents import SacConfig
from sasr.settings import Mode
from sasr.shaping.presets import preset_config
from sasr.tasks.catalogue import full_id
from sasr.training import TrainConfig, Trainer

assert sasr
BURN_IN = 2_000


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


def ours(settings: Settings, shaper: str, weight: float = 1.0) -> tuple[Callable[[], Any], int, Callable[[], None]]:
    auto = preset_config("auto")
    shaped = dataclasses.replace(auto, estimator=settings.estimator, reward_weight=weight * auto.reward_weight)
    config = TrainConfig(
        task=settings.task,
        shaper=shaper,
        shaper_config=shaped if shaper == "sasr" else None,
        seeds=tuple(range(settings.seeds)),
        steps=10**9,
        capacity=200_000,
        device=settings.device,
        accelerate=settings.accelerate,
        agent_config=SacConfig(burn_in=BURN_IN),
        agent="sac",
    )
    trainer = Trainer(config)
    trainer.loop.run(BURN_IN + 50)
    return trainer.loop.turn, settings.seeds, trainer.close


def stable_baselines3(settings: Settings) -> tuple[Callable[[], Any], int, Callable[[], None]]:
    from stable_baselines3 import SAC

    env = gym.make(full_id(settings.task))
    model = SAC("MlpPolicy", env, learning_starts=BURN_IN, buffer_size=200_000, device=settings.device, seed=0)
    model.learn(BURN_IN + 20)

    def some() -> None:
        model.learn(100, reset_num_timesteps=False)

    return some, 100, env.close


def timed(turn: Callable[[], Any], steps: int, seconds: float) -> float:
    """Seed-steps per second over about that many seconds."""
    start, turns = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        turn()
        turns += 1
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return turns * steps / (time.perf_counter() - start)


def main(settings: Settings) -> None:
    told = machine()
    contenders = {
        "SASR on SAC": ours(settings, "sasr"),
        # All the work of SASR with the behaviour of plain SAC: what a step of the simulator costs depends on behaviour.
        "SASR of weight 0": ours(settings, "sasr", weight=0.0),
        "SAC": ours(settings, "none"),
    }
    if settings.sb3:
        contenders["Stable-Baselines3 SAC, one seed"] = stable_baselines3(settings)
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(settings.repeats):
        for name, (turn, steps, _) in contenders.items():
            timed(turn, steps, 0.2)
            speeds[name].append(timed(turn, steps, settings.seconds))
    for _, _, close in contenders.values():
        close()
    medians = {name: statistics.median(each) for name, each in speeds.items()}
    table = Table(title=f"{settings.task}, {settings.seeds} seeds, {settings.device}, {told['cores']} cores")
    for heading in ("contender", "seed-steps/s (median)", "min", "max", "x SASR on SAC"):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    for name, each in speeds.items():
        ratio = medians[name] / medians["SASR on SAC"]
        table.add_row(name, *(f"{figure:,.0f}" for figure in (medians[name], min(each), max(each))), f"{ratio:.2f}")
    console = Console()
    console.print(table)
    overhead = {name: medians["SAC"] / medians[name] for name in ("SASR on SAC", "SASR of weight 0")}
    for name, ratio in overhead.items():
        console.print(f"time of {name} over SAC: {ratio:.3f}", highlight=False)
    figures = {"settings": asdict(settings), "seed_steps_per_second": speeds, "median": medians, "overhead": overhead}
    save(f"throughput-{settings.label}", figures, told)


if __name__ == "__main__":
    main(tyro.cli(Settings))
