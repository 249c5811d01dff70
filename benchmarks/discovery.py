"""Who finds the goal of TwoRooms: every reward shaper, NoisyNet and none, ten seeds of each as one population.

python -m benchmarks.discovery --label 2-cores
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import time
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track

from benchmarks.machine import RESULTS, figures_table, machine, save
from sasr.agents import SacConfig
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import NONE, SHAPERS
from sasr.training import TrainConfig, Trainer

NOISY = "noisynet"
"""No shaper, and noise in the weights of SAC's actor."""
CONTENDERS = (NONE, NOISY, *SHAPERS)


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    shapers: tuple[str, ...] = CONTENDERS
    """Names of the reward shapers, each with its default settings; noisynet is SAC with noise in its actor."""
    add: bool = False
    """Keep what the result file has of others; each run names its commit, so they may be of several."""
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
    width, is_noisy = settings.hidden, shaper == NOISY
    name = NONE if is_noisy else shaper
    agent = SacConfig(
        hidden=(width, width),
        batch_size=settings.batch_size,
        burn_in=settings.burn_in,
        temperature_lr=settings.temperature_lr,
        critic_lr=1e-3,
        actor_lr=1e-3,
        exploration="noisy" if is_noisy else "gaussian",
    )
    known = set() if name == NONE else {field.name for field in fields(SHAPERS[name].config)}
    if "hidden" in known:
        options = {"hidden": (width, width)} | options
    elif "width" in known:
        options = {"width": width} | options
    config = TrainConfig(
        task="TwoRooms",
        agent="sac",
        agent_config=agent,
        shaper=name,
        shaper_config=_configured(name, options),
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


def _configured(name: str, options: dict[str, Any]) -> Any:
    """A shaper's defaults with some options changed; SASR's default is a preset, not its config's own."""
    if not options:
        return None
    return preset_config(**options) if name == "sasr" else SHAPERS[name].config(**options)


def stored_runs(settings: Settings) -> list[dict[str, Any]]:
    """What the result file has of shapers that are not run now; only runs of the same settings may stand together."""
    path = RESULTS / f"discovery-{settings.label}.json"
    if not settings.add or not path.exists():
        return []
    figures = json.loads(path.read_text())["figures"]
    stored = figures["settings"]
    for name, value in json.loads(json.dumps(asdict(settings))).items():
        if name not in ("shapers", "add", "workers") and stored[name] != value:
            raise ValueError(f"{path.name} has runs of {name}={stored[name]}, not {value}; give another --label")
    return [run for run in figures["runs"] if run["shaper"] not in settings.shapers]


def main(settings: Settings) -> None:
    where = machine()
    ours: list[dict[str, Any]] = []
    runs = stored_runs(settings)  # now, so that settings which do not fit are refused before hours of work
    with multiprocessing.get_context("spawn").Pool(settings.workers, torch.set_num_threads, (1,)) as pool:
        finished = pool.imap_unordered(functools.partial(train, settings=settings), settings.shapers)
        for run in track(finished, total=len(settings.shapers), description="training"):
            ours.append(run | {"commit": where["commit"]})
            runs = sorted([*stored_runs(settings), *ours], key=lambda run: CONTENDERS.index(run["shaper"]))
            kept = replace(settings, shapers=tuple(run["shaper"] for run in runs))
            path = save(f"discovery-{settings.label}", {"settings": asdict(kept), "runs": runs}, where)
    table = figures_table(
        "shaper", "found the other room", "found the goal", "first time, median step", "goals a seed",
        title=f"TwoRooms, {settings.seeds} seeds, {settings.steps:,} steps of each",
    )  # fmt: skip
    for run in runs:
        steps = [step for step in run["first_goal"] if step is not None]
        crossed = sum(step is not None for step in run["first_crossing"])
        median = f"{np.median(steps):,.0f}" if steps else "never"
        shares = [f"{count} of {settings.seeds}" for count in (crossed, len(steps))]
        table.add_row(run["shaper"], *shares, median, f"{np.mean(run['goals']):.1f}")
    console = Console()
    console.print(table)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(tyro.cli(Settings))
