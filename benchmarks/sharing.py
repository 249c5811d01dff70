"""Runs that share a machine: seed-steps a second of one population, of a larger one, and of several processes at once.

python -m benchmarks.sharing --task MountainCar --device cuda --label h200
python -m benchmarks.sharing --task AntStand --processes --larger --split 1 2 --seeds 4 --label split-2-cores

Processes take turns on a GPU unless NVIDIA's MPS runs (`nvidia-cuda-mps-control -d`); start it before and say --mps.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import tyro
from rich.console import Console

from benchmarks.machine import figures_table, machine, save
from sasr.agents import SacConfig
from sasr.envs.worker_pool import cores
from sasr.training import TrainConfig, Trainer

BURN_IN = 1_000


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    task: str = "MountainCar"
    """Task or Gymnasium id."""
    seeds: int = 10
    """Members of a population."""
    larger: tuple[int, ...] = (40,)
    """Members of other populations, each alone in one process."""
    processes: tuple[int, ...] = (1, 2, 4)
    """How many populations are trained at once, each in a process."""
    split: tuple[int, ...] = ()
    """In how many processes the seeds of one population are trained, which share out this machine's cores."""
    workers: int = 0
    """Processes that step the environments of a population; 0 steps them in its own."""
    device: str = "cpu"
    """Where all of them learn."""
    seconds: float = 5.0
    """How long each arrangement is timed, once all its processes are learning."""
    repeats: int = 1
    """How often all arrangements are timed, one after the other; tables have the median."""
    mps: bool = False
    """Only where in the results: whether NVIDIA's MPS lets processes run on the GPU together."""


class Arrangement(NamedTuple):
    seeds: int
    """In a population."""
    processes: int
    """Populations at once."""
    threads: int = 1
    """Of each."""
    workers: int | None = 0
    """Of each, as `Settings.workers`; None is what suits the task."""


def arrangements(settings: Settings) -> list[Arrangement]:
    apart = [Arrangement(settings.seeds, count, workers=settings.workers) for count in settings.processes]
    larger = [Arrangement(seeds, 1, workers=settings.workers) for seeds in settings.larger]
    split = []
    for count in settings.split:
        if count < 1 or settings.seeds % count:
            raise SystemExit(f"--seeds {settings.seeds} can't be split into {count} processes alike")
        threads = max(1, cores() // count)  # shared out as `sasr compare` does
        workers = None
        if count > 1:
            workers = 0 if threads == 1 else threads
        split.append(Arrangement(settings.seeds // count, count, threads, workers))
    return apart + larger + split


def train(settings: Settings, arrangement: Arrangement, ready: Any, rates: Any) -> None:
    torch.set_num_threads(arrangement.threads)
    config = TrainConfig(
        task=settings.task,
        seeds=tuple(range(arrangement.seeds)),
        steps=10**9,
        capacity=100_000,
        device=settings.device,
        workers=arrangement.workers,
        agent="sac",
        agent_config=SacConfig(burn_in=BURN_IN),
    )
    with Trainer(config) as trainer:
        trainer.loop.run(BURN_IN + 100)
        ready.wait()
        start, before = time.perf_counter(), trainer.loop.steps
        while time.perf_counter() - start < settings.seconds:
            trainer.loop.turn()
        if settings.device.startswith("cuda"):
            torch.cuda.synchronize()
        rates.put(arrangement.seeds * (trainer.loop.steps - before) / (time.perf_counter() - start))
        ready.wait()  # nobody leaves while another is still being timed


def together(settings: Settings, arrangement: Arrangement) -> list[float]:
    context, count = multiprocessing.get_context("spawn"), arrangement.processes
    os.environ["OMP_NUM_THREADS"] = str(arrangement.threads)  # as `sasr compare` starts them
    ready, rates = context.Barrier(count), context.Queue()
    processes = [context.Process(target=train, args=(settings, arrangement, ready, rates)) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"{count} populations of {arrangement.seeds}: a process failed; what it said is above")
    return [rates.get() for _ in processes]


def main(settings: Settings) -> None:
    where, planned = machine(), arrangements(settings)
    rows: list[dict[str, Any]] = [{**arrangement._asdict(), "rates": [], "together": []} for arrangement in planned]
    for _ in range(settings.repeats):
        for row, arrangement in zip(rows, planned, strict=True):
            rates = together(settings, arrangement)
            row["rates"] += rates
            row["together"].append(sum(rates))
            # After each, so that what is done is kept.
            save(f"sharing-{settings.label}", {"settings": asdict(settings), "rows": rows}, where)
    table = figures_table(
        "seeds in a population", "populations at once", "threads of each", "each", "all together",
        title=f"{settings.task}, seed-steps a second" + (", with MPS" if settings.mps else ""),
    )  # fmt: skip
    for row, (seeds, processes, threads, _) in zip(rows, planned, strict=True):
        rate = statistics.median(row["together"])
        table.add_row(str(seeds), str(processes), str(threads), f"{rate / processes:,.0f}", f"{rate:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Settings))
