"""Learning on MountainCarContinuous inside Stable-Baselines3: SASR's presets against plain SAC, side by side.

python -m benchmarks.mountain_car --seeds 5 --steps 20000 --workers 15 --label 16-cores
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from typing import Any

import numpy as np
import torch
import tyro
from examples.mountain_car_sb3 import make_model
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.machine import machine, save
from sasr import SASR

AT = (10_000, 15_000, 20_000, 30_000)


def run(cell: tuple[str, int, int]) -> dict[str, Any]:
    method, seed, steps = cell
    torch.set_num_threads(1)
    began = time.perf_counter()
    model = make_model(None if method == "none" else SASR(method), seed)
    model.learn(steps)
    env = model.get_env()
    assert isinstance(env, DummyVecEnv)
    monitor = env.envs[0]
    assert isinstance(monitor, Monitor)
    ends = np.cumsum(monitor.get_episode_lengths())
    return {
        "method": method,
        "seed": seed,
        "ends": ends.tolist(),
        "returns": [round(value, 4) for value in monitor.get_episode_rewards()],
        "seconds": round(time.perf_counter() - began, 1),
    }


def return_at(found: dict[str, Any], step: int) -> float:
    """Mean return of the last five episodes that had ended by `step`."""
    ended = np.searchsorted(found["ends"], step, side="right")
    return float(np.mean(found["returns"][max(0, ended - 5) : ended]))


def main(
    seeds: int = 10,
    steps: int = 30_000,
    methods: tuple[str, ...] = ("auto", "paper", "authors", "none"),
    workers: int = 2,
    label: str = "local",
) -> None:
    where = machine()
    cells = list(itertools.product(methods, range(seeds), [steps]))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        runs = list(track(pool.imap_unordered(run, cells), total=len(cells), description="training"))
    at = [step for step in AT if step <= steps]
    table = Table(title=f"return ÷ 100 (mean of the last 5 episodes), mean ± standard error of {seeds} seeds")
    for column in ("method", *(f"{step:,} steps" for step in at), "seeds that reached the goal", "seconds a run"):
        table.add_column(column)
    figures: dict[str, Any] = {
        "seeds": seeds,
        "steps": steps,
        "methods": {},
        "runs": sorted(runs, key=lambda r: (r["method"], r["seed"])),
    }
    for method in methods:
        runs_of_method = [run for run in runs if run["method"] == method]
        values = np.array([[return_at(run, step) for step in at] for run in runs_of_method])
        mean, error = values.mean(0), np.zeros(len(at))
        if len(values) > 1:
            error = values.std(0, ddof=1) / np.sqrt(len(values))
        reached = sum(max(run["returns"]) > 0 for run in runs_of_method)
        seconds = float(np.median([run["seconds"] for run in runs_of_method]))
        table.add_row(
            method,
            *(f"{m:.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True)),
            f"{reached} of {seeds}",
            f"{seconds:.0f}",
        )
        figures["methods"][method] = {
            "return_at": {
                str(s): [round(float(m), 4), round(float(e), 4)] for s, m, e in zip(at, mean, error, strict=True)
            },
            "reached": reached,
            "median_seconds": seconds,
        }
    console = Console()
    console.print(table)
    console.print(f"wrote {save(f'mountain_car-{label}', figures, where)}")


if __name__ == "__main__":
    tyro.cli(main)
