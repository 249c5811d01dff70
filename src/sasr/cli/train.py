"""`sasr train`, `sasr resume` and `sasr settings`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich import box
from rich.table import Table
from rich.text import Text

from sasr import api
from sasr.agents.registry import AGENTS
from sasr.api import Run, clean_up, default_steps, start
from sasr.cli.options import AllowImport, check_preset, meanings, run_flags, split_settings
from sasr.experiments import Method
from sasr.logs import plots
from sasr.logs.console import spread
from sasr.settings import MOST_SEEDS, TrainConfig, setting_text
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import SHAPERS, unknown_shaper
from sasr.terminal import Terminal

# Settings with flags of another form.
_OTHER_FLAGS = ("task", "seeds", "steps", "task_settings", "agent_config", "shaper_config")
_MEANING = meanings(TrainConfig)
_PRESET = tyro.conf.arg(help=_MEANING["preset"])
Tensorboard = Annotated[bool, tyro.conf.arg(help="Write TensorBoard events into the run's folder.")]
Track = Annotated[str, tyro.conf.arg(help="Also log to a service: wandb, which respects WANDB_MODE=offline.")]
if TYPE_CHECKING:
    RunFlags = Any
else:
    _names = [field.name for field in dataclasses.fields(TrainConfig) if field.name not in _OTHER_FLAGS]
    RunFlags = Annotated[run_flags(_names), tyro.conf.arg(name="")]


def train(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK", help=_MEANING["task"])],
    flags: RunFlags,
    *,
    seeds: Annotated[
        int, tyro.conf.arg(help="Number of seeds: independent runs, trained together in one process.")
    ] = 1,
    seed: Annotated[int, tyro.conf.arg(help="The first seed; the others are the numbers after it.")] = 0,
    steps: Annotated[int | None, tyro.conf.arg(help=_MEANING["steps"] + " None takes the task's default.")] = None,
    exploration: Annotated[
        str | None, tyro.conf.arg(help="SAC's exploration: gaussian or noisy; short for --set agent.exploration=…")
    ] = None,
    set: Annotated[
        tyro.conf.UseAppendAction[list[str]],
        tyro.conf.arg(
            metavar="agent.NAME=VALUE",
            help="A setting of the agent, the shaper or the task: agent.critic_lr=1e-3, shaper.reward_weight=0.3 or "
            "task.fixed=true; may be repeated. `sasr settings` lists those of agents and shapers.",
        ),
    ] = [],  # noqa: B006  tyro's way to say "none given"; never changed
    out: Annotated[Path | None, tyro.conf.arg(help="A new folder for the run; None makes one under runs/.")] = None,
    tensorboard: Tensorboard = True,
    track: Track = "",
) -> None:
    """Train an agent on a task; writes a run folder with metrics, checkpoints and plots."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise ValueError(f"--seeds {seeds} must be from 1 to {MOST_SEEDS:,}; it is the number of seeds")
    check_preset(flags.preset, flags.shaper)
    texts = [*set]
    if exploration is not None:
        texts.insert(0, f"agent.exploration={exploration}")
    by_part = split_settings(texts)
    settings = dict(vars(flags))
    method = Method(
        name=flags.shaper,
        agent=settings.pop("agent"),
        shaper=settings.pop("shaper"),
        preset=settings.pop("preset"),
        agent_settings=by_part["agent"],
        shaper_settings=by_part["shaper"],
    )
    if steps is None:
        steps = default_steps(task)
    seed_range = range(seed, seed + seeds)
    config = method.config(task, seeds=seed_range, steps=steps, task_settings=by_part["task"], **settings)
    _print_end(start(config, out=out, progress=True, events=tensorboard, track=track))


def resume(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Folder of the run.")],
    *,
    start_over: Annotated[
        bool,
        tyro.conf.arg(
            help="If no checkpoint is complete, start over at step 0; the old metrics are kept as metrics.1.jsonl."
        ),
    ] = False,
    tensorboard: Tensorboard = True,
    track: Track = "",
    allow_import: AllowImport = [],  # noqa: B006  tyro's way to say "none given"; never changed
) -> None:
    """Continue a stopped or killed run from its newest complete checkpoint."""
    resumed = Run(run)
    if resumed.finished and track:
        raise ValueError(f"--track {track}: {run} has taken all its steps, so there is nothing to log; leave it out")
    if resumed.finished and not start_over:
        clean_up(resumed)
        Terminal().print_line(f"{run} has taken all its {resumed.config.steps:,} steps.")
    else:
        resumed = api.resume(resumed, events=tensorboard, track=track, allow_import=allow_import, start_over=start_over)
    _print_end(resumed)


def settings(
    name: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME", help="Name of an agent or a shaper; without one, all are listed."),
    ] = "",
    *,
    preset: Annotated[str, _PRESET] = TrainConfig.preset,
) -> None:
    """List the settings for `sasr train --set`, of one agent or shaper or of all."""
    known: dict[str, tuple[str, Any]] = {}
    known |= {agent_name: ("agent", agent.settings()) for agent_name, agent in AGENTS.items()}
    known |= {shaper_name: ("shaper", shaper.config()) for shaper_name, shaper in SHAPERS.items()}
    known["sasr"] = ("shaper", preset_config(preset))
    if name and name not in known:
        raise unknown_shaper(name, known, what="agent or shaper")
    if name not in ("", "sasr"):
        check_preset(preset, name)
    console = Terminal()
    for listed_name, (part, config) in known.items():
        if name in ("", listed_name):
            on_images = AGENTS[listed_name].on_images if part == "agent" else {}
            console.print(_settings_table(listed_name, part, config, on_images))


def _settings_table(name: str, part: str, config: Any, on_images: Mapping[str, Any]) -> Table:
    table = Table(title=f"{name}: --set {part}.NAME=VALUE", title_justify="left", box=box.SIMPLE)
    columns = ["name", "default", "meaning"]
    if on_images:
        columns.insert(2, "on images")
    for column in columns:
        table.add_column(column, no_wrap=column == "name")
    meaning = meanings(type(config))
    for field in dataclasses.fields(config):
        texts: list[str | Text] = [f"{part}.{field.name}", setting_text(getattr(config, field.name))]
        if on_images:
            texts.append(setting_text(on_images[field.name]) if field.name in on_images else "")
        table.add_row(*texts, Text(meaning.get(field.name, "")))
    return table


def _print_end(run: Run) -> None:
    """Print how the run ended and where its results are; exit with 130, as shells do, if it was stopped."""
    console = Terminal()
    evaluation = run.evaluation()
    if len(evaluation.steps):
        returns = spread(evaluation.returns[:, -1])
        console.print_line(f"evaluation return {returns} at step {evaluation.steps[-1]:,}")
    for what, name in (("curve", plots.CURVE), ("success rates", plots.MAPS)):
        if (run.folder / name).exists():
            console.print_line(f"{what}: {run.folder / name}")
    if run.finished:
        console.print_line(f"run: {run.folder}")
        return
    console.print_line(f"stopped at step {run.steps:,} of {run.config.steps:,}; to continue:")
    console.print_line(_resume_command(run))
    sys.exit(130)


def _resume_command(run: Run) -> str:
    """The command that continues a run, with leave to import the module that the user's task came from."""
    words = ["sasr", "resume", str(run.folder)]
    module, _, _ = run.config.task.rpartition(":")
    if module:
        words += ["--allow-import", module]
    return shlex.join(words)
