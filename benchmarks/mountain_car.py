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
from sasr.report.stats import mean_and_error

AT = (10_000, 15_000, 20_000, 30_000)


def run(job: tuple[str, int, int]) -> dict[str, Any]:
    method, seed, steps = job
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


def return_at(run: dict[str, Any], step: int) -> float:
    """Mean return of the last five episodes that had ended by `step`."""
    ended = np.searchsorted(run["ends"], step, side="right")
    return float(np.mean(run["returns"][max(0, ended - 5) : ended]))


def main(
    seeds: int = 10,
    steps: int = 30_000,
    methods: tuple[str, ...] = ("auto", "paper", "authors", "none"),
    workers: int = 2,
    label: str = "local",
) -> None:
    where = machine()
    jobs = list(itertools.product(methods, range(seeds), [steps]))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        runs = list(track(pool.imap_unordered(run, jobs), total=len(jobs), description="training"))
    runs.sort(key=lambda run: (run["method"], run["seed"]))
    at = [step for step in AT if step <= steps]
    columns = ("method", *(f"{step:,} steps" for step in at), "seeds that reached the goal", "seconds a run")
    table = Table(*columns, title=f"return ÷ 100 (mean of the last 5 episodes), mean ± standard error of {seeds} seeds")
    by_method = {}
    for method in methods:
        runs_of_method = [run for run in runs if run["method"] == method]
        returns = {step: mean_and_error([return_at(run, step) for run in runs_of_method]) for step in at}
        reached = sum(max(run["returns"]) > 0 for run in runs_of_method)
        seconds = float(np.median([run["seconds"] for run in runs_of_method]))
        texts = [f"{mean:.2f} ± {error:.2f}" for mean, error in returns.values()]
        table.add_row(method, *texts, f"{reached} of {seeds}", f"{seconds:.0f}")
        by_method[method] = {
            "return_at": {str(step): [round(mean, 4), round(error, 4)] for step, (mean, error) in returns.items()},
            "reached": reached,
            "median_seconds": seconds,
        }
    figures = {"seeds": seeds, "steps": steps, "methods": by_method, "runs": runs}
    console = Console()
    console.print(table)
    console.print(f"wrote {save(f'mountain_car-{label}', figures, where)}")


if __name__ == "__main__":
    tyro.cli(main)
