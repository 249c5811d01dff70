"""What one seed did: the curve of its evaluations, and what it was paid in training between their points."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 200
"""Points kept of a seed's curve."""
BY_POINT = ("returns", "success", "episodes", "trained", "lengths", "bonus", "failures", "values")
"""Parts of a seed's result that have a figure for each point of its curve."""


class Training(NamedTuple):
    """Episodes of a stretch of training."""

    episodes: int
    """Those that ended in it."""
    ret: float
    """Their mean return, NaN without any."""
    length: float
    """Their mean length, in environment steps."""
    bonus: float = math.nan
    """What shaping added to a reward, in the mean over what was learned from; NaN without shaping."""
    failures: float = math.nan
    """Share of failures among the states that SASR had retained, in the mean over the stretch; NaN without SASR."""
    value: float = math.nan
    """The most that the critics said of a batch, in its mean: what they take a step there to be worth, discounted."""


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
        keep = thin(len(self.steps), points)
        spans = zip([0, *(i + 1 for i in keep)], keep, strict=False)
        training = [self._merged(first, i + 1) for first, i in spans] if self.episodes else []
        return replace(
            self,
            steps=tuple(self.steps[i] for i in keep),
            returns=tuple(self.returns[i] for i in keep),
            success=tuple(self.success[i] for i in keep if self.success),
            **training_parts(training),
        )

    def _merged(self, first: int, end: int) -> Training:
        """The stretches of training before the points `first` to `end` - 1, as one."""
        span = slice(first, end)
        counts = np.array(self.episodes[span])
        taken = np.diff([self.steps[first - 1] if first else 0, *self.steps[span]])
        return Training(
            int(counts.sum()),
            _weighted(self.trained[span], counts),
            _weighted(self.lengths[span], counts),
            _weighted(self.bonus[span], taken),
            _weighted(self.failures[span], taken),
            _most(self.values[span]),
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


def training_by_point(steps: Iterable[int], events: Iterable[Mapping[str, Any]]) -> list[Training]:
    """What a run logged of a seed's training, cut at the points of its curve; what came later is left out."""
    points = list(steps)
    ended: list[list[tuple[float, float]]] = [[] for _ in points]
    shaped: list[list[tuple[float, float]]] = [[] for _ in points]
    valued: list[list[float]] = [[] for _ in points]
    for event in events:
        place = bisect_left(points, event["step"])
        if place == len(points):
            continue
        if event["kind"] == "episode":
            ended[place].append((logged(event.get("return")), logged(event.get("length"))))
        elif event["kind"] == "figures":
            won, lost = (logged(event.get(f"shaping/retained_{name}")) for name in ("success", "failure"))
            share = lost / (won + lost) if won + lost > 0 else math.nan
            shaped[place].append((logged(event.get("shaping/bonus_mean")), share))
            valued[place].append(logged(event.get("train/q_mean")))
    return [
        Training(len(own), *_means(own), *_means(figures), float(f"{_most(values):.6g}"))
        for own, figures, values in zip(ended, shaped, valued, strict=True)
    ]


def training_parts(training: Sequence[Training]) -> dict[str, Any]:
    """The parts of a seed's result that tell of its training, stretch by stretch; nothing of what it was without."""
    parts = {"episodes": "episodes", "trained": "ret", "lengths": "length"}
    parts |= {"bonus": "bonus", "failures": "failures", "values": "value"}
    found = {name: tuple(getattr(own, part) for own in training) for name, part in parts.items()}
    for name in ("bonus", "failures", "values"):
        if all(math.isnan(own) for own in found[name]):
            found[name] = ()
    return found


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


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of what is finite in each; six digits are plenty, and keep files small."""
    first, second = (_weighted(own, np.ones(len(own))) for own in (zip(*pairs, strict=True) if pairs else ((), ())))
    return float(f"{first:.6g}"), float(f"{second:.6g}")


def _most(values: Iterable[float]) -> float:
    """The largest of the finite ones, NaN without any."""
    return max((own for own in values if math.isfinite(own)), default=math.nan)


def _weighted(values: Iterable[float], weights: NDArray[Any]) -> float:
    """The mean of the finite ones, NaN without any."""
    own = np.array(tuple(values), np.float64)
    kept = np.isfinite(own) & (weights[: len(own)] > 0)
    if kept.sum() == 1:
        return float(own[kept][0])  # to the last digit
    return float(np.average(own[kept], weights=weights[: len(own)][kept])) if kept.any() else math.nan
