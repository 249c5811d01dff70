"""`sasr doctor`: what to know before a run."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.experience.flatten import state_width
from sasr.experience.random_rollout import RandomRollout, random_rollout
from sasr.shaping.diagnosis import Diagnosis, diagnose, suggest
from sasr.shaping.presets import PRESETS
from sasr.shaping.sasr import SASR
from sasr.tasks import make
from sasr.tasks.environment import close_environment
from sasr.terminal import Terminal


def doctor(
    env_id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV_ID")],
    preset: str = "auto",
    steps: int = 6000,
    seed: int = 0,
) -> None:
    """Tell whether the shaped reward on an environment would be signal or noise, and what to change.

    Exits with 1 where the preset is noise.

    Args:
        env_id: A task's name or any Gymnasium id, such as MountainCarContinuous-v0 or my_package:MyTask-v0.
        preset: Settings to judge: auto, paper or authors.
        steps: Random-policy steps to judge them on.
        seed: Seed of the environment and of the random policy.
    """
    console = Terminal()
    shaper = SASR(preset)
    rollout = _look_at(env_id, steps, seed, console)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), console=console, transient=True
    ) as progress:
        bar = progress.add_task("comparing the estimate with the exact kernel")
        diagnosis = diagnose(rollout.states, shaper, seed=seed)
        better = None
        if not diagnosis.is_signal:
            better = suggest(
                rollout.states, shaper, progress=lambda what: progress.update(bar, description=f"trying {what}")
            )
    console.print(_diagnosis_table(env_id, preset, rollout, diagnosis))
    if diagnosis.is_signal:
        console.print(f"[bold green]signal[/]: under [bold]{preset}[/] the shaped reward tells states apart here.")
        return
    console.print(Text.assemble(("noise", "bold red"), f": {diagnosis.reason}."))
    if better:
        console.print(f"Try [bold]{_how_to_write(preset, better[0])}[/]: {_in_short(better[1])}.", highlight=False)
    else:
        console.print("None of the settings tried helps: give the agent fewer or more telling features.")
    sys.exit(1)


def _look_at(env_id: str, steps: int, seed: int, console: Console) -> RandomRollout:
    env = make(env_id)
    try:
        state_width(env.unwrapped.observation_space)
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("acting at random", total=steps)
            return random_rollout(env, steps, seed=seed, progress=lambda done: progress.update(bar, completed=done))
    finally:
        close_environment(env)


def _diagnosis_table(env_id: str, preset: str, rollout: RandomRollout, found: Diagnosis) -> Table:
    table = Table(title=Text(f"{env_id} under {preset}"), title_justify="left")
    for column in ("figure", "value", "good"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    table.add_row("states taken as evidence", f"{found.stored:,}", "")
    table.add_row("features of a state", f"{found.features:,}", "")
    table.add_row("bandwidth h", f"{found.bandwidth:.3g}", "")
    table.add_row("new states without a neighbour", f"{found.lonely:.0%}", "≤ 50%")
    table.add_row("neighbours of a new state (median)", f"{found.neighbours:,.1f}", "")
    table.add_row("rank correlation with the exact kernel", f"{found.rank_correlation:.2f}", "≥ 0.50")
    table.add_row("signal to noise of the bonus", f"{found.signal_to_noise:.3g}", "≥ 0.05")
    table.add_row("estimates clamped at 0", f"{found.clamped:.0%}", "")
    table.add_row("random episodes rewarded", f"{rollout.rewarded} of {rollout.episodes}", "")
    return table


def _how_to_write(preset: str, shaper: SASR) -> str:
    """The suggestion as a user would type it: `auto` where that has it all, else the options that differ."""
    base = PRESETS[preset]
    changed = {k: v for k, v in vars(shaper.config).items() if getattr(base, k) != v}
    if all(getattr(PRESETS["auto"], name) == value for name, value in changed.items()):
        return 'SASR(preset="auto")'
    options = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    return f'SASR(preset="{preset}", {options})'


def _in_short(found: Diagnosis) -> str:
    return f"rank correlation {found.rank_correlation:.2f}, {found.lonely:.0%} of new states without a neighbour"
