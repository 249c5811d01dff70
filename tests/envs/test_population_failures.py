"""Environments that raise, workers that die, parents that vanish: one clear error, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sasr.envs.population import Population, PopulationError
from sasr.randomness import stream_seed
from tests.envs.small_environments import Fragile, Shy

Array = NDArray[Any]


SHARED_MEMORY = Path("/dev/shm")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def gone(pids: list[int]) -> bool:
    """Whether they end by themselves; the long wait is for busy machines."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and any(map(alive, pids)):
        time.sleep(0.02)
    return not any(map(alive, pids))


def asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def pids_of(population: Population) -> list[int]:
    return [process.pid for process in population.processes]


def run(population: Population, steps: int) -> None:
    population.reset()
    for _ in range(steps):
        population.step(np.zeros((population.members, population.environments, 1), np.float32))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("harm", "words"),
    [("raise", "ZeroDivisionError: the pole broke"), ("reset", "ZeroDivisionError: no start today")],
)
def test_an_environment_that_raises_is_named(harm: str, words: str, workers: int) -> None:
    population = Population(
        Fragile, seeds=[4, 5, 6], environments=2, workers=workers, harm=harm, seed=stream_seed(5, "environment/1")
    )
    pids = pids_of(population)
    with pytest.raises(PopulationError, match=r"Fragile: .*seed 5, environment 1") as told:
        run(population, 3)
    assert words in str(told.value)
    if workers:
        assert "Traceback" in str(told.value)
        assert f"raise {words.split(':')[0]}" in str(told.value)
    else:
        assert isinstance(told.value.__cause__, ZeroDivisionError)
    assert not any(map(alive, pids))  # the error had them closed first
    with pytest.raises(RuntimeError, match=r"closed.*ZeroDivisionError"):
        population.reset()


@pytest.mark.parametrize(
    ("harm", "words"), [("exit", "exit code 7"), ("crash", "SIGSEGV.*Segmentation fault.*in string_at.*in step")]
)
def test_a_worker_that_crashes_is_named_with_its_stack(harm: str, words: str) -> None:
    population = Population(Fragile, seeds=[4, 5, 6], workers=2, harm=harm, seed=stream_seed(6, "environment/0"))
    pids = pids_of(population)
    with pytest.raises(PopulationError, match=r"(?s)Fragile: worker 1, busy with seed 6.*" + words):
        run(population, 3)
    assert not any(map(alive, pids))  # the error had them closed first


def test_a_worker_that_cannot_make_its_environment_says_so() -> None:
    with pytest.raises(PopulationError, match=r"(?s)Shy: worker \d, busy with seed \d+, .*not in this process"):
        Population(Shy, seeds=[3, 4], workers=2, parent=os.getpid())


def two_steps(population: Population, actions: Array) -> None:
    """A step that was under way may have been done before the signal came; the next cannot be."""
    for _ in range(2):
        if population.pending:
            population.receive()
        population.send(actions)
    population.receive()


def kill_one(round_: int, rng: np.random.Generator) -> None:
    """Start a population, kill one of its workers at a random moment."""
    with Population("MountainCar", seeds=range(4), workers=2) as population:
        population.reset()
        actions = np.zeros((4, 1, 1), np.float32)
        for _ in range(int(rng.integers(20))):
            population.step(actions)
        pids = pids_of(population)
        victim = int(rng.integers(2))
        if rng.random() < 0.5:
            population.send(actions)
        os.kill(pids[victim], signal.SIGKILL)
        with pytest.raises(PopulationError, match=rf"MountainCar-v0: worker {victim}, .*seed.*killed by SIGKILL"):
            two_steps(population, actions)
    assert not any(map(alive, pids)), f"round {round_}"


@pytest.mark.parametrize("workers", [0, 2])
def test_who_does_not_answer_is_named(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sasr.envs.population.PATIENCE", 0.5)
    with (
        Population(
            Fragile, seeds=[4, 5], workers=workers, harm="sleep", seed=stream_seed(5, "environment/0")
        ) as population,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        run(population, 3)  # the third step takes seconds
        for _ in range(3):
            population.step(np.zeros((2, 1, 1), np.float32))
    (text,) = [str(own.message) for own in told]
    assert "seed 5, environment 0" in text
    assert ("worker 1" in text) == (workers == 2)
    assert "has not answered" in text


@pytest.mark.slow
def test_killed_workers_give_the_error_and_leave_nothing() -> None:
    rng = np.random.default_rng(0)
    before = set(SHARED_MEMORY.iterdir()) if SHARED_MEMORY.exists() else set()
    files = len(list(Path("/proc/self/fd").iterdir()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the death itself is noticed; nobody waits until patience is at its end
        for round_ in range(12):
            kill_one(round_, rng)
    assert (set(SHARED_MEMORY.iterdir()) if SHARED_MEMORY.exists() else set()) <= before
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


SCRIPT = """
import sys, time, numpy as np
from sasr.envs.population import Population
population = Population("MountainCar", seeds=range(4), workers=2)
print(*[process.pid for process in population.processes], flush=True)
population.reset()
actions = np.zeros((4, 1, 1), np.float32)
while True:
    population.step(actions)
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_go_with_their_population(ending: signal.Signals) -> None:
    script = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert script.stdout is not None
    pids = [int(pid) for pid in script.stdout.readline().split()]
    time.sleep(0.2)
    assert len(pids) == 2
    assert all(map(alive, pids))
    script.send_signal(ending)
    _, words = script.communicate(timeout=300)
    assert gone(pids)
    if ending == signal.SIGINT:
        assert words.count("KeyboardInterrupt") == 1  # from the population; its workers stay silent


def test_idle_workers_sleep() -> None:
    with Population(Fragile, seeds=[0, 1], workers=2, harm="", seed=0) as population:
        run(population, 2)
        pids = pids_of(population)
        deadline = time.monotonic() + 60.0
        while not all(map(asleep, pids)):  # one that spins never sleeps
            assert time.monotonic() < deadline, "they keep the cores busy"
            time.sleep(0.05)


def test_a_population_that_is_forgotten_ends_its_workers() -> None:
    population = Population(Fragile, seeds=[0, 1], workers=2, harm="", seed=0)
    pids = pids_of(population)
    del population
    assert gone(pids)


FORK = """
import os, sys
import numpy as np
from sasr.envs.population import Population
population = Population("MountainCar", seeds=[0, 1], workers=2)
population.reset()
if os.fork() == 0:
    sys.exit()  # at its end Python closes what is still open
os.wait()
print(population.step(np.zeros((2, 1, 1), np.float32)).reward.shape)
"""


def test_a_fork_of_the_owner_leaves_the_workers_alone() -> None:
    script = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=300)
    assert (script.stdout.strip(), script.returncode) == ("(2, 1)", 0), script.stderr
