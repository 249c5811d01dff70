"""`sasr doctor`: is SASR's shaped reward signal or noise on a task?"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.progress import SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.experience.random_rollout import RandomRollout
from sasr.settings import setting_text
from sasr.shaping.diagnosis import Diagnosis, diagnose, suggest, visited
from sasr.shaping.image_diagnosis import UPDATES, ImageDiagnosis, diagnose_images, diagnoses_images
from sasr.shaping.presets import PRESETS
from sasr.shaping.reward_watch import ENOUGH
from sasr.shaping.sasr import SASR
from sasr.terminal import Terminal


def doctor(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    preset: str = "auto",
    steps: int = 6000,
    seed: int = 0,
    info: tyro.conf.UseAppendAction[list[str]] = [],  # noqa: B006  tyro's way to say "none given"; never changed
) -> None:
    """Check whether SASR's shaped reward on a task is signal or noise, and suggest settings.

    The exit code is 1 if it is noise.

    Args:
        task: A task's name, any Gymnasium id, or module:function, which makes an environment.
        preset: The preset to check: auto, paper or authors.
        steps: Steps of a random policy to check it on.
        seed: Seed of the environment and of the random policy.
        info: A number in info, such as a distance to the goal; prints how well a state's neighbours predict it. May be
            repeated.
    """
    console = Terminal()
    shaper = SASR(preset)
    with console.progress() as progress:
        acting = progress.add_task("taking random steps", total=steps)
        rollout = visited(
            task, steps, seed=seed, info=info, progress=lambda done: progress.update(acting, completed=done)
        )
    if diagnoses_images(rollout, shaper):
        _judge_images(console, task, preset, rollout, shaper, seed)
        return
    with console.progress(SpinnerColumn(), TextColumn("{task.description}", markup=False)) as progress:
        bar = progress.add_task("comparing the estimate with the exact kernel")
        diagnosis = diagnose(rollout, shaper, seed=seed)
        better = None
        if not diagnosis.is_signal:
            better = suggest(
                rollout.states, shaper, progress=lambda what: progress.update(bar, description=f"trying {what}")
            )
    console.print(_diagnosis_table(task, preset, rollout, diagnosis))
    if diagnosis.is_signal and diagnosis.warning:
        # Not green: a kernel that distinguishes states is of no use without successes to count.
        console.print(Text.assemble(("signal, but no success seen", "bold yellow"), f": {diagnosis.warning}."))
        return
    if diagnosis.is_signal:
        console.print(f"[bold green]signal[/]: under [bold]{preset}[/] the shaped reward distinguishes states here.")
        if rollout.rewarded == rollout.episodes >= ENOUGH:
            console.print("Every random episode was rewarded: where rewards are not sparse, a bonus has little to add.")
        return
    console.print(Text.assemble(("noise", "bold red"), f": {diagnosis.reason}."))
    if better:
        shaper, after = better
        figures = f"rank correlation {after.rank_correlation:.2f}, {after.lonely:.0%} of new states without a neighbour"
        console.print(f"Try [bold]{_as_flags(preset, shaper)}[/]: {figures}.", highlight=False)
    else:
        console.print("None of the settings tried helps: give the agent fewer or more informative features.")
    if diagnosis.warning:
        console.print(Text.assemble(("no success seen", "bold yellow"), f": {diagnosis.warning}."))
    sys.exit(1)


def _judge_images(console: Terminal, task: str, preset: str, rollout: RandomRollout, shaper: SASR, seed: int) -> None:
    with console.progress() as progress:
        bar = progress.add_task("learning where actions show", total=UPDATES)
        diagnosis = diagnose_images(
            rollout, shaper, seed=seed, progress=lambda done: progress.update(bar, completed=done)
        )
    console.print(_image_table(task, preset, rollout, diagnosis))
    if diagnosis.verdict == "unknown":
        console.print(
            Text.assemble(
                ("unknown", "bold yellow"),
                ': nothing to check the counts against. Let the environment set info["place"], a number for where the '
                "agent is, or show rewards to a random policy.",
            )
        )
    elif diagnosis.verdict == "signal":
        console.print(f"[bold green]signal[/]: under [bold]{preset}[/] counts follow what the agent controls.")
    else:
        console.print(Text.assemble(("noise", "bold red"), f": {diagnosis.reason}."))
        console.print("More steps may be needed to learn from: try [bold]--steps 20000[/].", highlight=False)
        sys.exit(1)


def _image_table(task: str, preset: str, rollout: RandomRollout, diagnosis: ImageDiagnosis) -> Table:
    rows = [
        ("images taken as evidence", f"{diagnosis.stored:,}", ""),
        ("cells of an image", f"{diagnosis.cells:,}", ""),
        ("error of the predicted action", f"{diagnosis.action_loss:.2f}", ""),
        ("rank correlation with visits of the agent's place", _number(diagnosis.visits), "≥ 0.50"),
    ]
    rows += [(f"R² of the {name}, by place", _number(r2), "> 0") for name, r2 in diagnosis.explained.items()]
    return _table(f"{task} under {preset}", rows, rollout)


def _table(title: str, rows: Sequence[tuple[str, str, str]], rollout: RandomRollout) -> Table:
    table = Table(title=Text(title), title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("good", justify="right")
    rewarded = ("random episodes rewarded", f"{rollout.rewarded} of {rollout.episodes}", "")
    for name, value, good in (*rows, rewarded):
        table.add_row(Text(name), value, good)  # Text, because a name from info may have square brackets in it
    return table


def _number(figure: float) -> str:
    return "–" if math.isnan(figure) else f"{figure:.2f}"


def _diagnosis_table(task: str, preset: str, rollout: RandomRollout, diagnosis: Diagnosis) -> Table:
    rows = [
        ("states taken as evidence", f"{diagnosis.stored:,}", ""),
        ("features of a state", f"{diagnosis.features:,}", ""),
        ("bandwidth h", f"{diagnosis.bandwidth:.3g}", ""),
        ("new states without a neighbour", f"{diagnosis.lonely:.0%}", "≤ 50%"),
        ("neighbours of a new state (median)", f"{diagnosis.neighbours:,.1f}", ""),
        ("rank correlation with the exact kernel", f"{diagnosis.rank_correlation:.2f}", "≥ 0.50"),
        ("signal to noise of the bonus", f"{diagnosis.signal_to_noise:.3g}", "≥ 0.05"),
        ("estimates clamped at 0", f"{diagnosis.clamped:.0%}", ""),
    ]
    rows += [(f"R² of the {name}, by neighbours", _number(r2), "> 0") for name, r2 in diagnosis.explained.items()]
    return _table(f"{task} under {preset}", rows, rollout)


def _as_flags(preset: str, shaper: SASR) -> str:
    """The suggestion as flags of `sasr train`: the preset `auto` if it has all changed options, else these options."""
    base = PRESETS[preset]
    changed = {name: value for name, value in vars(shaper.config).items() if getattr(base, name) != value}
    if changed.items() <= vars(PRESETS["auto"]).items():
        return "--preset auto"
    flags = [f"--set shaper.{name}={setting_text(value)}" for name, value in changed.items()]
    return " ".join([f"--preset {preset}", *flags])
