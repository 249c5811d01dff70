"""`sasr train`, `sasr resume` and `sasr settings`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sasr.agents.registry import AGENTS
from sasr.api import Run, clear_up, default_steps, go_on, start
from sasr.cli.options import AllowImport, check_preset, meanings, run_flags, split_settings
from sasr.errors import unknown_name
from sasr.experiments import Method
from sasr.logs import plots
from sasr.logs.console import spread
from sasr.settings import MOST_SEEDS, TrainConfig, shown
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import SHAPERS
from sasr.terminal import Terminal

# Settings that flags give in another way.
_OWN_FLAGS = ("task", "seeds", "steps", "task_settings", "agent_config", "shaper_config")
_MEANING = meanings(TrainConfig)
_PRESET = tyro.conf.arg(help=_MEANING["preset"])
Tensorboard = Annotated[bool, tyro.conf.arg(help="Write TensorBoard events into the run's folder.")]
Track = Annotated[str, tyro.conf.arg(help="Also log to a service: wandb, which obeys WANDB_MODE=offline.")]
if TYPE_CHECKING:
    RunFlags = Any
else:
    _names = [field.name for field in dataclasses.fields(TrainConfig) if field.name not in _OWN_FLAGS]
    RunFlags = Annotated[run_flags(_names), tyro.conf.arg(name="")]


def train(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK", help=_MEANING["task"])],
    flags: RunFlags,
    *,
    seeds: Annotated[int, tyro.conf.arg(help="How many independent runs, all in one process.")] = 1,
    seed: Annotated[int, tyro.conf.arg(help="The first seed; the others follow it.")] = 0,
    steps: Annotated[int | None, tyro.conf.arg(help=_MEANING["steps"] + " None is what suits the task.")] = None,
    exploration: Annotated[
        str | None, tyro.conf.arg(help="How SAC explores: gaussian or noisy; short for --set agent.exploration=…")
    ] = None,
    set: Annotated[
        tyro.conf.UseAppendAction[list[str]],
        tyro.conf.arg(
            metavar="agent.NAME=VALUE",
            help="A setting of the agent, the shaper or the task, such as agent.critic_lr=1e-3, "
            "shaper.reward_weight=0.3 or task.fixed=true; may be given many times. `sasr settings` lists those of "
            "agents and shapers.",
        ),
    ] = [],  # noqa: B006  tyro's way to say "none given"; never changed
    out: Annotated[Path | None, tyro.conf.arg(help="Folder of the run, new; None makes one under runs/.")] = None,
    tensorboard: Tensorboard = True,
    track: Track = "",
) -> None:
    """Train an agent on a task; ends with a run folder that has metrics, checkpoints and pictures."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise ValueError(f"--seeds {seeds} must be from 1 to {MOST_SEEDS:,}; it is how many independent runs to train")
    check_preset(flags.preset, flags.shaper)
    texts = [*set]
    if exploration is not None:
        texts.insert(0, f"agent.exploration={exploration}")
    given = split_settings(texts)
    settings = dict(vars(flags))
    method = Method(
        name=flags.shaper,
        agent=settings.pop("agent"),
        shaper=settings.pop("shaper"),
        preset=settings.pop("preset"),
        agent_settings=given["agent"],
        shaper_settings=given["shaper"],
    )
    length = default_steps(task) if steps is None else steps
    config = method.config(task, seeds=range(seed, seed + seeds), steps=length, task_settings=given["task"], **settings)
    console = Terminal()
    _print_end(start(config, out=out, console=console, events=tensorboard, track=track), console)


def resume(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Folder of the run.")],
    *,
    start_over: Annotated[
        bool,
        tyro.conf.arg(
            help="Begin again at step 0 where no checkpoint is whole; the metrics so far are kept as metrics.1.jsonl."
        ),
    ] = False,
    tensorboard: Tensorboard = True,
    track: Track = "",
    allow_import: AllowImport = [],  # noqa: B006  tyro's way to say "none given"; never changed
) -> None:
    """Go on with a run that was stopped or killed, from its newest whole checkpoint."""
    console, found = Terminal(), Run(run)
    if found.finished and track:
        raise ValueError(f"--track {track}: {run} has taken all its steps, so there is nothing to tell; leave it out")
    if found.finished and not start_over:
        clear_up(found)
        console.print(
            f"{run} has taken all its {found.config.steps:,} steps.", highlight=False, markup=False, soft_wrap=True
        )
    else:
        found = go_on(
            found, console=console, events=tensorboard, track=track, allow_import=allow_import, start_over=start_over
        )
    _print_end(found, console)


def settings(
    name: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME", help="Name of an agent or a shaper; without one, all are listed."),
    ] = "",
    *,
    preset: Annotated[str, _PRESET] = TrainConfig.preset,
) -> None:
    """List what `sasr train --set` can set: of one agent or shaper, or of all."""
    parts: dict[str, tuple[str, Any]] = {own: ("agent", kind.settings()) for own, kind in AGENTS.items()}
    for own, shaping in SHAPERS.items():
        parts[own] = ("shaper", preset_config(preset) if own == "sasr" else shaping.config())
    if name and name not in parts:
        raise unknown_name("agent or shaper", name, parts)
    if name not in ("", "sasr"):
        check_preset(preset, name)
    console = Terminal()
    for own, (part, config) in parts.items():
        if name in ("", own):
            console.print(_settings_table(own, part, config))


def _settings_table(name: str, part: str, config: Any) -> Table:
    table = Table(title=f"{name}: --set {part}.NAME=VALUE", title_justify="left", box=box.SIMPLE)
    for column in ("name", "default", "meaning"):
        table.add_column(column, no_wrap=column == "name")
    meaning = meanings(type(config))
    for field in dataclasses.fields(config):
        table.add_row(
            f"{part}.{field.name}", shown(getattr(config, field.name)), Text(meaning.get(field.name, "")), style=None
        )
    return table


def _print_end(run: Run, console: Console) -> None:
    """Print how the run ended and where its results are; exit with 130, as shells do, where it was stopped."""

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    found = run.evaluation()
    if len(found.steps):
        say(f"evaluation return {spread(found.returns[:, -1])} at step {found.steps[-1]:,}")
    for what, name in (("curve", plots.CURVE), ("success rates", plots.MAPS)):
        if (run.folder / name).exists():
            say(f"{what}: {run.folder / name}")
    if run.finished:
        say(f"run: {run.folder}")
        return
    say(f"stopped at step {run.steps:,} of {run.config.steps:,}; go on with:")
    say(f"sasr resume {run.folder}")
    sys.exit(130)
