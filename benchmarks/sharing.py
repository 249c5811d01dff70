"""Cells that share a GPU: seed-steps a second of one population, of a larger one, and of several processes at once.

python -m benchmarks.sharing --task MountainCar --device cuda --label h200

Processes take turns on a GPU unless NVIDIA's MPS runs (`nvidia-cuda-mps-control -d`); start it before and say --mps.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine, save
from sasr.agents.sac import SacConfig
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
    workers: int = 0
    """Processes that step the environments of a population; 0 steps them in its own."""
    device: str = "cpu"
    """Where all of them learn."""
    seconds: float = 5.0
    """How long each arrangement is timed, once all its processes are learning."""
    mps: bool = False
    """Only told in the results: whether NVIDIA's MPS lets processes run on the GPU together."""


def train(settings: Settings, members: int, ready: Any, rates: Any) -> None:
    torch.set_num_threads(1)
    config = TrainConfig(
        task=settings.task,
        seeds=tuple(range(members)),
        steps=10**9,
        capacity=100_000,
        device=settings.device,
        workers=settings.workers,
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
        rates.put(members * (trainer.loop.steps - before) / (time.perf_counter() - start))
        ready.wait()  # nobody leaves while another is still being timed


def together(settings: Settings, members: int, count: int) -> list[float]:
    context = multiprocessing.get_context("spawn")
    ready, rates = context.Barrier(count), context.Queue()
    processes = [context.Process(target=train, args=(settings, members, ready, rates)) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"{count} populations of {members}: a process failed; what it said is above")
    return [rates.get() for _ in processes]


def main(settings: Settings) -> None:
    told, rows = machine(), []
    wanted = [(settings.seeds, count) for count in settings.processes] + [(members, 1) for members in settings.larger]
    table = Table(title=f"{settings.task}, seed-steps a second" + (", with MPS" if settings.mps else ""))
    for heading in ("seeds in a population", "populations at once", "each", "all together"):
        table.add_column(heading, justify="right")
    for members, count in wanted:
        rates = together(settings, members, count)
        rows.append({"seeds": members, "processes": count, "rates": rates})
        save(f"sharing-{settings.label}", {"settings": asdict(settings), "rows": rows}, told)  # what is done is kept
        table.add_row(str(members), str(count), f"{sum(rates) / count:,.0f}", f"{sum(rates):,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Settings))
