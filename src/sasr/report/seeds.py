"""What one seed did: the curve of its evaluations, and what it was paid in training between their points."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_RETAINED_FAILURE = "shaping/retained_failure"
MAX_POINTS = 200
"""Points kept of a seed's curve."""


class Training(NamedTuple):
    """A stretch of training, between two points of a curve; the fields are called as in `SeedResult`."""

    episodes: int
    """Those that ended in it."""
    trained: float
    """Their mean return, NaN without any."""
    lengths: float
    """Their mean length, in environment steps."""
    bonus: float = math.nan
    """What shaping added to a reward, in the mean over what was learned from; NaN without shaping."""
    failures: float = math.nan
    """Share of failures among the states that SASR had retained, in the mean over the stretch; NaN without SASR."""
    values: float = math.nan
    """The largest mean value that the critics gave a batch."""


BY_POINT = ("returns", "success", *Training._fields)
"""Parts of a seed's result that have a figure for each point of its curve."""


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """What one seed did. Figures that were not finite are NaN here and null in the file."""

    seed: int
    steps: tuple[int, ...] = ()
    """Environment steps of the curve's points, ascending."""
    returns: tuple[float, ...] = ()
    """Mean return at each of them, the environment's."""
    success: tuple[float, ...] = ()
    """Share of successful episodes at each of them; empty where that is not known."""
    episodes: tuple[int, ...] = ()
    """Training episodes that ended since the point before; this and the next two are empty where it is not known."""
    trained: tuple[float, ...] = ()
    """Their mean return, with exploration."""
    lengths: tuple[float, ...] = ()
    """Their mean length, in environment steps."""
    bonus: tuple[float, ...] = ()
    """What shaping added to a reward since the point before, in the mean; empty without shaping."""
    failures: tuple[float, ...] = ()
    """Share of failures among the states that SASR had retained, likewise."""
    values: tuple[float, ...] = ()
    """The most that the critics said of a batch since the point before, in its mean; empty where it is not known."""
    taken: int = 0
    """Environment steps that it took; where this is not known, those up to the curve's last point."""
    final: tuple[float, ...] = ()
    """Return of every episode of the final evaluation; empty until there was one."""
    final_success: float = math.nan
    """Share of successful episodes in the final evaluation."""

    def __post_init__(self) -> None:
        for name in BY_POINT:
            values = getattr(self, name)
            if len(values) != len(self.steps) and (values or name == "returns"):
                raise ValueError(f"seed {self.seed} has {len(self.steps)} steps, but {len(values)} {name}")
        if any(later <= earlier for earlier, later in zip(self.steps, self.steps[1:], strict=False)):
            raise ValueError(f"steps of seed {self.seed} do not ascend")
        if len({len(own) for own in (self.episodes, self.trained, self.lengths)}) > 1:
            raise ValueError(f"seed {self.seed} has episodes, trained and lengths of training only in part")

    @property
    def last(self) -> int:
        """How far it came, in environment steps."""
        return max(self.taken, *self.steps[-1:], 0)

    @property
    def score(self) -> float:
        """Mean return of the final evaluation, or of the curve's last point while there is none; NaN without either."""
        values = self.final or self.returns[-1:]
        return float(np.mean(values)) if values else math.nan

    def training(self, after: int, until: int) -> Training | None:
        """Episodes of training that ended after one point of the curve (or 0) and until another; None if not known."""
        if not self.episodes or until not in self.steps or after not in (0, *self.steps) or after >= until:
            return None
        first = self.steps.index(after) + 1 if after in self.steps else 0
        return self._merged(first, self.steps.index(until) + 1)

    def thinned(self, points: int = MAX_POINTS) -> SeedResult:
        """The same with at most so many points, the first and the last among them."""
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
        """The stretches of training before the points `first` to `end` - 1, as one."""
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
    """A seed's result from plain data; what does not belong there is refused by name."""
    if not isinstance(data, dict) or not isinstance(data.get("seed"), int):
        raise ValueError("a part of seeds has no whole number as its seed")
    check_names(SeedResult, data, f"seed {data['seed']}")
    parts = dict(data)
    for name in ("steps", "final", *BY_POINT):
        if not isinstance(parts.get(name, []), list):
            raise ValueError(f"{name} of seed {data['seed']} is no list")
    for name in ("returns", "success", "trained", "lengths", "bonus", "failures", "values", "final"):
        parts[name] = tuple(number(value) for value in parts.get(name, ()))
    parts["steps"], parts["episodes"] = tuple(parts.get("steps", ())), tuple(parts.get("episodes", ()))
    if not all(isinstance(own, int) and own >= 0 for own in parts["episodes"]):
        raise ValueError(f"seed {data['seed']} has numbers of episodes that are no whole numbers of at least 0")
    if not isinstance(parts.get("taken", 0), int):
        raise ValueError(f"seed {data['seed']} took {data['taken']!r} steps, which is no whole number")
    parts["final_success"] = number(parts.get("final_success"))
    return SeedResult(**parts)


@dataclass
class _Logged:
    """What a run logged of a seed in one stretch of training."""

    returns: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    bonus: list[float] = field(default_factory=list)
    failures: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, event: Mapping[str, Any]) -> None:
        """An episode that ended, or figures of the agent and the shaper."""
        if event["kind"] == "episode":
            self.returns.append(logged(event.get("return")))
            self.lengths.append(logged(event.get("length")))
        elif event["kind"] == "figures":
            succeeded, failed = logged(event.get("shaping/retained_success")), logged(event.get(_RETAINED_FAILURE))
            has_both = succeeded + failed > 0  # NaN is not
            self.failures.append(failed / (succeeded + failed) if has_both else math.nan)
            self.bonus.append(logged(event.get("shaping/bonus_mean")))
            self.values.append(logged(event.get("train/q_mean")))

    def means(self) -> Training:
        """As it is stored: six digits are plenty, and keep files small."""
        means = [_mean(self.returns), _mean(self.lengths), _mean(self.bonus), _mean(self.failures)]
        return Training(len(self.returns), *map(_six_digits, [*means, _largest(self.values)]))


def training_by_point(steps: Iterable[int], events: Iterable[Mapping[str, Any]]) -> list[Training]:
    """What a run logged of a seed's training, cut at the points of its curve; what came later is left out."""
    points = list(steps)
    stretches = [_Logged() for _ in points]
    for event in events:
        place = bisect_left(points, event["step"])
        if place < len(points):
            stretches[place].add(event)
    return [stretch.means() for stretch in stretches]


def training_parts(training: Sequence[Training]) -> dict[str, Any]:
    """The parts of a seed's result about its training, stretch by stretch; empty where nothing is known."""
    parts: dict[str, Any] = {}
    for place, name in enumerate(Training._fields):
        parts[name] = tuple(stretch[place] for stretch in training)
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


def check_names(kind: type[Any], data: Iterable[str], what: str) -> None:
    """Refuse parts that a kind of data does not have."""
    unknown = sorted(set(data) - {own.name for own in fields(kind)})
    if unknown:
        raise ValueError(f"{what} has no part {unknown[0]!r}; it was changed by hand, or written by another version")


def number(value: Any) -> float:
    """A figure from plain data, null for one that is not finite."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def logged(value: Any) -> float:
    """A figure from a run's log, NaN for whatever else stands there."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


def _picked(values: tuple[Any, ...], kept: Sequence[int]) -> tuple[Any, ...]:
    """The values at these places; of nothing, nothing."""
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
