"""`sasr compare`: a grid of tasks × methods × seeds from one command."""

from __future__ import annotations

import csv
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sasr.cli.compare_estimate import once_per_class, print_estimate
from sasr.cli.compare_results import save_results, write_complete
from sasr.cli.options import run_flags, split_settings
from sasr.errors import ActionSpaceError
from sasr.experiments.estimate import Footprint, Trial, examine, try_out
from sasr.experiments.grid import Grid, Status, begun, write_plan
from sasr.experiments.job import FINAL_EPISODES, Job, is_done
from sasr.experiments.plan import GridRun, Plan, changed, grid
from sasr.experiments.plan_file import Choice, read_plan, read_suite, suites
from sasr.experiments.ray import OnRay
from sasr.experiments.runners import Resources, Runner, Share, Where, memories_of
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
    """Train every method on every task; the same command again resumes what was interrupted.

    The exit code is 1 if a run failed, and 130 if one was stopped.

    Args:
        suite: A suite that comes with sasr: table1, ablation-bandwidth, …; docs/experiments.md lists them.
        plan: A plan file in TOML, in place of a suite.
        tasks: Tasks or Gymnasium ids, separated by commas; of a suite or a plan, the tasks to run.
        methods: Methods, separated by commas: sasr, sasr-paper, sasr-authors, sac, td3, ppo, noisynet,
            rnd-ppo, drnd-ppo or any shaper. A name with a comma goes in double quotes.
        seeds: Number of seeds, or a list with commas: 3,5,8, or 7, for seed 7 alone.
        steps: Environment steps of each seed; None takes the task's default.
        out: Folder of the grid, with its runs in cells/ and the output of their processes in logs/.
        on: Where to train: pool (processes on this machine), inline (this process) or ray (a cluster).
        address: Address of a Ray cluster, HOST:PORT or auto; None starts Ray on this machine.
        jobs: Runs at a time in a pool; None allows as many as cores and memory do.
        threads: CPU threads of each run; None shares this machine's cores among the runs, and is 1 on Ray.
        gpus: GPUs of each run on Ray, may be a fraction; None is 1 with --device cuda, otherwise 0.
        population: Maximum number of seeds in one process; None allows as many as fit into memory, and on CPUs splits
            them so that no core is idle.
        device: cpu, cuda or cuda:1; auto uses CUDA if it is available.
        final_episodes: Episodes of each seed in the final evaluation.
        set: A setting of all agents, shapers or tasks, such as agent.hidden=64,64; may be repeated.
        dry_run: Print the runs with estimates of time and memory from a short trial, and train nothing.
        save: Write the results into a results store.
        save_stopped: Also write the results of stopped runs, up to the last step that all seeds of a method reached.
        results: Folder of the results store; None is results/. Files go into PLAN/TASK/ there.
        tensorboard: Write TensorBoard events into the runs' folders.
        track: Also log to a service: wandb, which respects WANDB_MODE=offline.
        settings: Settings of all runs, flags with the help that `TrainConfig` gives them.
    """
    console = Terminal()
    _check_runner(on, address=address, gpus=gpus, jobs=jobs)
    if results is not None and not (save or save_stopped):
        raise ValueError(f"--results {results} needs --save; add it, or leave --results out")
    if final_episodes > MOST_EPISODES:
        raise ValueError(f"--final-episodes {final_episodes} must be at most {MOST_EPISODES:,}")
    _check_counts(final_episodes=final_episodes, jobs=jobs, threads=threads, population=population, steps=steps)
    if on != "ray":  # whose nodes may have GPUs that this machine lacks
        choose_device(device)
    if track:
        wandb.check(track)

    choice = Choice(tasks=_names(tasks), methods=_names(methods), seeds=_seeds(seeds), steps=steps)
    runs = _with_flags(_plan(suite, plan, choice).runs, set, vars(settings))
    cluster = OnRay(address=address, gpus=_gpus(gpus, device)) if on == "ray" else None
    store_root = results or Path("results")
    store: Path | None = None
    if save or save_stopped:
        store = store_root / _store_folder(suite, plan)

    resources = Resources(on=on, jobs=jobs, threads=threads, population=population, memories=memories_of(device))
    left = [run for run in runs if not is_done(Job(run=run, out=out))]
    trials: dict[str, Trial] = {}
    if dry_run:
        trial_threads = resources.threads_of(runs)
        trials, cannot_act = once_per_class(
            left, lambda run: try_out(run, device=device, threads=trial_threads), console, title="trying"
        )
        footprints = {digest: trial.footprint for digest, trial in trials.items()}
    else:
        footprints, cannot_act = once_per_class(left, examine, console, title="checking")
    runnable = Plan(tuple(_without(cannot_act, runs, choice, console)))
    if not dry_run:
        check_writable(out)
        if store is not None:
            check_store(store_root)

    # Runs that were started before keep their seeds on any machine: split differently, they would start over.
    parts = runnable.split(resources.most_seeds(runnable, footprints), begun(out))
    share = resources.shared(len(parts.runs))
    todo = _jobs(
        parts, share, footprints, out=out, device=device, final_episodes=final_episodes, events=tensorboard, track=track
    )
    if dry_run:
        print_estimate(todo, trials, share.at_once, console)
        return
    write_plan(parts, out)
    if cluster is not None:
        console.print_line(cluster.exposure)
    run_grid(Grid(todo), cluster or resources.runner(share), out, console, store, save_stopped=save_stopped)


# ------------------------------------------------------------------ the plan


def _plan(suite: str, plan: Path | None, choice: Choice) -> Plan:
    if suite and plan:
        raise ValueError(f"both a suite ({suite}) and --plan {plan} are given; use one of them")
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


def _with_flags(runs: Iterable[GridRun], set_texts: list[str], flags: Mapping[str, Any]) -> list[GridRun]:
    settings = {name: value for name, value in flags.items() if value is not None}
    return changed(runs, **split_settings(set_texts), settings=settings)


def _without(
    cannot_act: Mapping[str, ActionSpaceError], runs: Sequence[GridRun], choice: Choice, console: Terminal
) -> list[GridRun]:
    """The runs whose agents can act; prints a line for each of the others.

    A method that was chosen by name and can act on none of the tasks is an error.
    """
    runnable = [run for run in runs if run.settings_digest not in cannot_act]
    methods = {run.method.name for run in runnable}
    for run in runs:
        error = cannot_act.get(run.settings_digest)
        if error is None:
            continue
        line = f"{run.method.name} on {run.task}: {error}"
        if not runnable or (choice.methods and run.method.name not in methods):
            raise ValueError(line)
        console.print_line(f"skipped: {line}", "yellow")
    return runnable


def _jobs(plan: Plan, share: Share, footprints: Mapping[str, Footprint], **common: Any) -> list[Job]:
    """A job for each run; `common` are fields of all of them."""
    common |= {"threads": share.threads, "command": command_line(), "commit": commit_here()}
    jobs = []
    for run in plan.runs:
        footprint = footprints.get(run.settings_digest)  # None for runs that are done
        memory = footprint.of(run) if footprint else 0
        jobs.append(Job(run=run, memory=memory, workers=share.workers_of(run), **common))
    return jobs


def _store_folder(suite: str, plan: Path | None) -> str:
    """The folder in a store for the results of a suite or plan."""
    if plan:
        return slug(plan.stem)
    return suite or "compare"


# ------------------------------------------------------------------ the flags


def _names(text: str) -> list[str] | None:
    """Names separated by commas; a name with a comma, such as a suite's R(s, a), is in double quotes."""
    (names,) = csv.reader([" ".join(text.split())], skipinitialspace=True)  # line breaks count as spaces
    return [name.strip() for name in names if name.strip()] or None


def _seeds(text: str) -> int | list[int] | None:
    if not text:
        return None
    try:
        numbers = [int(word) for word in text.removesuffix(",").split(",")]
    except ValueError:
        raise ValueError(f"--seeds {text} is neither a number of seeds nor a list such as 3,5,8 or 7,") from None
    if "," in text:
        return numbers
    if not 1 <= numbers[0] <= MOST_SEEDS:
        raise ValueError(
            f"--seeds {text} must be from 1 to {MOST_SEEDS:,}: the number of seeds of each method; "
            f"for seed {text} alone write {text},"
        )
    return numbers[0]


def _check_runner(on: Where, **flags: object) -> None:
    """Refuse flags that only another runner has."""
    for name, runner in (("address", "ray"), ("gpus", "ray"), ("jobs", "pool")):
        if flags[name] is not None and on != runner:
            raise ValueError(f"--{name} {flags[name]} needs --on {runner}, not {on}; add it, or leave --{name} out")


def _check_counts(**flags: int | None) -> None:
    for name, number in flags.items():
        if number is not None and number < 1:
            raise ValueError(f"--{name.replace('_', '-')} {number} must be at least 1")


def _gpus(flag: float | None, device: str) -> float:
    if flag is None:
        return float(device.startswith("cuda"))
    if flag < 0:
        raise ValueError(f"--gpus {flag:g} must not be negative")
    return flag


# ------------------------------------------------------------------ the run


def run_grid(
    grid: Grid, runner: Runner, out: Path, console: Terminal, results: Path | None, *, save_stopped: bool = False
) -> None:
    """Run what is left, save what is done, and exit with 1 or 130 if a run failed or was stopped."""
    if grid.left:
        runner.check(grid.left)
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with GridView(grid, console) as view:
            if results is not None:
                grid.on_change = lambda status: _show_and_save(grid, view, status, results)
            grid.run(runner)
    finally:
        signal.signal(signal.SIGTERM, before)
    done, failed, stopped = grid.of("done"), grid.of("failed"), grid.of("stopped")
    console.print_line(f"{len(done)} of {len(grid.statuses)} runs done: {out}")
    for status in failed:
        console.print_line(f"failed: {status.job.run}: {status.reason}; log: {status.job.log}", "bold red")
    if results is not None:
        save_results(grid, results, console, save_stopped)
    if stopped:
        console.print_line(f"{len(stopped)} runs were stopped; the same command resumes them", "yellow")
    if done:
        console.print_line(f"sasr report {out}")
    if failed:
        sys.exit(1)
    if stopped:
        sys.exit(130)


def _show_and_save(grid: Grid, view: GridView, status: Status, results: Path) -> None:
    """Save after every run: results survive even if the machine is lost before the last one."""
    if status.state == "done":
        write_complete(grid, results)
    view.show_change(status)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
