"""`sasr compare`: many runs from one command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import tyro
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.cli.settings import split
from sasr.experiments.estimate import Footprint, examine, measure
from sasr.experiments.grid import Grid, Status, prepare
from sasr.experiments.job import FINAL_EPISODES, Job, is_done
from sasr.experiments.plan import Cell, Plan, changed, grid, seeds_in_words
from sasr.experiments.plan_file import read_plan, read_suite, suites
from sasr.experiments.runners.inline import Inline
from sasr.experiments.runners.pool import Pool, Room, machine_rooms
from sasr.experiments.runners.protocol import Runner
from sasr.experiments.runners.ray import OnRay
from sasr.experiments.values import literal
from sasr.experiments.view import GridView, span
from sasr.records import tracking
from sasr.records.folder import command_line, commit_here
from sasr.report.collect import told_apart
from sasr.report.runs import from_run
from sasr.report.store import check_writable, write_result
from sasr.training.config import choose_device

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
    eval_every: int | None = None,
    eval_episodes: int | None = None,
    checkpoint_minutes: float | None = None,
    final_episodes: int = FINAL_EPISODES,
    set: Annotated[tyro.conf.UseAppendAction[list[str]], tyro.conf.arg(metavar="agent.NAME=VALUE")] = [],  # noqa: B006
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    save: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    results: Path = Path("results"),
    tensorboard: bool = True,
    track: str = "",
) -> None:
    """Train every method on every task; what was interrupted goes on when the same command is given again.

    Exits with 1 where a cell failed, and with 130 where it was stopped.

    Args:
        suite: A plan of the paper's that comes along: table1, ablation-bandwidth, …; docs/experiments.md has them all.
        plan: A plan file of your own, in TOML.
        tasks: Names of tasks or Gymnasium ids, with commas between; in place of the plan's, where there is one.
        methods: Names of methods, with commas between: sasr, sasr-paper, sasr-authors, sac, td3, ppo, any shaper.
        seeds: How many independent runs of each, or the seeds themselves, such as 3,5,8.
        steps: Environment steps of each seed; None is what suits the task.
        out: Folder of the grid: runs are in cells/, what their processes said in logs/.
        on: Where cells run: pool (processes on this machine), inline (this process), ray (a cluster).
        address: Of a Ray cluster, HOST:PORT or auto; None starts Ray on this machine.
        jobs: Cells at a time in a pool; None is as many as cores and memory allow.
        threads: Cores that a cell computes with; None shares out this machine's, or is 1 on Ray.
        gpus: GPUs of a cell on Ray, may be a part of one; None is 1 with --device cuda, else 0.
        population: Most seeds in one process; None is as many as fit into memory.
        device: cpu, cuda, …; auto takes CUDA where there is one.
        environments: Environments of each seed.
        eval_every: Steps between evaluations; 0 is never.
        eval_episodes: Episodes of each seed in an evaluation.
        checkpoint_minutes: Minutes between checkpoints.
        final_episodes: Episodes of each seed in the evaluation at the end.
        set: A setting of all agents, such as agent.hidden=64,64; may be given many times.
        dry_run: Print the cells with an estimate of time and memory from a short trial, and run nothing.
        save: Write the results into a results store.
        results: Folder of that store.
        tensorboard: Write TensorBoard events into the runs' folders.
        track: Also tell a service what happens: wandb, which obeys WANDB_MODE=offline.
    """
    console = Console()
    _check_numbers(final_episodes=final_episodes, jobs=jobs, threads=threads, population=population)
    wanted = _plan(suite, plan, tasks=_listed(tasks), methods=_listed(methods), seeds=_seeds(seeds), steps=steps)
    settings: dict[str, Any] = {
        "environments": environments,
        "eval_every": eval_every,
        "eval_episodes": eval_episodes,
        "checkpoint_minutes": checkpoint_minutes,
    }
    wanted = Plan(tuple(_with_flags(wanted.cells, set, settings)))
    if on != "ray":  # whose nodes may have what this machine has not
        choose_device(device)
    if track:
        tracking.check(track)
    runner_of_ray = OnRay(address=address, gpus=_gpus(gpus, device)) if on == "ray" else None
    if not dry_run:
        prepare(wanted, out)
        if save:
            check_writable(results)
    rooms = machine_rooms(device)
    needs = _examine([cell for cell in wanted.cells if not is_done(Job(cell=cell, out=out))], console)
    wanted = wanted.split(lambda cell: _most_seeds(cell, needs, population, None if on == "ray" else rooms))
    cores = _cores()
    at_once = 1 if on == "inline" else min(jobs or max(1, cores // (threads or 1)), len(wanted.cells))
    share = threads or (1 if on == "ray" else max(1, cores // at_once))
    workers = None if at_once == 1 else 0 if share == 1 else share
    commit = commit_here()
    made = [
        Job(
            cell=cell,
            out=out,
            device=device,
            workers=workers,
            threads=share,
            final_episodes=final_episodes,
            events=tensorboard,
            track=track,
            command=command_line(),
            commit=commit,
            need=needs[cell.kind].of(len(cell.seeds)) if cell.kind in needs else 0,
        )
        for cell in wanted.cells
    ]
    if dry_run:
        _estimate(made, at_once, console)
        return
    prepare(wanted, out)
    runner: Runner = runner_of_ray or (Inline() if on == "inline" else Pool(cores=at_once * share, rooms=rooms))
    _run(Grid(made), runner, out, console, results if save else None)


def _run(grid: Grid, runner: Runner, out: Path, console: Console, results: Path | None) -> None:
    if grid.left:
        runner.check(grid.left)
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with GridView(grid, console) as view:
            if results is not None:
                grid.told = lambda status: _tell_and_save(grid, view, status, results)
            grid.run(runner)
    finally:
        signal.signal(signal.SIGTERM, before)
    failed, stopped = grid.of("failed"), grid.of("stopped")

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style), soft_wrap=True)

    done = len(grid.of("done"))
    say(f"{done} of {len(grid.statuses)} cells done: {out}")
    for status in failed:
        say(f"failed: {status.job.cell}: {status.why}; log: {status.job.log}", "bold red")
    if results is not None:
        _save(grid, results, console)
    if stopped:
        say(f"{len(stopped)} cells were stopped; give the same command again to go on", "yellow")
    if done:
        say(f"sasr report {out}")
    if failed or stopped:
        sys.exit(1 if failed else 130)


def _tell_and_save(grid: Grid, view: GridView, status: Status, results: Path) -> None:
    """Save with every cell that is done: a machine that is taken away before the last one takes nothing along."""
    if status.state == "done":
        _write(grid, results)
    view.told(status)


def _write(grid: Grid, results: Path) -> list[Path]:
    """Each task and method whose cells are all done, as one file."""
    unfinished = _unfinished(grid)
    jobs = [own.job for own in grid.of("done") if own.job.cell.kind not in unfinished]
    found = told_apart([from_run(job.folder) for job in jobs], [job.cell.id for job in jobs])
    return [write_result(result, results) for result in found]


def _unfinished(grid: Grid) -> dict[str, Cell]:
    return {own.job.cell.kind: own.job.cell for own in grid.statuses.values() if own.state != "done"}


def _save(grid: Grid, results: Path, console: Console) -> None:
    for path in _write(grid, results):
        console.print(Text(f"saved: {path}"), soft_wrap=True)
    for cell in _unfinished(grid).values():
        console.print(Text(f"not saved: {cell.method.name} on {cell.task}, which is not complete", "yellow"))


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


def _examine(cells: Sequence[Cell], console: Console) -> dict[str, Footprint]:
    """Make every kind of cell once, so that what can't work is told before anything runs."""
    kinds = {cell.kind: cell for cell in cells}
    found = {}
    with _progress(console) as progress:
        bar = progress.add_task("checking", total=len(kinds))
        for kind, cell in kinds.items():
            progress.update(bar, description=f"checking {cell.method.name} on {cell.task}")
            try:
                found[kind] = examine(cell)
            except (ValueError, TypeError, LookupError, ImportError) as error:
                raise ValueError(
                    f"{cell.method.name} on {cell.task}: {error.args[0] if error.args else error}"
                ) from error
            progress.advance(bar)
    return found


def _estimate(jobs: Sequence[Job], at_once: int, console: Console) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("cell", "task", "method", "seeds"):
        table.add_column(column, no_wrap=column == "cell")
    for column in ("steps", "time", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    kinds = {(job.cell.kind, len(job.cell.seeds)): job for job in jobs}
    tried = {}
    with _progress(console) as progress:
        bar = progress.add_task("trying", total=len(kinds))
        for kind, job in kinds.items():
            progress.update(bar, description=f"trying {job.cell.method.name} on {job.cell.task}")
            tried[kind] = measure(job.cell, device=job.device, workers=job.workers, final_episodes=job.final_episodes)
            progress.advance(bar)
    total = 0.0
    for job in jobs:
        cell, took = job.cell, tried[job.cell.kind, len(job.cell.seeds)]
        done = is_done(job)
        total += 0.0 if done else took.seconds
        words = (cell.id, cell.task, cell.method.name, seeds_in_words(cell.seeds).removeprefix("seeds "))
        time = "done" if done else span(took.seconds)
        table.add_row(*map(Text, (*words, f"{cell.steps:,}", time, f"{took.bytes / 2**30:.2f} GiB")))
    console.print(table)
    console.print(
        f"{len(jobs)} cells, about {span(total)} one after the other, {span(total / at_once)} with {at_once} at a "
        "time; from a short trial on this machine. Nothing was run.",
        highlight=False,
        soft_wrap=True,
    )


def _most_seeds(cell: Cell, needs: dict[str, Footprint], population: int | None, rooms: Sequence[Room] | None) -> int:
    if population:
        return population
    if rooms is None or cell.kind not in needs:
        return len(cell.seeds)
    return needs[cell.kind].seeds_within(min(room.bytes for room in rooms))


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console, transient=True
    )


def _listed(text: str) -> list[str] | None:
    return [word.strip() for word in text.split(",") if word.strip()] or None


def _seeds(text: str) -> int | list[int] | None:
    if not text:
        return None
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"--seeds {text} is neither a number of runs nor seeds such as 3,5,8") from None
    if len(numbers) > 1:
        return numbers
    if numbers[0] < 1:
        raise ValueError(f"--seeds {text} must be at least 1; it is how many independent runs of each method to train")
    return numbers[0]


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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
