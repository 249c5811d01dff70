"""`sasr compare`: many runs from one command."""

from __future__ import annotations

import csv
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.cli.options import MOST_SEEDS, run_flags, split_settings
from sasr.experiments.estimate import Footprint, examine, measure
from sasr.experiments.grid import Grid, Status, begun, write_plan
from sasr.experiments.job import FINAL_EPISODES, Job, is_done
from sasr.experiments.plan import Cell, Plan, changed, grid, seeds_in_words
from sasr.experiments.plan_file import read_plan, read_suite, suites
from sasr.experiments.ray import OnRay
from sasr.experiments.runners import Resources, Runner, Share, Where, machine_rooms
from sasr.experiments.view import GridView, span
from sasr.files import check_writable
from sasr.final_evaluation import MOST_EPISODES
from sasr.logs import wandb
from sasr.logs.run_folder import command_line, commit_here
from sasr.report.read import from_run, is_run, told_apart
from sasr.report.store import Result, check_store, cut_short, read_result, slug, write_result
from sasr.settings import choose_device
from sasr.terminal import Terminal

_SETTINGS = ("environments", "max_episode_steps", "eval_every", "eval_episodes", "checkpoint_minutes")
if TYPE_CHECKING:
    RunFlags = Any
else:
    RunFlags = Annotated[run_flags(_SETTINGS, all_optional=True), tyro.conf.arg(name="")]


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
    final_episodes: int = FINAL_EPISODES,
    set: Annotated[tyro.conf.UseAppendAction[list[str]], tyro.conf.arg(metavar="agent.NAME=VALUE")] = [],  # noqa: B006
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    save: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    save_stopped: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    results: Path | None = None,
    tensorboard: bool = True,
    track: str = "",
    settings: RunFlags,
) -> None:
    """Train every method on every task; the same command again continues runs that were interrupted.

    Exits with 1 where a run failed, and with 130 where one was stopped.

    Args:
        suite: A plan that comes with sasr: table1, ablation-bandwidth, …; docs/experiments.md lists them.
        plan: A plan file of your own, in TOML.
        tasks: Names of tasks or Gymnasium ids, separated by commas; they replace the plan's.
        methods: Names of methods, separated by commas (a name with a comma in double quotes): sasr, sasr-paper,
            sasr-authors, sac, td3, ppo, any shaper.
        seeds: How many seeds of each, or the seeds themselves, such as 3,5,8 or 7, for one.
        steps: Environment steps of each seed; None is what suits the task.
        out: Folder of the grid: its runs are in cells/, what their processes printed in logs/.
        on: Where runs are trained: pool (processes on this machine), inline (this process), ray (a cluster).
        address: Of a Ray cluster, HOST:PORT or auto; None starts Ray on this machine.
        jobs: Runs trained at a time in a pool; None is as many as cores and memory allow.
        threads: Cores that a run computes with; None divides up this machine's, or is 1 on Ray.
        gpus: GPUs of a run on Ray, may be a fraction; None is 1 with --device cuda, else 0.
        population: Most seeds in one process; None is as many as fit into memory, or on CPUs as leave no core idle.
        device: cpu, cuda, …; auto takes CUDA where there is one.
        final_episodes: Episodes of each seed in the evaluation at the end.
        set: A setting of all agents, such as agent.hidden=64,64; may be given many times.
        dry_run: Print the runs with an estimate of time and memory from a short trial, and train nothing.
        save: Write the results into a results store.
        save_stopped: Also write what was stopped, as far as all seeds of a method came; pages then say so.
        results: Folder of that store; results/ by default. Files are in PLAN/TASK/ there.
        tensorboard: Write TensorBoard events into the runs' folders.
        track: Also log to a service: wandb, which obeys WANDB_MODE=offline.
        settings: Settings of all runs, flags with the help that `TrainConfig` gives them.
    """
    console = Terminal()
    _check_runner(on, address=address, gpus=gpus, jobs=jobs)
    if results is not None and not (save or save_stopped):
        raise ValueError(f"--results {results} is where --save writes to; add --save, or leave it out")
    if final_episodes > MOST_EPISODES:
        raise ValueError(f"--final-episodes {final_episodes} must be at most {MOST_EPISODES:,}")
    _check_counts(final_episodes=final_episodes, jobs=jobs, threads=threads, population=population)
    given = {"tasks": _names(tasks), "methods": _names(methods), "seeds": _seeds(seeds), "steps": steps}
    wanted = Plan(tuple(_with_flags(_plan(suite, plan, **given).cells, set, vars(settings))))
    if on != "ray":  # whose nodes may have what this machine has not
        choose_device(device)
    if track:
        wandb.check(track)
    cluster = OnRay(address=address, gpus=_gpus(gpus, device)) if on == "ray" else None
    home = results or Path("results")
    store = home / _store_folder(suite, plan) if save or save_stopped else None
    if not dry_run:
        check_writable(out)
        if store is not None:
            check_store(home)
    resources = Resources(on=on, jobs=jobs, threads=threads, population=population, rooms=machine_rooms(device))
    needs = examine_all([cell for cell in wanted.cells if not is_done(Job(cell=cell, out=out))], console)
    # Runs that have begun keep the seeds they have, on whatever machine: split otherwise, they would begin anew.
    wanted = wanted.split(resources.most_seeds(wanted, needs), begun(out))
    share = resources.shared(len(wanted.cells))
    todo = _jobs(
        wanted, share, needs, out=out, device=device, final_episodes=final_episodes, events=tensorboard, track=track
    )
    if dry_run:
        print_estimate(todo, share.at_once, console)
        return
    write_plan(wanted, out)
    if cluster is not None:
        console.print(Text(cluster.exposure), soft_wrap=True)
    run_grid(Grid(todo), cluster or resources.runner(share), out, console, store, save_stopped=save_stopped)


def _jobs(plan: Plan, share: Share, needs: Mapping[str, Footprint], **same: Any) -> list[Job]:
    """A job for each cell; what is `same` goes to all of them."""
    same |= {"threads": share.threads, "command": command_line(), "commit": commit_here()}
    return [
        Job(
            cell=cell,
            need=needs[cell.kind].of(len(cell.seeds)) if cell.kind in needs else 0,
            workers=share.workers_of(cell),
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


def _store_folder(suite: str, plan: Path | None) -> str:
    """The folder in a store that the results of a suite or plan go to."""
    return slug(plan.stem) if plan else suite or "compare"


def _with_flags(cells: Sequence[Cell], texts: list[str], flags: Mapping[str, Any]) -> list[Cell]:
    parts = split_settings(texts)
    if parts["shaper"]:
        name = next(iter(parts["shaper"]))
        raise ValueError(
            f"--set shaper.{name}: not all methods have that shaper; give a method of your own its settings in a plan "
            "file, under [methods.NAME.set.shaper]"
        )
    given = {name: value for name, value in flags.items() if value is not None}
    return changed(cells, agent=parts["agent"], settings=given)


def _names(text: str) -> list[str] | None:
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


def _check_runner(on: Where, **given: object) -> None:
    """Refuse flags that mean something elsewhere only."""
    for name, where in (("address", "ray"), ("gpus", "ray"), ("jobs", "pool")):
        if given[name] is not None and on != where:
            raise ValueError(f"--{name} {given[name]} is for --on {where}, but cells run on {on}; take one of them")


def _check_counts(**given: int | None) -> None:
    for name, number in given.items():
        if number is not None and number < 1:
            raise ValueError(f"--{name.replace('_', '-')} {number} must be at least 1")


def _gpus(given: float | None, device: str) -> float:
    if given is None:
        return 1.0 if device.startswith("cuda") else 0.0
    if given < 0:
        raise ValueError(f"--gpus {given:g} must not be negative")
    return given


def examine_all(cells: Sequence[Cell], console: Console) -> dict[str, Footprint]:
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


def print_estimate(jobs: Sequence[Job], at_once: int, console: Console) -> None:
    """Print the jobs with the time and memory that a short trial of each kind took."""
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


def run_grid(
    grid: Grid, runner: Runner, out: Path, console: Console, results: Path | None, *, save_stopped: bool = False
) -> None:
    """Run what is left, save what is done, and exit with 1 or 130 where something failed or was stopped."""
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
        save_results(grid, results, console, save_stopped)
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


def save_results(grid: Grid, results: Path, console: Console, save_stopped: bool) -> None:
    """Write every result that is complete, and with `save_stopped` those that were stopped as far as they came."""
    for path in _write(grid, results):
        console.print(Text(f"saved: {path}"), soft_wrap=True)
    for kind, cell in _unfinished(grid).items():
        found = _so_far(grid, kind) if save_stopped else None
        line = f"not saved: {cell.method.name} on {cell.task}, which is not complete"
        if found is not None and (known := _steps_stored(results / found.file)) >= found.steps:
            line = f"not saved: {found.steps:,} steps of {results / found.file}, which has {known:,}"
        elif found is not None:
            line = f"saved: {write_result(found, results)}, {found.steps:,} of {cell.steps:,} steps"
        console.print(Text(line, "yellow"), soft_wrap=True)


def _steps_stored(path: Path) -> int:
    return read_result(path).steps if path.exists() else 0


def _so_far(grid: Grid, kind: str) -> Result | None:
    """What the cells of a kind have in common though some were stopped; None where one failed or has nothing yet."""
    own = [status for status in grid.statuses.values() if status.job.cell.kind == kind]
    if any(status.state not in ("done", "stopped") or not is_run(status.job.folder) for status in own):
        return None
    found = told_apart([from_run(status.job.folder) for status in own], [status.job.cell.id for status in own])
    return cut_short(found[0]) if len(found) == 1 else None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
    )


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
