"""Write docs/tasks.md and its pictures from the catalogue and from what a random policy does in every task.

python -m pages.tasks    plays every id for at least 10,000 steps, a few minutes on one core
"""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v3 as imageio
import numpy as np
import tyro
from rich.progress import track

from sasr.tasks import Task, make
from sasr.tasks.catalogue import EVERY, VARIANTS

DOCS = Path(__file__).parents[1] / "docs"
USAGE = """\
import gymnasium as gym, sasr
from sasr.tasks import make, sparse

env = gym.make("SASR/AntStand-v0")  # after `import sasr`
env = make("AntStand")  # the same by its short name
env = make("CartPole-v1")  # any Gymnasium id, or "module:Id"
env = sparse(make("Pendulum-v1"), lambda env, obs, info: obs[0] > 0.99)  # your own task\
""".splitlines()
_SIZE = {"width": 240, "height": 240}


@dataclass(frozen=True)
class Settings:
    """What is played."""

    steps: int = 10_000
    """Whole episodes are played until there are at least this many steps."""
    seed: int = 0
    """Of the episodes and of the actions."""
    picture_after: int = 15
    """The step whose end the picture shows."""


class Played(NamedTuple):
    """A random policy in one id."""

    episodes: int
    mean: float
    deviation: float
    length: float
    rewarded: float
    score: float | None


def play(id: str, settings: Settings) -> Played:
    """Uniform actions until enough steps are done."""
    env = make(id)
    env.action_space.seed(settings.seed)
    env.reset(seed=settings.seed)
    returns, lengths, hits, scores = [0.0], [0], [False], [0.0]
    while True:
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        returns[-1] += float(reward)
        lengths[-1] += 1
        hits[-1] |= bool(info["is_success"])
        scores[-1] = info.get("game_score", np.nan)
        if terminated or truncated:
            if sum(lengths) >= settings.steps:
                break
            env.reset()
            returns.append(0.0)
            lengths.append(0)
            hits.append(False)
            scores.append(0.0)
    env.close()
    score = float(np.mean(scores))
    mean, deviation = float(np.mean(returns)), float(np.std(returns))
    shown = None if np.isnan(score) else score
    return Played(len(returns), mean, deviation, float(np.mean(lengths)), float(np.mean(hits)), shown)


def picture(task: Task, settings: Settings) -> str:
    """Draw the task as it stands after a few random steps; the file's name."""
    size = _SIZE if task.family in ("MuJoCo", "Fetch") else {}
    env = make(task.id, render_mode="rgb_array", **size)
    env.action_space.seed(settings.seed)
    env.reset(seed=settings.seed)
    for _ in range(settings.picture_after):
        env.step(env.action_space.sample())
    drawn: Any = env.render()
    frame = np.asarray(drawn)
    env.close()
    if frame.shape[1] > 400:
        frame = frame[::2, ::2]
    name = f"{task.name}.png"
    imageio.imwrite(DOCS / "tasks" / name, frame)
    return name


def section(task: Task, name: str, played: dict[str, Played]) -> list[str]:
    """One task as Markdown."""
    action = (
        f"{task.action} discrete" if isinstance(task.action, int) else f"{task.action[0]} in ±{task.action_bound:g}"
    )
    lines = [f"## {task.name}", "", f"![{task.name}](tasks/{name})", ""]
    lines += [f"{task.family}; action: {action}. {task.note}".strip(), ""]
    columns = ("id", "rewarded when", "ends", "limit", "observation", "random return", "random success")
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for id, variant in task.variants().items():
        random = played[id]
        shape = "×".join(map(str, variant.observation))
        score = "" if random.score is None else f"; score {random.score:.1f}"
        rules = f"{variant.success} | {variant.ends} | {variant.horizon} | {shape}"
        figures = f"{random.mean:.3g} ± {random.deviation:.3g}{score} | {random.rewarded:.0%}"
        lines.append(f"| `{id}` | {rules} | {figures} |")
    return [*lines, ""]


def overview() -> list[str]:
    """All tasks in one table."""
    lines = ["| task | family | rewarded when | SASR in Table 1 |", "|---|---|---|---|"]
    for task in EVERY:
        table1 = "" if task.table1 is None else f"{task.table1:g}"
        name = f"[{task.name}](#{task.name.lower()})"
        lines.append(f"| {name} | {task.family} | {task.code.success} | {table1} |")
    return lines


def header(settings: Settings) -> list[str]:
    """How the figures came about."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=DOCS)
    packages = ("gymnasium", "mujoco", "gymnasium-robotics", "ale-py", "numpy")
    command = shlex.join(["python", "-m", "pages.tasks", *sys.argv[1:]])
    return [
        "# Tasks",
        "",
        "There are eighteen sparse-reward tasks: the paper's fourteen, three from the authors' code, and our TwoRooms.",
        "A plain id is the released environment, which the paper's Table 1 was measured on.",
        "An id with `Paper` follows the paper's text. `sasr tasks` lists them all, `sasr tasks NAME` describes one.",
        "",
        "```python",
        *USAGE,
        "```",
        "",
        *overview(),
        "",
        "Below, *limit* is that of an episode in steps, and *observation* the number of features.",
        "*Random return* is that of uniform actions, mean ± standard deviation over whole episodes.",
        "*Random success* is the share of episodes with a rewarded step.",
        "",
        "<details><summary>How these numbers were measured</summary>",
        "",
        f"At least {settings.steps:,} steps of each id, seed {settings.seed}, "
        f"written by `{command}` at commit {commit.stdout.strip()} on {model[0].split(':')[1].strip()}, "
        f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in packages) + ".",
        "",
        "</details>",
        "",
    ]


def main(settings: Settings) -> None:
    """Play, draw, write."""
    (DOCS / "tasks").mkdir(exist_ok=True)
    played = {id: play(id, settings) for id in track(VARIANTS, "playing")}
    lines = header(settings)
    for task in track(EVERY, "drawing"):
        lines += section(task, picture(task, settings), played)
    (DOCS / "tasks.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main(tyro.cli(Settings))
