"""A sparse task of one's own, in ten lines, trained with and without SASR: a pendulum, rewarded while it stands.

    python examples/own_task.py

`make` has a name, so commands find it, too, in the folder of this file:

    sasr doctor own_task:make
    sasr train own_task:make
    sasr compare --tasks own_task:make --methods sasr,sac --seeds 3
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro

import sasr
from sasr.tasks import sparse


def upright(env: gym.Env[Any, Any], observation: np.ndarray, info: dict[str, Any]) -> bool:
    """What the task is about: the pendulum points up and hardly moves."""
    cosine, _, speed = observation
    return bool(cosine > 0.95 and abs(speed) < 1.0)


def make(render_mode: str | None = None) -> gym.Env[Any, Any]:
    """A pendulum that is rewarded only while it stands; `render_mode` lets `sasr eval --video` film it."""
    env = gym.make("Pendulum-v1", max_episode_steps=200, render_mode=render_mode)
    return sparse(env, upright)


def main(steps: int = 15_000, seeds: int = 1, out: Path = Path("runs/own-task")) -> None:
    """Diagnose the task, then train on it with SASR and without.

    Args:
        steps: environment steps of each seed.
        seeds: how many independent runs of each.
        out: folder for both runs.
    """
    found = sasr.diagnose(make)
    print(f"the doctor says {found.verdict}; {found.warning or found.reason or 'nothing to change'}")
    for shaper in ("sasr", "none"):
        run = sasr.train(make, shaper=shaper, steps=steps, seeds=seeds, out=out / shaper)
        print(f"shaper {shaper}: last evaluation {run.evaluation().returns[:, -1].mean():.1f} of 200")


if __name__ == "__main__":
    tyro.cli(main)
