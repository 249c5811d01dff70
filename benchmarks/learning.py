"""Do the agents learn? Each on a small task with a known bar that two evaluations in a row must clear, seed by seed.

python -m benchmarks.learning --seeds 5 --label 2-cores
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
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


REPLAY: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128, "burn_in": 1_000, "actor_lr": 1e-3}
PLAIN_CRITIC = {"critic_lr": 1e-3, "critic_norm": "none"}
DISCRETE = REPLAY | PLAIN_CRITIC | {"batch_size": 64, "temperature_lr": 1e-3, "tau": 0.02}
ON_POLICY = {"rollout": 1_024, "minibatches": 4, "lr": 1e-3, "entropy_weight": 0.01}
CASES = {
    "sac-paper": Case("Pendulum-v1", -200.0, 15_000, REPLAY | {"temperature_lr": 1e-3}),
    "td3": Case("Pendulum-v1", -200.0, 15_000, REPLAY | PLAIN_CRITIC),
    "sac_discrete": Case("CartPole-v1", 475.0, 40_000, DISCRETE),
    "ppo": Case("CartPole-v1", 475.0, 60_000, ON_POLICY, environments=8),
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
        agent_config=AGENTS[agent].settings(**case.settings),
        device="cpu",
        workers=0,
    )
    with Trainer(config) as trainer:
        while not trainer.finished:
            trainer.loop.run(EVERY)
            yield trainer.loop.steps, trainer.evaluate().returns.mean(1)


def cleared_at(steps: Sequence[int], returns: Sequence[float], bar: float) -> int | None:
    """Steps after which two evaluations in a row were above the bar; one alone may be luck that the next undoes."""
    return next((at for at, pair in zip(steps[1:], pairwise(returns), strict=True) if min(pair) >= bar), None)


def main(seeds: int = 5, agents: tuple[str, ...] = tuple(CASES), label: str = "local") -> None:
    where, console = machine(), Console()
    figures: dict[str, Any] = {}
    torch.set_num_threads(1)
    columns = ("agent", "task", "bar", "seeds that cleared it", "steps to it, by seed", "return at the end, by seed")
    title = f"mean return of {EPISODES} evaluation episodes, every {EVERY:,} steps, {seeds} seeds"
    table = Table(*columns, title=title)
    for agent in agents:
        case, steps, curve = CASES[agent], [], []
        for at, returns in learning(agent, case, tuple(range(seeds))):
            steps.append(at)
            curve.append(returns.round(2).tolist())
            console.print(f"{agent} {case.task} {at:,}: {' '.join(f'{value:.0f}' for value in returns)}")
        cleared = [cleared_at(steps, seed, case.bar) for seed in zip(*curve, strict=True)]
        table.add_row(
            agent,
            case.task,
            f"{case.bar:.0f} within {case.steps:,}",
            f"{seeds - cleared.count(None)} of {seeds}",
            " ".join("never" if at is None else f"{at:,}" for at in cleared),
            " ".join(f"{value:.0f}" for value in curve[-1]),
        )
        figures[agent] = case._asdict() | {
            "seeds": seeds,
            "cleared_at": cleared,
            "curve": dict(zip(steps, curve, strict=True)),
        }
    console.print(table)
    console.print(f"wrote {save(f'learning-{label}', figures, where)}")


if __name__ == "__main__":
    tyro.cli(main)
