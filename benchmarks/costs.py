"""What a method costs: time and memory of an update with each, relative to the plain agent and to SASR.

python -m benchmarks.costs --label 2-cores
python -m benchmarks.costs --device cuda --seeds 10 --label h200
"""

from __future__ import annotations

import os
import statistics
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track

from benchmarks.machine import figures_table, machine, save
from sasr import Host, Transition
from sasr.agents import Sac, SacConfig
from sasr.settings import choose_device
from sasr.shaping.registry import NONE, SHAPERS
from sasr.training import OffPolicy

EPISODE = 200
NOISY = "noisy"
# The paper's tables for AntStand, normalised to SASR: training time and largest memory.
PAPER = tomllib.loads((Path(__file__).parents[1] / "results" / "reference" / "paper.toml").read_text(encoding="utf-8"))
PAPER_TIME, PAPER_MEMORY = ({**PAPER[what]["AntStand"], "sasr": None} for what in ("time", "memory"))


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    shapers: tuple[str, ...] = (NONE, *SHAPERS)
    """Names of the reward shapers, each with its default settings."""
    noisy: bool = True
    """Time NoisyNet too, which is no shaper: SAC that explores by noise in its actor's weights."""
    seeds: int = 1
    """Members of the population."""
    features: int = 105
    """Features of a state; Ant has 105."""
    actions: int = 8
    """Dimensions of an action."""
    stored: int = 5_000
    """Steps that each seed has seen before anything is timed."""
    device: str = "cpu"
    """Where the agent learns."""
    compile: bool = True
    """Let torch compile what an agent and a shaper list for it, where they are captured; without, it starts sooner."""
    turns: int = 100
    """Steps, with one update each, in a timed stretch."""
    repeats: int = 7
    """Stretches of each contender; they take turns, so that other load on the machine meets all of them."""


class Contender:
    """An agent with a shaper that lives on made-up steps: what is timed is storing, observing and learning."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.settings, device = settings, choose_device(settings.device)
        before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        host = Host(
            observation_space=gym.spaces.Box(-np.inf, np.inf, (settings.features,), np.float32),
            action_space=gym.spaces.Box(-1.0, 1.0, (settings.actions,), np.float32),
            seeds=tuple(range(settings.seeds)),
            device=device,
        )
        shaper = SHAPERS[name].make() if name in SHAPERS else None
        agent = Sac(host, SacConfig(burn_in=settings.stored, exploration="noisy" if name == NOISY else "gaussian"))
        self.learner = OffPolicy(host, agent, shaper=shaper, capacity=2 * settings.stored + 100_000)
        self.generator = torch.Generator().manual_seed(0)
        self.obs, self.age = self._states(), 0
        for _ in range(settings.stored):
            self._step()
            self.learner.learn(0)
        for _ in range(10):
            self.turn()
        state = list(agent.state_dict().values())
        if shaper is not None:
            state += shaper.state_dict().values()
        self.bytes = sum(value.nbytes for value in state if isinstance(value, torch.Tensor))
        self.device_bytes = torch.cuda.memory_allocated() - before if device.type == "cuda" else None

    def _states(self) -> torch.Tensor:
        return torch.randn(self.settings.seeds, 1, self.settings.features, generator=self.generator)

    def _step(self) -> None:
        shape = (self.settings.seeds, 1)
        self.age += 1
        ends = torch.full(shape, self.age % EPISODE == 0)
        no, next_obs = torch.zeros(shape, dtype=torch.bool), self._states()
        action = 2 * torch.rand(*shape, self.settings.actions, generator=self.generator) - 1
        success = ends & (self.age % (2 * EPISODE) == 0)
        self.learner.store(Transition(self.obs, action, success.float(), next_obs, ends, no, success=success))
        self.obs = next_obs

    def turn(self) -> None:
        self._step()
        self.learner.learn(1)

    def stretch(self) -> float:
        """Milliseconds a turn."""
        start = time.perf_counter()
        for _ in range(self.settings.turns):
            self.turn()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / self.settings.turns * 1e3


def main(settings: Settings) -> None:
    where, console = machine(), Console()
    if not settings.compile:
        os.environ["TORCHDYNAMO_DISABLE"] = "1"
    names = list(dict.fromkeys((NONE, "sasr", *settings.shapers)))
    if settings.noisy:
        names.append(NOISY)
    contenders = {name: Contender(name, settings) for name in track(names, "getting ready", console=console)}
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in track(range(settings.repeats), "timing", console=console):
        for name, contender in contenders.items():
            times[name].append(contender.stretch())
    rows: list[dict[str, Any]] = []
    median = {name: statistics.median(each) for name, each in times.items()}
    for name, contender in contenders.items():
        rows.append(
            {
                "shaper": name,
                "ms": median[name],
                "over_sac": median[name] / median[NONE],
                "over_sasr": median[name] / median["sasr"],
                "paper_time_over_sasr": PAPER_TIME.get(name),
                "paper_memory_over_sasr": PAPER_MEMORY.get(name),
                "state_bytes": contender.bytes - contenders[NONE].bytes,
                "device_bytes": contender.device_bytes,
            }
        )
    columns = ("method", "ms", "x SAC", "x SASR", "paper: time x SASR", "its state", "paper: memory x SASR")
    title = f"one step and one update of {settings.seeds} seeds, {settings.device}, {where['cores']} cores"
    table = figures_table(*columns, title=title)
    for row in rows:
        ours = [f"{row[key]:.2f}" for key in ("ms", "over_sac", "over_sasr")]
        paper = [str(row[key] or "") for key in ("paper_time_over_sasr", "paper_memory_over_sasr")]
        table.add_row(row["shaper"], *ours, paper[0], f"{row['state_bytes'] / 2**20:.1f} MiB", paper[1])
    console.print(table)
    save(f"costs-{settings.label}", {"settings": asdict(settings), "rows": rows, "times_ms": times}, where)


if __name__ == "__main__":
    main(tyro.cli(Settings))
