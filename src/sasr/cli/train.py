"""`sasr train`, `sasr resume` and `sasr settings`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sasr.agents.registry import AGENTS
from sasr.api import Run, agent_for, clear_up, default_steps, go_on, start
from sasr.cli.settings import MOST_SEEDS, AllowImport, applied, meanings, shown, split
from sasr.errors import unknown_name
from sasr.logs import learning_curve, success_map
from sasr.logs.console import spread
from sasr.settings import Mode, TrainConfig
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import SHAPERS, shaper_named
from sasr.terminal import Terminal

_MEANING = meanings(TrainConfig)
_TRACK = "Also tell a service what happens: wandb, which obeys WANDB_MODE=offline."


def _says(field: str) -> Any:
    """The help of a flag is what its setting means."""
    return tyro.conf.arg(help=_MEANING[field])


def train(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK", help=_MEANING["task"])],
    *,
    agent: Annotated[str, _says("agent")] = TrainConfig.agent,
    shaper: Annotated[str, _says("shaper")] = TrainConfig.shaper,
    preset: Annotated[str, _says("preset")] = TrainConfig.preset,
    exploration: Annotated[
        str | None, tyro.conf.arg(help="How SAC explores: gaussian or noisy; short for --set agent.exploration=…")
    ] = None,
    seeds: Annotated[int, tyro.conf.arg(help="How many independent runs, all in one process.")] = 1,
    seed: Annotated[int, tyro.conf.arg(help="The first seed; the others follow it.")] = 0,
    steps: Annotated[int | None, tyro.conf.arg(help=_MEANING["steps"] + " None is what suits the task.")] = None,
    environments: Annotated[int, _says("environments")] = TrainConfig.environments,
    max_episode_steps: Annotated[int | None, _says("max_episode_steps")] = TrainConfig.max_episode_steps,
    workers: Annotated[int | None, _says("workers")] = TrainConfig.workers,
    device: Annotated[str, _says("device")] = TrainConfig.device,
    accelerate: Annotated[Mode, _says("accelerate")] = TrainConfig.accelerate,
    capacity: Annotated[int, _says("capacity")] = TrainConfig.capacity,
    discount: Annotated[float, _says("discount")] = TrainConfig.discount,
    truncation_is_terminal: Annotated[bool | None, _says("truncation_is_terminal")] = None,
    eval_every: Annotated[int | None, _says("eval_every")] = TrainConfig.eval_every,
    eval_episodes: Annotated[int, _says("eval_episodes")] = TrainConfig.eval_episodes,
    log_every: Annotated[int, _says("log_every")] = TrainConfig.log_every,
    checkpoint_minutes: Annotated[float, _says("checkpoint_minutes")] = TrainConfig.checkpoint_minutes,
    checkpoint_replay: Annotated[bool, _says("checkpoint_replay")] = TrainConfig.checkpoint_replay,
    set: Annotated[
        tyro.conf.UseAppendAction[list[str]],
        tyro.conf.arg(
            metavar="agent.NAME=VALUE",
            help="A setting of the agent or the shaper, such as agent.critic_lr=1e-3 or shaper.reward_weight=0.3; may "
            "be given many times. `sasr settings` lists them.",
        ),
    ] = [],  # noqa: B006  tyro's way to say "none given"; never changed
    out: Annotated[Path | None, tyro.conf.arg(help="Folder of the run, new; None makes one under runs/.")] = None,
    tensorboard: Annotated[bool, tyro.conf.arg(help="Write TensorBoard events into the run's folder.")] = True,
    track: Annotated[str, tyro.conf.arg(help=_TRACK)] = "",
) -> None:
    """Train an agent on a task; ends with a run folder that has metrics, checkpoints and pictures."""
    if seeds < 1:
        raise ValueError(f"--seeds {seeds} must be at least 1; it is how many independent runs to train")
    if seeds > MOST_SEEDS:
        raise ValueError(f"--seeds {seeds} is more than {MOST_SEEDS:,}; it is how many independent runs to train")
    _check_preset(preset, shaper)
    short = [] if exploration is None else [f"agent.exploration={exploration}"]
    agent_config, shaper_config = _configs(task, agent, shaper, preset, [*short, *set])
    config = TrainConfig(
        task=task,
        agent=agent if agent_config is None else agent_for(task, agent),
        shaper=shaper,
        preset=preset,
        seeds=tuple(range(seed, seed + seeds)),
        steps=default_steps(task) if steps is None else steps,
        environments=environments,
        max_episode_steps=max_episode_steps,
        workers=workers,
        device=device,
        accelerate=accelerate,
        capacity=capacity,
        discount=discount,
        truncation_is_terminal=truncation_is_terminal,
        eval_every=eval_every,
        eval_episodes=eval_episodes,
        log_every=log_every,
        checkpoint_minutes=checkpoint_minutes,
        checkpoint_replay=checkpoint_replay,
        agent_config=agent_config,
        shaper_config=shaper_config,
    )
    console = Terminal()
    _tell(start(config, out=out, console=console, events=tensorboard, track=track), console)


def resume(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Folder of the run.")],
    *,
    start_over: Annotated[
        bool,
        tyro.conf.arg(
            help="Begin again at step 0 where no checkpoint is whole; the metrics so far are kept as metrics.1.jsonl."
        ),
    ] = False,
    tensorboard: Annotated[bool, tyro.conf.arg(help="Write TensorBoard events into the run's folder.")] = True,
    track: Annotated[str, tyro.conf.arg(help=_TRACK)] = "",
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
    _tell(found, console)


def settings(
    name: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME", help="Name of an agent or a shaper; without one, all are listed."),
    ] = "",
    *,
    preset: Annotated[str, _says("preset")] = TrainConfig.preset,
) -> None:
    """List what `sasr train --set` can set: of one agent or shaper, or of all."""
    parts: dict[str, tuple[str, Any]] = {own: ("agent", kind.settings()) for own, kind in AGENTS.items()}
    for own, shaping in SHAPERS.items():
        parts[own] = ("shaper", preset_config(preset) if own == "sasr" else shaping.config())
    if name and name not in parts:
        raise unknown_name("agent or shaper", name, parts)
    if name not in ("", "sasr"):
        _check_preset(preset, name)
    console = Terminal()
    for own, (part, config) in parts.items():
        if name in ("", own):
            console.print(_settings_table(own, part, config))


def _check_preset(preset: str, shaper: str) -> None:
    if shaper != "sasr" and preset != TrainConfig.preset:
        raise ValueError(
            f"--preset {preset} is one of SASR's, and {shaper} has none; leave it out, or use --shaper sasr"
        )


def _configs(task: str, agent: str, shaper: str, preset: str, settings: list[str]) -> tuple[Any, Any]:
    """Settings of the agent and of the shaper; None where none of them was given."""
    texts = split(settings)
    agent_config = shaper_config = None
    if texts["agent"]:
        agent_config = applied("agent", AGENTS[agent_for(task, agent)].settings(), texts["agent"])
    if texts["shaper"]:
        kind = shaper_named(shaper)
        if kind is None:
            raise ValueError(f"--set shaper.{next(iter(texts['shaper']))}: --shaper {shaper} has no settings")
        base = preset_config(preset) if shaper == "sasr" else kind.config()
        shaper_config = applied("shaper", base, texts["shaper"])
    return agent_config, shaper_config


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


def _tell(run: Run, console: Console) -> None:
    """How it ended, and what there is to look at; 130, as shells have it, where it was stopped."""

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    found = run.evaluation()
    if len(found.steps):
        say(f"evaluation return {spread(found.returns[:, -1])} at step {found.steps[-1]:,}")
    for what, name in (("curve", learning_curve.NAME), ("success rates", success_map.PICTURE)):
        if (run.folder / name).exists():
            say(f"{what}: {run.folder / name}")
    if run.finished:
        say(f"run: {run.folder}")
        return
    say(f"stopped at step {run.steps:,} of {run.config.steps:,}; go on with:")
    say(f"sasr resume {run.folder}")
    sys.exit(130)
