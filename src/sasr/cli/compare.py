"""`sasr compare`: a grid of tasks × methods × seeds from one command."""

from __future__ import annotations

import csv
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags of the command."""

    suite: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")] = ""
    """A suite that comes with sasr: table1, ablation-bandwidth, …; docs/experiments.md lists them."""
    plan: Path | None = None
    """A plan file in TOML, in place of a suite."""
    tasks: str = ""
    """Tasks or Gymnasium ids, separated by commas; of a suite or a plan, the tasks to run."""
    methods: str = ""
    """Methods, separated by commas: sasr, sasr-paper, sasr-authors, sac, td3, ppo, noisynet, rnd-ppo, drnd-ppo
    or any shaper. A name with a comma goes in double quotes."""
    seeds: str = ""
    """Number of seeds, or a list with commas: 3,5,8, or 7, for seed 7 alone."""
    steps: int | None = None
    """Environment steps of each seed; None takes the task's default."""
    out: Path = Path("grid")
    """Folder of the grid, with its runs in runs/ and the output of their processes in logs/."""
    on: Where = "pool"
    """Where to train: pool (processes on this machine), inline (this process) or ray (a cluster)."""
    address: str | None = None
    """Address of a Ray cluster, HOST:PORT or auto; None starts Ray on this machine."""
    jobs: int | None = None
    """Runs at a time in a pool; None allows as many as cores and memory do."""
    threads: int | None = None
    """CPU threads of each run; None shares this machine's cores among the runs, and is 1 on Ray."""
    gpus: float | None = None
    """GPUs of each run on Ray, may be a fraction; None is 1 with --device cuda, otherwise 0."""
    population: int | None = None
    """Maximum number of seeds in one process; None allows as many as fit into memory, and on CPUs splits them
    so that no core is idle."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses CUDA if it is available."""
    final_episodes: int = FINAL_EPISODES
    """Episodes of each seed in the final evaluation."""
    set: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="agent.NAME=VALUE")] = ()
    """A setting of all agents, shapers or tasks, such as agent.hidden=64,64; may be repeated."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the runs with estimates of time and memory from a short trial, and train nothing."""
    save: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write the results into a results store."""
    save_stopped: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also write the results of stopped runs, up to the last step that all seeds of a method reached."""
    results: Path | None = None
    """Folder of the results store; None is results/. Files go into PLAN/TASK/ there."""
    tensorboard: bool = True
    """Write TensorBoard events into the runs' folders."""
    track: str = ""
    """Also log to a service: wandb, which respects WANDB_MODE=offline."""

    @property
    def store(self) -> Path | None:
        """The folder for the results in the store; None if they are not saved."""
        if not (self.save or self.save_stopped):
            return None
        name = self.suite or "compare"
        if self.plan:
            name = slug(self.plan.stem)
        return (self.results or Path("results")) / name


def compare(flags: Annotated[Flags, tyro.conf.arg(name="")], settings: RunFlags) -> None:
    """Train every method on every task; the same command again resumes what was interrupted.

    The exit code is 1 if a run failed, and 130 if one was stopped.
    """
    console = Terminal()
    _check(flags)
    choice = Choice(
        tasks=_names(flags.tasks), methods=_names(flags.methods), seeds=_seeds(flags.seeds), steps=flags.steps
    )
    run_settings = {name: value for name, value in vars(settings).items() if value is not None}
    runs = changed(_plan(flags, choice).runs, **split_settings(flags.set), settings=run_settings)
    ray: OnRay | None = None
    if flags.on == "ray":
        ray = OnRay(address=flags.address, gpus=_gpus(flags))
    resources = Resources(
        on=flags.on,
        jobs=flags.jobs,
        threads=flags.threads,
        population=flags.population,
        memories=memories_of(flags.device),
    )

    left = [run for run in runs if not is_done(Job(run=run, out=flags.out))]
    trials: dict[str, Trial] = {}
    if flags.dry_run:
        try_run = partial(try_out, device=flags.device, threads=resources.threads_of(runs))
        trials, cannot_act = once_per_class(left, try_run, console, title="trying")
        footprints = {digest: trial.footprint for digest, trial in trials.items()}
    else:
        footprints, cannot_act = once_per_class(left, examine, console, title="checking")
    runnable = Plan(tuple(_without(cannot_act, runs, choice, console)))
    if not flags.dry_run:
        check_writable(flags.out)
        if flags.store is not None:
            check_store(flags.store.parent)

    # Runs that were started before keep their seeds on any machine: split differently, they would start over.
    parts = runnable.split(resources.most_seeds(runnable, footprints), begun(flags.out))
    share = resources.shared(len(parts.runs))
    jobs = _jobs(parts, share, footprints, flags)
    if flags.dry_run:
        print_estimate(jobs, trials, share.at_once, console)
        return
    write_plan(parts, flags.out)
    comparison = Grid(jobs)
    if ray:
        console.print_line(ray.exposure)
        if comparison.left:
            ray.check(comparison.left)
    run_grid(comparison, ray or resources.runner(share), flags, console)


# ------------------------------------------------------------------ the plan


def _plan(flags: Flags, choice: Choice) -> Plan:
    if flags.suite and flags.plan:
        raise ValueError(f"both a suite ({flags.suite}) and --plan {flags.plan} are given; use one of them")
    if flags.suite:
        return read_suite(flags.suite, choice)
    if flags.plan:
        return read_plan(flags.plan, choice)
    if not choice.tasks or not choice.methods:
        missing = "methods" if choice.tasks else "tasks"
        raise ValueError(
            f"give --{missing}, a plan file with --plan, or one of the paper's suites: {', '.join(suites())}"
        )
    return Plan(tuple(grid(choice.tasks, choice.methods, seeds=choice.seeds or 1, steps=choice.steps)))


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


def _jobs(plan: Plan, share: Share, footprints: Mapping[str, Footprint], flags: Flags) -> list[Job]:
    """A job for each run."""
    command, commit = command_line(), commit_here()
    jobs = []
    for run in plan.runs:
        memory = 0
        if run.settings_digest in footprints:  # runs that are done have none
            memory = footprints[run.settings_digest].bytes_of(run)
        job = Job(
            run=run,
            out=flags.out,
            device=flags.device,
            workers=share.workers_of(run),
            threads=share.threads,
            final_episodes=flags.final_episodes,
            events=flags.tensorboard,
            track=flags.track,
            command=command,
            commit=commit,
            memory=memory,
        )
        jobs.append(job)
    return jobs


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


def _check(flags: Flags) -> None:
    """Refuse impossible values, and flags without effect."""
    for name, runner in (("address", "ray"), ("gpus", "ray"), ("jobs", "pool")):
        value = getattr(flags, name)
        if value is not None and flags.on != runner:
            raise ValueError(f"--{name} {value} needs --on {runner}, not {flags.on}; add it, or leave --{name} out")
    if flags.results is not None and flags.store is None:
        raise ValueError(f"--results {flags.results} needs --save; add it, or leave --results out")
    if flags.final_episodes > MOST_EPISODES:
        raise ValueError(f"--final-episodes {flags.final_episodes} must be at most {MOST_EPISODES:,}")
    for name in ("final_episodes", "jobs", "threads", "population", "steps"):
        number = getattr(flags, name)
        if number is not None and number < 1:
            raise ValueError(f"--{name.replace('_', '-')} {number} must be at least 1")
    if flags.on != "ray":  # whose nodes may have GPUs that this machine lacks
        choose_device(flags.device)
    if flags.track:
        wandb.check(flags.track)


def _gpus(flags: Flags) -> float:
    if flags.gpus is None:
        return float(flags.device.startswith("cuda"))
    if flags.gpus < 0:
        raise ValueError(f"--gpus {flags.gpus:g} must not be negative")
    return flags.gpus


# ------------------------------------------------------------------ the run


def run_grid(grid: Grid, runner: Runner, flags: Flags, console: Terminal) -> None:
    """Run what is left, save what is done, and exit with 1 or 130 if a run failed or was stopped."""
    store = flags.store
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with GridView(grid, console) as view:
            if store is not None:
                grid.on_change = partial(_show_and_save, grid, view, store)
            grid.run(runner)
    finally:
        signal.signal(signal.SIGTERM, before)

    done, failed, stopped = grid.of("done"), grid.of("failed"), grid.of("stopped")
    console.print_line(f"{len(done)} of {len(grid.statuses)} runs done: {flags.out}")
    for status in failed:
        console.print_line(f"failed: {status.job.run}: {status.reason}; log: {status.job.log}", "bold red")
    if store is not None:
        save_results(grid, store, console, flags.save_stopped)
    if stopped:
        console.print_line(f"{len(stopped)} runs were stopped; the same command resumes them", "yellow")
    if done:
        console.print_line(f"sasr report {flags.out}")
    if failed:
        sys.exit(1)
    if stopped:
        sys.exit(130)


def _show_and_save(grid: Grid, view: GridView, store: Path, status: Status) -> None:
    """Save after every run: results survive even if the machine is lost before the last one."""
    if status.state == "done":
        write_complete(grid, store)
    view.show_change(status)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
