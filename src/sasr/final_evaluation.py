"""The final evaluation of a policy, over episodes that training has not seen, and videos of episodes."""

from __future__ import annotations

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
from sasr.errors import need
from sasr.files import plain, write_whole
from sasr.logs.recorders import mean_and_error
from sasr.policy import Policy
from sasr.randomness import stream_seed
from sasr.settings import check_seed
from sasr.tasks import make
from sasr.tasks.environment import TaskLike, close_environment
from sasr.tasks.modules import import_of_run
from sasr.training.evaluate import SCORE, Evaluation, evaluate

NAME = "eval.json"
MOST_EPISODES = 1_000_000
_ENVIRONMENTS = 10  # at most, of each seed: every one may be a simulator that takes memory


class Row(NamedTuple):
    """A row of the table: means with standard errors, which are NaN for one value."""

    name: str
    ret: tuple[float, float]
    length: tuple[float, float]
    success: tuple[float, float]
    score: tuple[float, float]
    """Of a game; NaN where a task has none."""


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
    """Evaluate every seed of a run over new episodes, (P, episodes).

    Args:
        policy: The policies of all seeds.
        episodes: Of each seed.
        seed: Seed of the episodes.
        deterministic: Act deterministically instead of exploring.
        workers: Processes that step the environments.
        progress: Called with the number of episodes so far, over all seeds.
        allow_import: Modules that the run's task may come from, though they are not installed.
        task: The task itself, where the run was trained on a function or an environment of the caller's.
    """
    if not 1 <= episodes <= MOST_EPISODES:
        raise ValueError(f"episodes={episodes} must be at least 1 and at most {MOST_EPISODES:,}")
    check_seed(seed)
    config = policy.folder.config
    environments = min(episodes, _ENVIRONMENTS)
    act = partial(policy.act, deterministic=deterministic)
    rounds: list[Evaluation] = []
    with Population(
        _task_of(policy, task, allow_import),
        seeds=config.seeds,
        environments=environments,
        workers=workers,
        info_keys=(SCORE,),
        **config.task_options,
    ) as population:
        for number in range(math.ceil(episodes / environments)):
            before = number * environments * len(config.seeds)

            def on_progress(ended: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + ended)

            stream = f"judge/{seed}/{number}"
            rounds.append(
                evaluate(population, act, frame_stack=policy.frame_stack, stream=stream, progress=on_progress)
            )
    joined = [np.concatenate(parts, axis=1)[:, :episodes] for parts in zip(*rounds, strict=True)]
    return Evaluation(*joined)


def _task_of(policy: Policy, task: TaskLike | None, allow_import: Sequence[str]) -> TaskLike:
    """The task that the caller gives, or the one of the run's settings, imported where that is allowed."""
    if task is not None:
        return task
    name = policy.folder.config.task
    import_of_run(name, allow_import)
    return name


def rows(policy: Policy, result: Evaluation) -> list[Row]:
    """A row for each seed over its episodes, and one over seeds if there are several."""
    columns = {f"seed {seed}": [values[index] for values in result] for index, seed in enumerate(policy.seeds)}
    if len(policy.seeds) > 1:
        columns["all"] = [values.mean(1) if values.size else values.reshape(-1) for values in result]
    table = []
    for name, parts in columns.items():
        table.append(Row(name, *(mean_and_error(values.astype(np.float64)) for values in parts)))
    return table


def write_evaluation(policy: Policy, result: Evaluation, *, seed: int, deterministic: bool) -> Path:
    """Write the result into the run's folder as eval.json."""
    row_data = []
    for row in rows(policy, result):
        data: dict[str, Any] = {"name": row.name, "length_mean": row.length[0]}
        data["return_mean"], data["return_error"] = row.ret
        data["success_rate"], data["success_error"] = row.success
        if result.scores.size:
            data["score_mean"], data["score_error"] = row.score
        row_data.append(data)
    seed_data = []
    for index, run_seed in enumerate(policy.seeds):
        data = {"seed": run_seed}
        for name, values in result._asdict().items():
            if values.size:
                data[name] = values[index].tolist()
        seed_data.append(data)
    data = {
        "step": policy.steps,
        "episodes": result.returns.shape[1],
        "seed": seed,
        "deterministic": deterministic,
        "rows": row_data,
        "members": seed_data,
    }
    path = policy.folder.path / NAME
    write_whole(path, json.dumps(plain(data), indent=1) + "\n")
    return path


def need_video() -> None:
    """Raise unless videos can be written."""
    need("imageio", "imageio_ffmpeg", extra="video", to="record a video")


def record_video(
    policy: Policy,
    *,
    index: int,
    seed: int = 0,
    deterministic: bool = True,
    allow_import: Sequence[str] = (),
    task: TaskLike | None = None,
) -> Path:
    """Record an episode of the run's seed number `index` as an mp4 in the run folder; see `evaluate_policy`."""
    need_video()
    import imageio

    config = policy.folder.config
    path = policy.folder.path / f"video-seed-{policy.seeds[index]}.mp4"
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part.mp4")  # an error leaves no unfinished video
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws into memory and needs no screen
    env = make(_task_of(policy, task, allow_import), render_mode="rgb_array", **config.task_options)
    try:
        fps = env.metadata.get("render_fps") or 30
        obs, _ = env.reset(seed=stream_seed(policy.seeds[index], f"film/{seed}") % 2**32)
        # imageio would stretch frames to sides that are multiples of 16; the format needs multiples of 2, see `_even`.
        writer: Any = imageio.get_writer(beside, fps=fps, codec="libx264", macro_block_size=1, quality=7)
        with closing(writer):  # on an error its own exit would leave ffmpeg running
            done, frames = False, None
            while not done:
                writer.append_data(_even(env.render()))
                action, frames = policy.predict(obs, frames, deterministic=deterministic, member=index)
                obs, _, terminated, truncated, _ = env.step(action)
                done = terminated or truncated
            writer.append_data(_even(env.render()))
        beside.replace(path)
    except DependencyNotInstalled as error:
        raise ImportError(
            f'{config.task} needs a missing package for drawing ({error}): pip install "sasr[all]"'
        ) from None
    finally:
        beside.unlink(missing_ok=True)
        close_environment(env)
    return path


def _even(frame: Any) -> NDArray[np.uint8]:
    picture: NDArray[np.uint8] = np.asarray(frame, np.uint8)
    return picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]
