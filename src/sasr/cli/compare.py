"""`sasr compare`: many runs from one command."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro
from rich.text import Text

from sasr.cli.gridding import estimate, examine_all, run_grid
from sasr.cli.settings import MOST_SEEDS, split
from sasr.envs.population import cores
from sasr.experiments.estimate import Footprint
from sasr.experiments.grid import Grid, begun, write_plan
from sasr.experiments.job import FINAL_EPISODES, Job, is_done
from sasr.experiments.plan import Cell, Plan, changed, grid
from sasr.experiments.plan_file import read_plan, read_suite, suites
from sasr.experiments.runners.inline import Inline
from sasr.experiments.runners.pool import Pool, Room, machine_rooms
from sasr.experiments.runners.protocol import Runner
from sasr.experiments.runners.ray import OnRay
from sasr.experiments.values import literal
from sasr.files import check_writable
from sasr.final_evaluation import MOST_EPISODES
from sasr.logs import wandb
from sasr.logs.run_folder import command_line, commit_here
from sasr.report.store import check_store, slug
from sasr.settings import choose_device
from sasr.terminal import Terminal

Where = Literal["pool", "inline", "ray"]


def compare(
    suite: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")] = "",
    *,
    plan: Path | None = None,
    tasks: str = "",
    methods: str = "",
    seeds: str = "",
    steps: int | None = None,
    out: Path = Path("grid"),
    on: Where = "pool",
    address: str | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    gpus: float | None = None,
    population: int | None = None,
    device: str = "auto",
    environments: int | None = None,
    max_episode_steps: int | None = None,
    eval_every: int | None = None,
    eval_episodes: int | None = None,
    checkpoint_minutes: float | None = None,
    final_episodes: int = FINAL_EPISODES,
    set: Annotated[tyro.conf.UseAppendAction[list[str]], tyro.conf.arg(metavar="agent.NAME=VALUE")] = [],  # noqa: B006
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    save: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    save_stopped: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    results: Path | None = None,
    tensorboard: bool = True,
    track: str = "",
) -> None:
    """Train every method on every task; what was interrupted goes on when the same command is given again.

    Exits with 1 where a cell failed, and with 130 where it was stopped.

    Args:
        suite: A plan of the paper's that comes along: table1, ablation-bandwidth, …; docs/experiments.md has them all.
        plan: A plan file of your own, in TOML.
        tasks: Names of tasks or Gymnasium ids, with commas between; in place of the plan's, where there is one.
        methods: Names of methods, with commas between (a name that has one, in double quotes): sasr, sasr-paper,
            sasr-authors, sac, td3, ppo, any shaper.
        seeds: How many independent runs of each, or the seeds themselves, such as 3,5,8 or 7, for one.
        steps: Environment steps of each seed; None is what suits the task.
        out: Folder of the grid: runs are in cells/, what their processes said in logs/.
        on: Where cells run: pool (processes on this machine), inline (this process), ray (a cluster).
        address: Of a Ray cluster, HOST:PORT or auto; None starts Ray on this machine.
        jobs: Cells at a time in a pool; None is as many as cores and memory allow.
        threads: Cores that a cell computes with; None shares out this machine's, or is 1 on Ray.
        gpus: GPUs of a cell on Ray, may be a part of one; None is 1 with --device cuda, else 0.
        population: Most seeds in one process; None is as many as fit into memory, or on CPUs as leave no core idle.
        device: cpu, cuda, …; auto takes CUDA where there is one.
        environments: Environments of each seed.
        max_episode_steps: Steps that episodes are cut after, in place of the environments' own time limits.
        eval_every: Steps between evaluations; 0 is never.
        eval_episodes: Episodes of each seed in an evaluation.
        checkpoint_minutes: Minutes between checkpoints.
        final_episodes: Episodes of each seed in the evaluation at the end.
        set: A setting of all agents, such as agent.hidden=64,64; may be given many times.
        dry_run: Print the cells with an estimate of time and memory from a short trial, and run nothing.
        save: Write the results into a results store.
        save_stopped: The same, and what is stopped too: as far as all seeds of a method came, which pages then say.
        results: Folder of that store, results/ where this is not given; files are in PLAN/TASK/ there.
        tensorboard: Write TensorBoard events into the runs' folders.
        track: Also tell a service what happens: wandb, which obeys WANDB_MODE=offline.
    """
    console = Terminal()
    _check_needed(on, address=address, gpus=gpus, jobs=jobs)
    if results is not None and not (save or save_stopped):
        raise ValueError(f"--results {results} is where --save writes to; add --save, or leave it out")
    if final_episodes > MOST_EPISODES:
        raise ValueError(f"--final-episodes {final_episodes} is more than {MOST_EPISODES:,}")
    _check_numbers(final_episodes=final_episodes, jobs=jobs, threads=threads, population=population)
    given = {"tasks": _listed(tasks), "methods": _listed(methods), "seeds": _seeds(seeds), "steps": steps}
    settings = {
        "environments": environments,
        "max_episode_steps": max_episode_steps,
        "eval_every": eval_every,
        "eval_episodes": eval_episodes,
        "checkpoint_minutes": checkpoint_minutes,
    }
    wanted = Plan(tuple(_with_flags(_plan(suite, plan, **given).cells, set, settings)))
    cluster = _checked(on, device, track, address, gpus)
    home = results or Path("results")
    store = home / _named(suite, plan) if save or save_stopped else None
    if not dry_run:
        check_writable(out)
        if store is not None:
            check_store(home)
    means = _Means(on=on, jobs=jobs, threads=threads, population=population, rooms=machine_rooms(device))
    needs = examine_all([cell for cell in wanted.cells if not is_done(Job(cell=cell, out=out))], console)
    # What has begun goes on in the parts it has, on whatever machine: split otherwise, its seeds would begin anew.
    wanted = wanted.split(means.most_seeds(wanted, needs), begun(out))
    shares = means.shared(len(wanted.cells))
    made = _jobs(
        wanted, shares, needs, out=out, device=device, final_episodes=final_episodes, events=tensorboard, track=track
    )
    if dry_run:
        estimate(made, shares.at_once, console)
        return
    write_plan(wanted, out)
    if cluster is not None:
        console.print(Text(cluster.exposure), soft_wrap=True)
    run_grid(Grid(made), cluster or means.runner(shares), out, console, store, save_stopped=save_stopped)


class _Shares(NamedTuple):
    """How this machine, or a node of a cluster, is shared out."""

    at_once: int
    """Cells at a time."""
    threads: int
    """Cores that each computes with."""
    workers: int | None
    """Processes that step the environments of each."""

    def workers_of(self, cell: Cell) -> int | None:
        """No more of them than environments."""
        return self.workers and min(self.workers, len(cell.seeds) * cell.config().environments)


@dataclass(frozen=True, kw_only=True)
class _Means:
    """Where cells run and what they may use, as it was asked for."""

    on: Where
    jobs: int | None
    threads: int | None
    population: int | None
    rooms: Sequence[Room]

    def most_seeds(self, plan: Plan, needs: Mapping[str, Footprint]) -> Callable[[Cell], int]:
        """How many seeds of a cell one process takes."""
        if self.population or self.on == "ray":
            return lambda cell: self.population or len(cell.seeds)
        # On CPUs processes of one thread get more done than threads of one process (benchmarks/sharing.py). On a GPU
        # that depends on whether processes can use it together, so there it is for people to ask for.
        on_cpus = self.on == "pool" and not any(room.name for room in self.rooms)
        processes = max(1, self._slots() // len(plan.cells)) if on_cpus else 1
        room = min(room.bytes for room in self.rooms)

        def most(cell: Cell) -> int:
            share = -(-len(cell.seeds) // processes)
            return min(share, needs[cell.kind].seeds_within(room)) if cell.kind in needs else share

        return most

    def shared(self, cells: int) -> _Shares:
        """The share of each of so many cells."""
        at_once = 1 if self.on == "inline" else min(self._slots(), cells)
        threads = self.threads or (1 if self.on == "ray" else max(1, cores() // at_once))
        return _Shares(at_once, threads, None if at_once == 1 else 0 if threads == 1 else threads)

    def _slots(self) -> int:
        """Cells at a time, where there are enough of them."""
        return self.jobs or max(1, cores() // (self.threads or 1))

    def runner(self, shares: _Shares) -> Runner:
        """For this machine."""
        return Inline() if self.on == "inline" else Pool(cores=shares.at_once * shares.threads, rooms=self.rooms)


def _checked(on: Where, device: str, track: str, address: str | None, gpus: float | None) -> OnRay | None:
    """The cluster where one is asked for; raises where there is no such device, service or Ray."""
    if on != "ray":  # whose nodes may have what this machine has not
        choose_device(device)
    if track:
        wandb.check(track)
    return OnRay(address=address, gpus=_gpus(gpus, device)) if on == "ray" else None


def _jobs(plan: Plan, shares: _Shares, needs: Mapping[str, Footprint], **same: Any) -> list[Job]:
    """A job for each cell; what is `same` goes to all of them."""
    same |= {"threads": shares.threads, "command": command_line(), "commit": commit_here()}
    return [
        Job(
            cell=cell,
            need=needs[cell.kind].of(len(cell.seeds)) if cell.kind in needs else 0,
            workers=shares.workers_of(cell),
            **same,
        )
        for cell in plan.cells
    ]


def _plan(suite: str, plan: Path | None, **given: Any) -> Plan:
    if suite and plan:
        raise ValueError(f"both a suite ({suite}) and --plan {plan} are given; take one of them")
    if suite:
        return read_suite(suite, **given)
    if plan:
        return read_plan(plan, **given)
    for name in ("tasks", "methods"):
        if not given[name]:
            raise ValueError(
                f"give --{name}, a plan file with --plan, or one of the paper's suites: {', '.join(suites())}"
            )
    return Plan(tuple(grid(given["tasks"], given["methods"], seeds=given["seeds"] or 1, steps=given["steps"])))


def _named(suite: str, plan: Path | None) -> str:
    """The folder in a store that the results of a suite or plan go to."""
    return slug(plan.stem) if plan else suite or "compare"


def _with_flags(cells: Sequence[Cell], texts: list[str], settings: dict[str, Any]) -> list[Cell]:
    parts = split(texts)
    if parts["shaper"]:
        name = next(iter(parts["shaper"]))
        raise ValueError(
            f"--set shaper.{name}: not all methods have that shaper; give a method of your own its settings in a plan "
            "file, under [methods.NAME.set.shaper]"
        )
    agent = {name: literal(text) for name, text in parts["agent"].items()}
    return changed(cells, agent=agent, settings={name: own for name, own in settings.items() if own is not None})


def _listed(text: str) -> list[str] | None:
    """Names with commas between; one that has a comma itself, such as a suite's R(s, a), stands in double quotes."""
    (words,) = csv.reader([" ".join(text.split())], skipinitialspace=True)  # line breaks are spaces here
    return [word.strip() for word in words if word.strip()] or None


def _seeds(text: str) -> int | list[int] | None:
    if not text:
        return None
    try:
        numbers = [int(word) for word in text.removesuffix(",").split(",")]
    except ValueError:
        raise ValueError(f"--seeds {text} is neither a number of runs nor seeds such as 3,5,8 or 7,") from None
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise ValueError(f"--seeds {text} must be at least 1; it is how many independent runs of each method to train")
    if numbers[0] > MOST_SEEDS:
        raise ValueError(f"--seeds {text} is more than {MOST_SEEDS:,}; it is how many independent runs of each method")
    return numbers[0]


def _check_needed(on: Where, **given: object) -> None:
    """Refuse flags that mean something elsewhere only."""
    for name, where in (("address", "ray"), ("gpus", "ray"), ("jobs", "pool")):
        if given[name] is not None and on != where:
            raise ValueError(f"--{name} {given[name]} is for --on {where}, but cells run on {on}; take one of them")


def _check_numbers(**given: int | None) -> None:
    for name, number in given.items():
        if number is not None and number < 1:
            raise ValueError(f"--{name.replace('_', '-')} {number} must be at least 1")


def _gpus(given: float | None, device: str) -> float:
    if given is None:
        return 1.0 if device.startswith("cuda") else 0.0
    if given < 0:
        raise ValueError(f"--gpus {given:g} must not be negative")
    return given
