"""Parts for recorders: the newest episodes of each seed, scalars by tag, and several recorders as one."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasr.logs.metrics import read_metrics
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Recorder, Trainer

EPISODES = 100
"""As many as Stable-Baselines3 averages."""


class Recorders(Recorder):
    """Calls every recorder in order, and saves their states by name.

    If one fails, the run goes on, with one notice; but "metrics" is essential.
    """

    def __init__(self, recorders: Mapping[str, Recorder]) -> None:
        self.recorders = dict(recorders)
        self._steps = 0
        self._failed: set[str] = set()

    def begin(self, trainer: Trainer) -> None:
        """Begin each recorder."""
        self._steps = trainer.loop.steps
        self._each(lambda name, recorder: recorder.begin(trainer))

    def turned(self, steps: int) -> None:
        """Called very often."""
        self._steps = steps
        self._each(lambda name, recorder: recorder.turned(steps))

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Episodes of training ended."""
        self._each(lambda name, recorder: recorder.episodes(steps, ended))

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """Figures of the agent and the shaper."""
        self._each(lambda name, recorder: recorder.figures(steps, figures))

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """The agents were evaluated."""
        self._each(lambda name, recorder: recorder.evaluation(steps, result))

    def notice(self, steps: int, text: str) -> None:
        """Something a person should know."""
        self._each(lambda name, recorder: recorder.notice(steps, text))

    def save(self) -> dict[str, Any]:
        """What each saves, by name."""
        saved: dict[str, Any] = {}

        def save_one(name: str, recorder: Recorder) -> None:
            saved[name] = recorder.save()

        self._each(save_one)
        return saved

    def load(self, saved: Mapping[str, Any]) -> None:
        """Each goes on from what it saved; one that is new since then starts from nothing."""
        self._each(lambda name, recorder: recorder.load(saved.get(name, {})))

    def close(self, steps: int) -> None:
        """The last first."""
        self._each(lambda name, recorder: recorder.close(steps), backwards=True)

    def _each(self, call: Callable[[str, Recorder], None], *, backwards: bool = False) -> None:
        names = list(self.recorders)
        if backwards:
            names.reverse()
        for name in names:
            try:
                call(name, self.recorders[name])
            except Exception as error:
                if name == "metrics":
                    raise
                if name not in self._failed:
                    self._failed.add(name)
                    self.notice(self._steps, f"{name} failed ({type(error).__name__}: {error}); the run goes on")


class RecentEpisodes:
    """The last episodes of each of P seeds; `means` are NaN for a seed that has not finished one.

    >>> recent = RecentEpisodes(2)
    >>> recent.add(0, ret=3.0, length=10, success=True)
    >>> recent.means()["ep_rew_mean"]
    array([ 3., nan])
    """

    def __init__(self, seeds: int) -> None:
        self.kept: list[deque[tuple[float, int, bool]]] = [deque(maxlen=EPISODES) for _ in range(seeds)]

    def add(self, index: int, *, ret: float, length: int, success: bool) -> None:
        """Another episode of the seed with this index ended."""
        self.kept[index].append((ret, length, success))

    def add_ended(self, ended: Sequence[Episode]) -> None:
        """Episodes that have just ended; the return is the environment's, whatever the shaper adds."""
        for episode in ended:
            self.add(episode.member, ret=episode.ret, length=episode.length, success=episode.success)

    def add_past(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Episodes of the metrics file, from before the run was resumed."""
        for event in events:
            if event["kind"] == "episode":
                ret = number_or_nan(event["return"])
                self.add(event["member"], ret=ret, length=event["length"], success=event["success"])

    def means(self) -> dict[str, NDArray[np.float64]]:
        """Return, length and success rate by Stable-Baselines3's names, each (P,)."""
        rows = np.full((len(self.kept), 3), np.nan)
        for row, episodes in zip(rows, self.kept, strict=True):
            if episodes:
                row[:] = np.mean(episodes, axis=0)
        return {"ep_rew_mean": rows[:, 0], "ep_len_mean": rows[:, 1], "success_rate": rows[:, 2]}


class ScalarRecorder(Recorder):
    """Returns in training, evaluations and figures as scalars under Stable-Baselines3's tags.

    Subclasses write them; figures of the agent and the shaper have tags already, train/… and shaping/….
    """

    def __init__(self, folder: Path) -> None:
        self.run = folder

    def begin(self, trainer: Trainer) -> None:
        """A resumed run reads its newest episodes."""
        config = trainer.config
        self.seeds = config.seeds
        self.every = config.log_every
        self.steps = trainer.loop.steps
        self.recent = RecentEpisodes(len(self.seeds))
        if self.steps:
            self.recent.add_past(read_metrics(self.run, "episode"))

    def turned(self, steps: int) -> None:
        """The newest episodes, as often as the agent's figures."""
        is_due = steps // self.every != self.steps // self.every
        self.steps = steps
        if is_due:
            self.write(steps, self.rollout_scalars(steps))

    def rollout_scalars(self, steps: int) -> dict[str, NDArray[np.float64]]:
        """Means over the newest episodes, each (P,)."""
        return {f"rollout/{name}": values for name, values in self.recent.means().items()}

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Episodes of training ended."""
        self.recent.add_ended(ended)

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """Figures of the agent and the shaper."""
        self.write(steps, figures)

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Mean return, length and success rate."""
        scalars = {
            "eval/mean_reward": result.returns.mean(1),
            "eval/mean_ep_length": result.lengths.mean(1),
            "eval/success_rate": result.success.mean(1),
        }
        if result.scores.size:
            scalars["eval/game_score"] = result.scores.mean(1)
        self.write(steps, scalars)

    def write(self, steps: int, scalars: Mapping[str, NDArray[np.float64]]) -> None:
        """Write values of all seeds, each (P,), by their tags."""
        raise NotImplementedError


def number_or_nan(value: float | None) -> float:
    """A number of the metrics file, where null is NaN."""
    return math.nan if value is None else float(value)


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard error over the finite values; NaN if there are too few.

    >>> mean_and_error(np.array([1.0, 3.0, np.nan]))
    (2.0, 1.0)
    """
    known = values[np.isfinite(values)]
    mean = error = math.nan
    if len(known) > 0:
        mean = float(known.mean())
    if len(known) > 1:
        error = float(known.std(ddof=1) / np.sqrt(len(known)))
    return mean, error
