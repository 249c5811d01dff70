"""The result of one seed: the curve of its evaluations, and its training between their points."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 200
"""Points kept of a seed's curve."""


class Training(NamedTuple):
    """Training between two points of a curve; the fields have the same names in `SeedResult`."""

    episodes: int
    """Episodes that ended."""
    trained: float
    """Their mean return, NaN without any."""
    lengths: float
    """Their mean length, in environment steps."""
    bonus: float = math.nan
    """Mean bonus of the batches learned from; NaN without shaping."""
    failures: float = math.nan
    """Mean share of failures among SASR's retained states; NaN without SASR."""
    values: float = math.nan
    """The largest mean Q-value of a batch."""


BY_POINT = ("returns", "success", *Training._fields)
"""Fields of a seed's result with a value for each point of its curve."""


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """The result of one seed. Values that are not finite are NaN here and null in the file."""

    seed: int
    steps: tuple[int, ...] = ()
    """Environment steps of the curve's points, ascending."""
    returns: tuple[float, ...] = ()
    """Mean return of the environment at each of them."""
    success: tuple[float, ...] = ()
    """Success rate at each of them; empty if unknown."""
    episodes: tuple[int, ...] = ()
    """Training episodes that ended since the point before; this and the next two are empty if unknown."""
    trained: tuple[float, ...] = ()
    """Their mean return, with exploration."""
    lengths: tuple[float, ...] = ()
    """Their mean length, in environment steps."""
    bonus: tuple[float, ...] = ()
    """Mean bonus since the point before; empty without shaping."""
    failures: tuple[float, ...] = ()
    """Mean share of failures among SASR's retained states since the point before; empty without SASR."""
    values: tuple[float, ...] = ()
    """The largest mean Q-value of a batch since the point before; empty if unknown."""
    taken: int = 0
    """Environment steps so far; if unknown, those up to the curve's last point."""
    final: tuple[float, ...] = ()
    """Return of every episode of the final evaluation; empty without one."""
    final_success: float = math.nan
    """Success rate of the final evaluation."""

    def __post_init__(self) -> None:
        for name in BY_POINT:
            values = getattr(self, name)
            if len(values) != len(self.steps) and (values or name == "returns"):
                raise ValueError(f"seed {self.seed} has {len(self.steps)} steps, but {len(values)} {name}")
        if any(later <= earlier for earlier, later in itertools.pairwise(self.steps)):
            raise ValueError(f"steps of seed {self.seed} do not ascend")
        if not len(self.episodes) == len(self.trained) == len(self.lengths):
            raise ValueError(f"seed {self.seed} has episodes, trained and lengths of training only in part")

    @property
    def last(self) -> int:
        """The last environment step."""
        return max(self.taken, *self.steps[-1:], 0)

    @property
    def score(self) -> float:
        """Mean return of the final evaluation, or else of the curve's last point; NaN without either."""
        values = self.final or self.returns[-1:]
        if not values:
            return math.nan
        return float(np.mean(values))

    def training(self, after: int, until: int) -> Training | None:
        """Training after one point of the curve (or 0) and until another; None if unknown."""
        if not self.episodes or until not in self.steps or after not in (0, *self.steps) or after >= until:
            return None
        return self._merged(bisect_right(self.steps, after), self.steps.index(until) + 1)

    def thinned(self, points: int = MAX_POINTS) -> SeedResult:
        """The same with at most so many points of the curve, among them the first and the last."""
        kept = thin(len(self.steps), points)
        training = []
        if self.episodes:
            for before, at in itertools.pairwise([-1, *kept]):
                training.append(self._merged(before + 1, at + 1))
        return replace(
            self,
            steps=_picked(self.steps, kept),
            returns=_picked(self.returns, kept),
            success=_picked(self.success, kept),
            **training_parts(training),
        )

    def _merged(self, first: int, end: int) -> Training:
        """The training before the points `first` to `end` - 1."""
        span = slice(first, end)
        counts = np.array(self.episodes[span])
        began = self.steps[first - 1] if first else 0
        steps = np.diff([began, *self.steps[span]])
        return Training(
            int(counts.sum()),
            _weighted_mean(self.trained[span], counts),
            _weighted_mean(self.lengths[span], counts),
            _weighted_mean(self.bonus[span], steps),
            _weighted_mean(self.failures[span], steps),
            _largest(self.values[span]),
        )


def seed_from_json(data: Any) -> SeedResult:
    """A seed's result from plain data; an error names a part that is wrong."""
    if not isinstance(data, dict) or not isinstance(data.get("seed"), int):
        raise ValueError("a part of seeds has no integer as its seed")
    check_names(SeedResult, data, f"seed {data['seed']}")
    parts = dict(data)
    for name in ("steps", "final", *BY_POINT):
        if not isinstance(parts.get(name, []), list):
            raise ValueError(f"{name} of seed {data['seed']} is not a list")
    for name in ("returns", "success", "trained", "lengths", "bonus", "failures", "values", "final"):
        parts[name] = tuple(map(number, parts.get(name, ())))
    for name in ("steps", "episodes"):
        parts[name] = tuple(parts.get(name, ()))
    if not all(isinstance(count, int) and count >= 0 for count in parts["episodes"]):
        raise ValueError(f"seed {data['seed']} has episodes that are not integers of at least 0")
    if not isinstance(parts.get("taken", 0), int):
        raise ValueError(f"seed {data['seed']} took {data['taken']!r} steps, which is not an integer")
    parts["final_success"] = number(parts.get("final_success"))
    return SeedResult(**parts)


def training_by_point(steps: Iterable[int], events: Iterable[Mapping[str, Any]]) -> list[Training]:
    """A seed's training between the points of its curve, from a run's events; later events are left out."""
    points = list(steps)
    by_point: list[list[Mapping[str, Any]]] = [[] for _ in points]
    for event in events:
        index = bisect_left(points, event["step"])
        if index < len(points):
            by_point[index].append(event)
    return list(map(_training_of, by_point))


def _training_of(events: Iterable[Mapping[str, Any]]) -> Training:
    """Rounded to six digits, which keeps files small."""
    returns, lengths, bonus, failures, values = (list[float]() for _ in range(5))
    for event in events:
        if event["kind"] == "episode":
            returns.append(logged(event.get("return")))
            lengths.append(logged(event.get("length")))
        elif event["kind"] == "figures":
            failed = logged(event.get("shaping/retained_failure"))
            retained = failed + logged(event.get("shaping/retained_success"))
            if retained > 0:  # which NaN is not
                failures.append(failed / retained)
            bonus.append(logged(event.get("shaping/bonus_mean")))
            values.append(logged(event.get("train/q_mean")))
    means = map(_mean, (returns, lengths, bonus, failures))
    return Training(len(returns), *map(_six_digits, (*means, _largest(values))))


def training_parts(training: Sequence[Training]) -> dict[str, Any]:
    """The fields of a seed's result about its training; those without any value are empty."""
    parts: dict[str, Any] = {}
    for name in Training._fields:
        parts[name] = tuple(getattr(part, name) for part in training)
    for name in ("bonus", "failures", "values"):
        if all(map(math.isnan, parts[name])):
            parts[name] = ()
    return parts


def thin(count: int, points: int = MAX_POINTS) -> list[int]:
    """Indices of at most `points` of `count` items, evenly spread, with the first and the last.

    >>> thin(5, 3), thin(2, 3), thin(0, 3)
    ([0, 2, 4], [0, 1], [])
    """
    if count <= points:
        return list(range(count))
    return [round(i) for i in np.linspace(0, count - 1, points)]


def check_names(data_class: type[Any], data: Iterable[str], what: str) -> None:
    """Raise for names that are not fields of a dataclass."""
    unknown = sorted(set(data) - {field.name for field in fields(data_class)})
    if unknown:
        raise ValueError(f"{what} has no part {unknown[0]!r}; it was changed by hand, or written by another version")


def number(value: Any) -> float:
    """A number from plain data, where null is NaN."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def logged(value: Any) -> float:
    """A number from a run's log; NaN for any other value."""
    if not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _picked(values: tuple[Any, ...], kept: Sequence[int]) -> tuple[Any, ...]:
    """The values at these indices; empty if there are none."""
    if not values:
        return ()
    return tuple(values[place] for place in kept)


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def _largest(values: Iterable[float]) -> float:
    """The largest of the finite ones, NaN without any."""
    return max(filter(math.isfinite, values), default=math.nan)


def _mean(values: Sequence[float]) -> float:
    return _weighted_mean(values, np.ones(len(values)))


def _weighted_mean(values: Sequence[float], weights: NDArray[Any]) -> float:
    """The mean of the finite ones, NaN without any."""
    figures = np.array(values, np.float64)
    weights = weights[: len(figures)]
    kept = np.isfinite(figures) & (weights > 0)
    if not kept.any():
        return math.nan
    if kept.sum() == 1:
        return float(figures[kept][0])  # to the last digit
    return float(np.average(figures[kept], weights=weights[kept]))
