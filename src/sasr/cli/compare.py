"""`sasr compare`: many runs from one command."""

from __future__ import annotations

import csv
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from sasr.cli.compare_estimate import for_each_kind, print_estimate
from sasr.cli.compare_results import save_results, write_complete
from sasr.cli.options import run_flags, split_settings
from sasr.errors import ActionSpaceError
from sasr.experiments.estimate import Footprint, Trial, examine, try_out
from sasr.experiments.grid import Grid, Status, begun, write_plan
from sasr.experiments.job import FINAL_EPISODES, Job, is_done
from sasr.experiments.plan import Cell, Plan, changed, grid
from sasr.experiments.plan_file import Choice, read_plan, read_suite, suites
from sasr.experiments.ray import OnRay
from sasr.experiments.runners import Resources, Runner, Share, Where, machine_rooms
from sasr.experiments.view import GridView
from sasr.files import check_writable
from sasr.final_evaluation import MOST_EPISODES
from sasr.logs import wandb
from sasr.logs.run_folder import command_line, commit_here
from sasr.report.store import check_store, slug
from sasr.settings import MOST_SEEDS, choose_device
from sasr.terminal import Terminal

_SETTINGS = ("environments", "max_episode_steps", "eval_every", "eval_episodes", "checkpoint_minutes", "log_states")
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
        tasks: Names of tasks or Gymnasium ids, separated by commas; of a plan's tasks, those to take.
        methods: Names of methods, separated by commas (a name with a comma in double quotes): sasr, sasr-paper,
            sasr-authors, sac, td3, ppo, noisynet, rnd-ppo, drnd-ppo, any shaper; of a plan's methods, those to take.
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
        set: A setting of all agents, shapers or tasks, such as agent.hidden=64,64 or task.reward_mode=score; may be
            given many times.
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
    _check_counts(final_episodes=final_episodes, jobs=jobs, threads=threads, population=population, steps=steps)
    if on != "ray":  # whose nodes may have what this machine has not
        choose_device(device)
    if track:
        wandb.check(track)

    choice = Choice(tasks=_names(tasks), methods=_names(methods), seeds=_seeds(seeds), steps=steps)
    cells = _with_flags(_plan(suite, plan, choice).cells, set, vars(settings))
    cluster = OnRay(address=address, gpus=_gpus(gpus, device)) if on == "ray" else None
    home = results or Path("results")
    store = home / _store_folder(suite, plan) if save or save_stopped else None

    resources = Resources(on=on, jobs=jobs, threads=threads, population=population, rooms=machine_rooms(device))
    left = [cell for cell in cells if not is_done(Job(cell=cell, out=out))]
    trials: dict[str, Trial] = {}
    if dry_run:
        trial_threads = resources.threads_of(cells)
        trials, cannot_act = for_each_kind(
            left, lambda cell: try_out(cell, device=device, threads=trial_threads), console, title="trying"
        )
        footprints = {kind: trial.footprint for kind, trial in trials.items()}
    else:
        footprints, cannot_act = for_each_kind(left, examine, console, title="checking")
    runnable = Plan(tuple(_without(cannot_act, cells, choice, console)))
    if not dry_run:
        check_writable(out)
        if store is not None:
            check_store(home)

    # Runs that have begun keep their seeds, on any machine: split in another way, they would begin anew.
    parts = runnable.split(resources.most_seeds(runnable, footprints), begun(out))
    share = resources.shared(len(parts.cells))
    todo = _jobs(
        parts, share, footprints, out=out, device=device, final_episodes=final_episodes, events=tensorboard, track=track
    )
    if dry_run:
        print_estimate(todo, trials, share.at_once, console)
        return
    write_plan(parts, out)
    if cluster is not None:
        console.print(Text(cluster.exposure), soft_wrap=True)
    run_grid(Grid(todo), cluster or resources.runner(share), out, console, store, save_stopped=save_stopped)


# ------------------------------------------------------------------ the plan


def _plan(suite: str, plan: Path | None, choice: Choice) -> Plan:
    if suite and plan:
        raise ValueError(f"both a suite ({suite}) and --plan {plan} are given; take one of them")
    if suite:
        return read_suite(suite, choice)
    if plan:
        return read_plan(plan, choice)
    if not choice.tasks or not choice.methods:
        missing = "methods" if choice.tasks else "tasks"
        raise ValueError(
            f"give --{missing}, a plan file with --plan, or one of the paper's suites: {', '.join(suites())}"
        )
    return Plan(tuple(grid(choice.tasks, choice.methods, seeds=choice.seeds or 1, steps=choice.steps)))


def _with_flags(cells: Iterable[Cell], set_texts: list[str], flags: Mapping[str, Any]) -> list[Cell]:
    settings = {name: value for name, value in flags.items() if value is not None}
    return changed(cells, **split_settings(set_texts), settings=settings)


def _without(
    cannot_act: Mapping[str, ActionSpaceError], cells: Sequence[Cell], choice: Choice, console: Console
) -> list[Cell]:
    """The cells whose agents can act; a line for each that is skipped.

    A method that was asked for by name and can act on none of the tasks is an error.
    """
    runnable = [cell for cell in cells if cell.kind not in cannot_act]
    left = {cell.method.name for cell in runnable}
    for cell in cells:
        if cell.kind not in cannot_act:
            continue
        line = f"{cell.method.name} on {cell.task}: {cannot_act[cell.kind]}"
        if not runnable or (choice.methods and cell.method.name not in left):
            raise ValueError(line)
        console.print(Text(f"skipped: {line}", "yellow"), soft_wrap=True)
    return runnable


def _jobs(plan: Plan, share: Share, footprints: Mapping[str, Footprint], **same: Any) -> list[Job]:
    """A job for each cell; what is `same` goes to all of them."""
    same |= {"threads": share.threads, "command": command_line(), "commit": commit_here()}
    jobs = []
    for cell in plan.cells:
        need = footprints[cell.kind].of(cell) if cell.kind in footprints else 0
        jobs.append(Job(cell=cell, need=need, workers=share.workers_of(cell), **same))
    return jobs


def _store_folder(suite: str, plan: Path | None) -> str:
    """The folder in a store that the results of a suite or plan go to."""
    return slug(plan.stem) if plan else suite or "compare"


# ------------------------------------------------------------------ the flags


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


# ------------------------------------------------------------------ the run


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
                grid.told = lambda status: _show_and_save(grid, view, status, results)
            grid.run(runner)
    finally:
        signal.signal(signal.SIGTERM, before)

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style), soft_wrap=True)

    done, failed, stopped = grid.of("done"), grid.of("failed"), grid.of("stopped")
    say(f"{len(done)} of {len(grid.statuses)} cells done: {out}")
    for status in failed:
        say(f"failed: {status.job.cell}: {status.why}; log: {status.job.log}", "bold red")
    if results is not None:
        save_results(grid, results, console, save_stopped)
    if stopped:
        say(f"{len(stopped)} cells were stopped; give the same command again to go on", "yellow")
    if done:
        say(f"sasr report {out}")
    if failed:
        sys.exit(1)
    if stopped:
        sys.exit(130)


def _show_and_save(grid: Grid, view: GridView, status: Status, results: Path) -> None:
    """Save with every cell that is done: a machine that is taken away before the last one takes nothing along."""
    if status.state == "done":
        write_complete(grid, results)
    view.told(status)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
