"""Where a run has been and what SASR paid it, from its folder into a small file for docs/results/analysis.md.

python -m benchmarks.analysis runs/MountainCar-sasr-…                 visited states, and rewards along the position
python -m benchmarks.analysis runs/AntStand-sasr-… --name height      rewards along the observation's first entry

The run must have been trained by `sasr train`, whose last checkpoint has the replay buffer, with no more steps than
that holds. SASR is shown the stored steps once more, in their order: its streams are the run's, so the evidence is as
well, which is checked.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
import tyro
from rich.progress import track
from torch import Tensor

from pages.analysis import Stage, bin_stages, count_visits, write_analysis
from sasr import Batch, Host, Transition
from sasr.experience.retained import FAILURE, SUCCESS
from sasr.logs.run_folder import RunFolder
from sasr.report.read import method_name
from sasr.report.seeds import thin
from sasr.shaping.beta import beta_mean
from sasr.shaping.sasr import SASR
from sasr.tasks.catalogue import VARIANTS, full_id
from sasr.training import checkpoint
from sasr.training.trainer import make_shaper

SHOWN = 4_000
"""Most states of a stage that are asked about."""


@dataclass(frozen=True)
class Settings:
    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder."""
    out: Path = Path("results/analysis")
    """Folder of the files."""
    seed_index: int = 0
    """Which of the run's seeds, counted from 0."""
    period: int = 25_000
    """Steps of a period in the picture of visited states."""
    stages: int = 4
    """Moments at which rewards and success rates are asked for, evenly over the run."""
    feature: int = 0
    """The observation's entry that they are shown along."""
    name: str = ""
    """What that entry is; known where the task's card names it."""


class Steps(NamedTuple):
    """What one seed has in its replay buffer, in order; each (T, E, …)."""

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor


class Saved(NamedTuple):
    """A run's last checkpoint, as far as it is needed here."""

    folder: RunFolder
    steps: Steps
    evidence: Tensor | None
    """(2,) how many states of each outcome the run's own SASR had retained; None of another shaper."""
    unseen: int
    """Steps at the end that it had not seen yet."""


def read(run: Path, index: int) -> Saved:
    """Everything that a seed went through."""
    folder = RunFolder.open(run)
    seeds = folder.config.seeds
    if not 0 <= index < len(seeds):
        raise ValueError(f"--seed-index {index} is none of this run's {len(seeds)}; count from 0")
    newest = checkpoint.newest(folder.checkpoints)
    if newest is None or "replay" not in newest.parts:
        raise ValueError(f"{run} has no checkpoint with a replay buffer; train with `sasr train`, which keeps it")
    saved = newest.read("replay")
    _, _, filled, _, _ = saved["_extra_state"].tolist()
    if filled * folder.config.envs < newest.facts["steps"]:
        raise ValueError(
            f"{run} took {newest.facts['steps']:,} steps, but its replay buffer holds the last {filled:,} only; "
            "train with a larger one"
        )
    rows = {name: saved[name][index] for name in ("obs", "action", "reward", "terminated", "truncated", "aside")}
    following, serial = rows["obs"][1 : filled + 1], rows.pop("aside")[:filled].long()
    aside = (serial >= 0).view(*serial.shape, *(1,) * (following.dim() - 2))
    next_obs = torch.where(aside, saved["finals"][serial.clamp(min=0) % len(saved["finals"])], following)
    shaper = newest.read("shaper") if "shaper" in newest.parts else {}
    size = shaper.get("evidence.estimator.size")
    unseen = bool(newest.read("unobserved")) if "unobserved" in newest.parts else False
    return Saved(
        folder,
        Steps(next_obs=next_obs, **{name: row[:filled] for name, row in rows.items()}),
        None if size is None else size[index],
        int(unseen),
    )


def stages_of(saved: Saved, settings: Settings) -> list[Stage]:
    """SASR's rewards and success rates for the states of the last steps before each stage."""
    config, steps = saved.folder.config, saved.steps
    shaper = make_shaper(config)
    if not isinstance(shaper, SASR) or shaper.config.storage == "flags":
        raise ValueError("only SASR that keeps its own states (storage='own') can be shown a run again")
    shaper.bind(
        Host(
            observation_space=saved.folder.observation_space,
            action_space=saved.folder.action_space,
            seeds=(config.seeds[settings.seed_index],),
            envs=config.envs,
            discount=config.discount,
        )
    )
    total = len(steps.reward)
    every = total // settings.stages
    if every < 1:
        raise ValueError(f"--stages {settings.stages} are more than the run's {total} steps")
    stages: list[Stage] = []
    for row in track(range(total), "showing SASR the run again"):
        shaper.observe(Transition(*(part[row][None] for part in _in_order(steps))))
        if row + 1 == total - saved.unseen:
            _check(shaper, saved)
        if (row + 1) % every == 0 and len(stages) < settings.stages:
            stages.append(_stage(shaper, steps, row + 1 - every, row + 1, settings.feature))
    return stages


def _in_order(steps: Steps) -> tuple[Tensor, ...]:
    return steps.obs, steps.action, steps.reward, steps.next_obs, steps.terminated, steps.truncated


def _check(shaper: SASR, saved: Saved) -> None:
    again = shaper.evidence.estimator.size[0].cpu()
    if saved.evidence is None or not torch.equal(again, saved.evidence.to(again.dtype)):
        raise ValueError(
            f"shown again, the run gives evidence {again.tolist()}, not {saved.evidence}: not the same run"
        )


def _stage(shaper: SASR, steps: Steps, first: int, end: int, feature: int) -> Stage:
    parts = [part[first:end].flatten(0, 1) for part in _in_order(steps)[:4]]
    kept = thin(len(parts[0]), SHOWN)
    obs, action, reward, next_obs = (part[kept][None] for part in parts)
    # No step ends here: what a terminal state goes on earning is another matter.
    batch = Batch(obs, action, reward, next_obs, torch.zeros_like(reward, dtype=torch.bool))
    counts = shaper.counts(batch)
    rate = beta_mean(counts[..., SUCCESS], counts[..., FAILURE])
    along = obs[0].flatten(1)[:, feature]
    return Stage(f"{end:,} steps", along.numpy(), shaper.shape(batch)[0].numpy(), rate[0].numpy())


def facts_of(saved: Saved, settings: Settings) -> dict[str, Any]:
    """What a reader must know about the run; no folder of this machine."""
    run_facts, config = saved.folder.facts, saved.folder.config
    machine = run_facts.get("machine", {})
    where = [machine.get("processor"), f"{machine.get('cores')} cores"]
    where += [machine["device"]] if machine.get("device") not in (None, "cpu") else []
    words = [word if word != str(settings.run) else "RUN" for word in sys.argv[1:]]
    task = config.task.removeprefix("SASR/").removesuffix("-v0")
    return {
        "task": task,
        "method": method_name({"shaper": config.shaper, "preset": config.preset, "agent": config.agent}),
        "seed": config.seeds[settings.seed_index],
        "commit": str(run_facts.get("commit") or "unknown")[:10],
        "machine": ", ".join(map(str, where)),
        "run": re.sub(r" --out \S+", "", str(run_facts.get("command", ""))),
        "command": shlex.join(["python", "-m", "benchmarks.analysis", *words]),
    }


def main(settings: Settings) -> None:
    saved = read(settings.run, settings.seed_index)
    facts = facts_of(saved, settings)
    variant = VARIANTS.get(full_id(saved.folder.config.task))
    axes = variant.axes if variant else ()
    stem = f"{re.sub(r'[^A-Za-z0-9._+-]+', '_', facts['task'])}-{facts['method']}"
    states = saved.steps.obs.flatten(0, 1).flatten(1).numpy()
    if states.shape[1] == 2:
        space = saved.folder.observation_space
        assert isinstance(space, gym.spaces.Box)
        low, high = np.ravel(space.low), np.ravel(space.high)
        bounds = None
        if np.isfinite(low).all() and np.isfinite(high).all():
            bounds = ((float(low[0]), float(high[0])), (float(low[1]), float(high[1])))
        names = axes if len(axes) == 2 else ("observation[0]", "observation[1]")
        visits = count_visits(states, period=settings.period, names=names, bins=40, bounds=bounds, **facts)
        print(write_analysis(visits, settings.out / f"{stem}-visits.json"))
    if saved.folder.config.shaper == "sasr":
        name = settings.name or dict(enumerate(axes)).get(settings.feature, f"observation[{settings.feature}]")
        along = bin_stages(stages_of(saved, settings), name=name, **facts)
        print(write_analysis(along, settings.out / f"{stem}-along-{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json"))


if __name__ == "__main__":
    try:
        main(tyro.cli(Settings))
    except ValueError as error:
        sys.exit(str(error))
