"""Do the agents learn? Each on a small task with a known bar: the first evaluation that clears it, seed by seed.

python -m benchmarks.learning --seeds 5 --label 2-cores
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine, save
from sasr.agents.registry import AGENTS
from sasr.training import TrainConfig, Trainer

EVERY, EPISODES = 1_000, 20  # steps between evaluations, and the episodes of each seed in one


class Case(NamedTuple):
    """A task that an agent should solve."""

    task: str
    bar: float  # mean return of an evaluation
    steps: int
    settings: dict[str, Any]
    environments: int = 1


CASES = {
    "sac": Case(
        "Pendulum-v1",
        -200.0,
        15_000,
        {
            "hidden": (64, 64),
            "batch_size": 128,
            "burn_in": 1_000,
            "actor_lr": 1e-3,
            "temperature_lr": 1e-3,
        },
    ),
    "td3": Case(
        "Pendulum-v1",
        -200.0,
        15_000,
        {"hidden": (64, 64), "batch_size": 128, "burn_in": 1_000, "actor_lr": 1e-3, "critic_lr": 1e-3},
    ),
    "sac_discrete": Case(
        "CartPole-v1",
        475.0,
        20_000,
        {"hidden": (64, 64), "batch_size": 128, "burn_in": 1_000, "actor_lr": 1e-3, "critic_lr": 1e-3},
    ),
    "ppo": Case(
        "CartPole-v1",
        475.0,
        60_000,
        {"rollout": 1_024, "minibatches": 4, "lr": 1e-3, "entropy_weight": 0.01},
        environments=8,
    ),
}


def learning(agent: str, case: Case, seeds: tuple[int, ...]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Train, and give the steps and each seed's mean evaluation return, evaluation by evaluation."""
    config = TrainConfig(
        task=case.task,
        agent=agent,
        shaper="none",
        seeds=seeds,
        steps=case.steps,
        environments=case.environments,
        eval_episodes=EPISODES,
        agent_config=AGENTS[agent].config(**case.settings),
        device="cpu",
        workers=0,
    )
    with Trainer(config) as trainer:
        while not trainer.finished:
            trainer.loop.run(EVERY)
            yield trainer.loop.steps, trainer.evaluate().returns.mean(1)


def main(seeds: int = 5, agents: tuple[str, ...] = tuple(CASES), label: str = "local") -> None:
    where, console, figures = machine(), Console(), {}
    torch.set_num_threads(1)
    table = Table(title=f"mean return of {EPISODES} evaluation episodes, every {EVERY:,} steps, {seeds} seeds")
    for column in (
        "agent",
        "task",
        "bar",
        "seeds that cleared it",
        "steps to it, by seed",
        "return at the end, by seed",
    ):
        table.add_column(column)
    for agent in agents:
        case, began = CASES[agent], time.process_time()
        curve = []
        for steps, returns in learning(agent, case, tuple(range(seeds))):
            curve.append((steps, returns))
            console.print(f"{agent} {case.task} {steps:,}: {' '.join(f'{value:.0f}' for value in returns)}")
        cleared = [next((steps for steps, returns in curve if returns[p] >= case.bar), None) for p in range(seeds)]
        table.add_row(
            agent,
            case.task,
            f"{case.bar:.0f} within {case.steps:,}",
            f"{seeds - cleared.count(None)} of {seeds}",
            " ".join("never" if steps is None else f"{steps:,}" for steps in cleared),
            " ".join(f"{value:.0f}" for value in curve[-1][1]),
        )
        figures[agent] = case._asdict() | {
            "seeds": seeds,
            "cleared_at": cleared,
            "cpu_seconds": round(time.process_time() - began, 1),
            "curve": {steps: [round(float(value), 2) for value in returns] for steps, returns in curve},
        }
    console.print(table)
    console.print(f"wrote {save(f'learning-{label}', figures, where)}")


if __name__ == "__main__":
    tyro.cli(main)
