"""How good a trained policy is: many episodes that neither training nor its evaluations saw, and films of some."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from sasr.envs.population import Population
from sasr.files import write_whole
from sasr.logs.recorders import mean_and_error
from sasr.policy import Policy
from sasr.randomness import stream_seed
from sasr.settings import check_seed
from sasr.tasks import make
from sasr.tasks.environment import TaskLike, close_environment
from sasr.tasks.modules import import_of_run
from sasr.training.evaluate import Evaluation, evaluate

NAME = "eval.json"
MOST_EPISODES = 1_000_000
INSTALL = 'films need imageio and ffmpeg: pip install "sasr[video]"'
_AT_ONCE = 10  # environments of each member; every one may be a simulator with its own memory


class Row(NamedTuple):
    """A line of the table: means and their standard errors, NaN where one value has none."""

    name: str
    ret: tuple[float, float]
    length: tuple[float, float]
    success: tuple[float, float]


def evaluate_policy(
    policy: Policy,
    *,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    allow_import: Sequence[str] = (),
    task: TaskLike | None = None,
) -> Evaluation:
    """Episodes of every member of a run, (P, episodes).

    Args:
        policy: Whose members act.
        episodes: Of each member.
        seed: Other episodes for another seed.
        deterministic: The best actions known, instead of exploring ones.
        workers: Processes that step the environments.
        progress: Told the number of episodes that have ended, over all members.
        allow_import: Modules that the run's task may come from, though they are not installed.
        task: The task itself, where the run was trained on a function or an environment of the caller's.
    """
    if not 1 <= episodes <= MOST_EPISODES:
        raise ValueError(f"episodes={episodes} must be at least 1 and at most {MOST_EPISODES:,}")
    check_seed(seed)
    config = policy.folder.config
    if task is None:
        import_of_run(config.task, allow_import)
        task = config.task
    places = min(episodes, _AT_ONCE)
    rounds: list[Evaluation] = []
    with Population(
        task, seeds=config.seeds, environments=places, workers=workers, **config.task_options
    ) as population:
        for number in range(math.ceil(episodes / places)):
            told = partial(_add, progress, number * places * len(config.seeds)) if progress else None
            stream = f"judge/{seed}/{number}"
            rounds.append(
                evaluate(population, partial(policy.act, deterministic=deterministic), stream=stream, progress=told)
            )
    return Evaluation(*(np.concatenate(parts, axis=1)[:, :episodes] for parts in zip(*rounds, strict=True)))


def _add(progress: Callable[[int], None], before: int, ended: int) -> None:
    progress(before + ended)


def rows(policy: Policy, result: Evaluation) -> list[Row]:
    """A line for each member over its episodes, and one for all: over members where there are several."""
    parts = (result.returns, result.lengths.astype(np.float64), result.success.astype(np.float64))
    lines = [
        Row(f"seed {seed}", *(mean_and_error(part[member]) for part in parts))
        for member, seed in enumerate(policy.seeds)
    ]
    if len(policy.seeds) > 1:
        lines.append(Row("all", *(mean_and_error(part.mean(1)) for part in parts)))
    return lines


def write_judgement(policy: Policy, result: Evaluation, *, seed: int, deterministic: bool) -> Path:
    """Keep the result in the run's folder as eval.json."""
    lines = [
        {
            "name": line.name,
            "return_mean": line.ret[0],
            "return_error": _known(line.ret[1]),
            "length_mean": line.length[0],
            "success_rate": line.success[0],
            "success_error": _known(line.success[1]),
        }
        for line in rows(policy, result)
    ]
    data = {
        "step": policy.steps,
        "episodes": result.returns.shape[1],
        "seed": seed,
        "deterministic": deterministic,
        "rows": lines,
        "members": [
            {"seed": own, "returns": returns.tolist(), "lengths": lengths.tolist(), "success": success.tolist()}
            for own, returns, lengths, success in zip(policy.seeds, *result, strict=True)
        ],
    }
    path = policy.folder.path / NAME
    write_whole(path, json.dumps(data, indent=1) + "\n")
    return path


def film(
    policy: Policy,
    *,
    member: int,
    seed: int = 0,
    deterministic: bool = True,
    allow_import: Sequence[str] = (),
    task: TaskLike | None = None,
) -> Path:
    """One episode of one member as an mp4 in the run's folder; the rest is as for `evaluate_policy`."""
    if not (importlib.util.find_spec("imageio") and importlib.util.find_spec("imageio_ffmpeg")):
        raise ImportError(INSTALL)
    import imageio

    config = policy.folder.config
    if task is None:
        import_of_run(config.task, allow_import)
        task = config.task
    path = policy.folder.path / f"video-seed-{policy.seeds[member]}.mp4"
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part.mp4")  # a film that breaks off leaves none
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws into memory; it would look for a screen
    env = make(task, render_mode="rgb_array", **config.task_options)
    try:
        fps = env.metadata.get("render_fps") or 30
        obs, _ = env.reset(seed=stream_seed(policy.seeds[member], f"film/{seed}") % 2**32)
        # Frames whose sides are not multiples of 16 would be stretched; 2 is what the format needs, see `_even`.
        writer: Any = imageio.get_writer(beside, fps=fps, codec="libx264", macro_block_size=1, quality=7)
        with closing(writer):  # its own exit leaves ffmpeg running where an error comes
            done = False
            while not done:
                writer.append_data(_even(env.render()))
                action, _ = policy.predict(obs, deterministic=deterministic, member=member)
                obs, _, terminated, truncated, _ = env.step(action)
                done = terminated or truncated
            writer.append_data(_even(env.render()))
        beside.replace(path)
    except DependencyNotInstalled as error:
        raise ImportError(
            f'{config.task} is drawn by a package that is missing ({error}): pip install "sasr[all]"'
        ) from None
    finally:
        beside.unlink(missing_ok=True)
        close_environment(env)
    return path


def _even(frame: Any) -> NDArray[np.uint8]:
    picture: NDArray[np.uint8] = np.asarray(frame, np.uint8)
    return picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
