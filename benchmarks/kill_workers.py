"""Kill -9 a random worker of a running population, again and again: how long until the error, and is anything left?

python -m benchmarks.kill_workers --label NAME   writes benchmarks/results/kill_workers-NAME.json
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from benchmarks.machine import RESULTS, machine
from sasr.envs.population import Population, PopulationError


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    kills: int = 200
    task: str = "AntStand"
    members: int = 6
    workers: int = 3
    seed: int = 0


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def one_kill(settings: Settings, rng: np.random.Generator) -> tuple[float, int, str]:
    """Seconds from the kill to the error, workers left running after it, the error's first line."""
    population = Population(settings.task, seeds=range(settings.members), workers=settings.workers)
    population.reset()
    actions = np.zeros((settings.members, 1, *(population.action_space.shape or ())), np.float32)
    for _ in range(int(rng.integers(10))):
        population.step(actions)
    pids = [process.pid for process in population.processes]
    if rng.random() < 0.7:
        population.send(actions)
        time.sleep(rng.uniform(0, 2e-3))
    os.kill(pids[int(rng.integers(len(pids)))], signal.SIGKILL)
    start = time.perf_counter()
    try:
        for _ in range(3):
            if population.pending:
                population.receive()
            population.send(actions)
        raise SystemExit("a killed worker went unnoticed for two steps")
    except PopulationError as error:
        took = time.perf_counter() - start
        words = str(error).splitlines()[0]
    return took, sum(map(running, pids)), words


def main(settings: Settings) -> None:
    told = machine()
    rng = np.random.default_rng(settings.seed)
    shared, files = Path("/dev/shm"), Path("/proc/self/fd")
    segments, held = set(shared.iterdir()), len(list(files.iterdir()))
    kills = [one_kill(settings, rng) for _ in track(range(settings.kills), "killing")]
    took = [each[0] for each in kills]
    result = {
        "settings": asdict(settings),
        "machine": told,
        "seconds_to_error": {"median": float(np.median(took)), "max": max(took)},
        "errors_that_name_task_and_member": sum("member" in words and settings.task in words for *_, words in kills),
        "workers_left": sum(left for _, left, _ in kills),
        "segments_left": len(set(shared.iterdir()) - segments),
        "files_left_open": len(list(files.iterdir())) - held,
        "example": kills[-1][2],
    }
    Console().print_json(data=result)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"kill_workers-{settings.label}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Settings))
