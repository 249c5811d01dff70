"""What SASR and the replay buffer do with a step of P seeds, beside learning: microseconds of one core's own time.

python -m benchmarks.bookkeeping
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sasr import SASR, Host
from sasr.experience.replay import Replay
from sasr.experience.types import Transition

FEATURES, ACTIONS = 29, 8  # of AntStand
EPISODE = 200
STRETCH = 1_000
"""Steps of one timed stretch."""


@dataclass(frozen=True)
class Settings:
    seeds: tuple[int, ...] = (1, 10, 100)
    """Sizes of the population."""
    repeats: int = 6
    """Stretches of 1,000 steps; the fastest counts."""


def steps(P: int, rewarded: float) -> Iterator[Transition]:
    """Steps of ants whose episodes of 200 steps end one after another; a share of all steps is rewarded."""
    rng = np.random.default_rng(0)
    first = np.arange(P)[:, None] * (EPISODE // P + 1)
    obs = rng.normal(size=(P, 1, FEATURES)).astype(np.float32)
    never = np.zeros((P, 1), np.bool_)
    while True:
        truncated = first % EPISODE == EPISODE - 1
        first = first + 1
        final = rng.normal(size=obs.shape).astype(np.float32)
        reward = (rng.random((P, 1)) < rewarded).astype(np.float32)
        action = rng.normal(size=(P, 1, ACTIONS)).astype(np.float32)
        yield Transition(
            obs=torch.from_numpy(obs),
            action=torch.from_numpy(action),
            reward=torch.from_numpy(reward),
            next_obs=torch.from_numpy(final),
            terminated=torch.from_numpy(never),
            truncated=torch.from_numpy(truncated),
            success=torch.from_numpy(reward > 0.0),
        )
        obs = np.where(truncated[..., None], rng.normal(size=obs.shape).astype(np.float32), final)


def microseconds(P: int, rewarded: float, repeats: int) -> tuple[float, float, float]:
    """Of `Replay.add` and of `SASR.observe`, each the mean over a stretch; and the median of both together."""
    spaces: dict[str, Any] = {
        "observation_space": gym.spaces.Box(-np.inf, np.inf, (FEATURES,)),
        "action_space": gym.spaces.Box(-1.0, 1.0, (ACTIONS,)),
    }
    host = Host(**spaces, seeds=tuple(range(P)))
    replay, shaper = Replay(host, capacity=5_000), SASR()
    shaper.bind(host)
    coming = steps(P, rewarded)
    fastest: list[tuple[float, float, float]] = []
    for _ in range(repeats + 1):  # the first one warms up
        taken = np.array([_timed(replay.add, shaper.observe, next(coming)) for _ in range(STRETCH)]) * 1e6
        add, observe = taken.mean(0)
        fastest.append((float(add), float(observe), float(np.median(taken.sum(1)))))
    add, observe, both = zip(*fastest[1:], strict=True)
    return min(add), min(observe), min(both)


def _timed(
    add: Callable[[Transition], Transition], observe: Callable[[Transition], None], step: Transition
) -> tuple[float, float]:
    start = time.thread_time()
    stored = add(step)
    middle = time.thread_time()
    observe(stored)
    return middle - start, time.thread_time() - middle


def main(settings: Settings) -> None:
    """Print a table."""
    torch.set_num_threads(1)
    title = "µs a step; means over 1,000 steps with episodes of 200"
    table = Table("seeds", "rewarded steps", "Replay.add", "SASR.observe", "both, median step", title=title)
    cases = [(P, rewarded) for P in settings.seeds for rewarded in (0.0, 0.5)]
    for P, rewarded in track(cases, transient=True):
        figures = microseconds(P, rewarded, settings.repeats)
        table.add_row(str(P), f"{rewarded:.0%}", *(f"{figure:.0f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Settings))
