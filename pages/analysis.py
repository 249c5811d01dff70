"""What a run went through, small enough to keep: visited states and shaped rewards, counted in bins stage by stage."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasr.files import check_writable, write_whole
from sasr.report.store import Problem

KIND = "sasr-analysis"
VERSION = 1
MAX_BYTES = 100_000
"""Of a file: a repository keeps it for ever."""

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


class Stage(NamedTuple):
    """The shaped reward along one feature of the state, at one moment of a run."""

    name: str
    feature: ArrayLike
    """(n,) the feature of visited states, such as the ant's height."""
    reward: ArrayLike
    """(n,) shaped rewards that were drawn for them."""
    rate: ArrayLike
    """(n,) success rates that were estimated for them."""


@dataclass(frozen=True, kw_only=True)
class Visits:
    """How often two features of the state had which values, period by period."""

    names: tuple[str, str]
    """What the features are."""
    x: Floats
    """(X + 1,) edges of the first one's bins."""
    y: Floats
    """(Y + 1,) edges of the second one's."""
    steps: tuple[int, ...]
    """(K + 1,) where periods begin and the last one ends."""
    counts: Counts
    """(K, Y, X) visits."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Task, method, seed, command, commit and machine of the run, and the command that counted."""

    @property
    def density(self) -> Floats:
        """Visits of each period as a density over both features, (K, Y, X)."""
        area = np.diff(self.y)[:, None] * np.diff(self.x)
        total = self.counts.sum((1, 2), keepdims=True)
        return np.asarray(self.counts / (np.maximum(total, 1) * area))


@dataclass(frozen=True, kw_only=True)
class Along:
    """Shaped rewards and estimated success rates along one feature of the state, stage by stage."""

    name: str
    """What the feature is."""
    stages: tuple[str, ...]
    x: Floats
    """(X + 1,) edges of the feature's bins."""
    y: Floats
    """(Y + 1,) edges of the shaped reward's."""
    counts: Counts
    """(K, Y, X) states that were rewarded so."""
    rate: Floats
    """(K, X) mean success rate of the states in a bin, NaN where there are none."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Task, method, seed, command, commit and machine of the run, and the command that counted."""


Analysis = Visits | Along
_FORMS: dict[str, type[Visits] | type[Along]] = {"visits": Visits, "along": Along}


def count_visits(
    states: ArrayLike,
    *,
    period: int = 25_000,
    names: tuple[str, str] = ("position", "velocity"),
    bounds: tuple[tuple[float, float], tuple[float, float]] | None = None,
    bins: int = 60,
    **facts: Any,
) -> Visits:
    """Count visited states.

    Args:
        states: (steps, 2) two features of every visited state, in order.
        period: Steps of a period.
        names: What the features are.
        bounds: Lowest and highest value of each feature; None takes those that occur.
        bins: Bins along each feature.
        facts: Where the states are from.
    """
    visited = np.asarray(states, np.float64)
    if visited.ndim != 2 or visited.shape[1] != 2 or not len(visited):
        raise ValueError(f"states of shape {visited.shape} are not (steps, 2); choose two features of the state")
    limits = bounds or tuple(zip(visited.min(0).tolist(), visited.max(0).tolist(), strict=True))
    x, y = (np.histogram_bin_edges([], bins, range=limit) for limit in limits)
    starts = range(0, len(visited), period)
    parts = [visited[start : start + period] for start in starts]
    counts = [np.histogram2d(part[:, 0], part[:, 1], bins=[x, y])[0].T for part in parts]
    return Visits(names=names, x=x, y=y, steps=(*starts, len(visited)), counts=np.array(counts, np.int64), facts=facts)


def bin_stages(stages: Sequence[Stage], *, name: str = "height", bins: int = 40, **facts: Any) -> Along:
    """Count shaped rewards along a feature, and take the mean of the success rates in its bins."""
    if not stages:
        raise ValueError("no stages to draw; give at least one moment of a run")
    features = [np.asarray(stage.feature, np.float64) for stage in stages]
    rewards = [np.asarray(stage.reward, np.float64) for stage in stages]
    x, y = (np.histogram_bin_edges(np.concatenate(values), bins) for values in (features, rewards))
    counts, rates = [], []
    for stage, feature, reward in zip(stages, features, rewards, strict=True):
        counts.append(np.histogram2d(feature, reward, bins=[x, y])[0].T)
        total, _ = np.histogram(feature, x, weights=np.asarray(stage.rate, np.float64))
        count, _ = np.histogram(feature, x)
        rates.append(np.where(count > 0, total / np.maximum(count, 1), math.nan))
    names = tuple(stage.name for stage in stages)
    return Along(
        name=name, stages=names, x=x, y=y, counts=np.array(counts, np.int64), rate=np.array(rates), facts=facts
    )


def write_analysis(analysis: Analysis, path: str | Path) -> Path:
    """Write a file, whole or not at all; one that is too large for a repository is refused."""
    place = Path(path)
    check_writable(place.parent)
    form = next(name for name, form_class in _FORMS.items() if isinstance(analysis, form_class))
    data = {field.name: _plain(getattr(analysis, field.name)) for field in fields(analysis)}
    text = json.dumps({"kind": KIND, "version": VERSION, "form": form, **data}, separators=(",", ":"), allow_nan=False)
    if len(text) > MAX_BYTES:
        raise ValueError(f"{place} would have {len(text):,} bytes, more than {MAX_BYTES:,}; take fewer bins or stages")
    write_whole(place, text + "\n")
    return place


def read_analysis(path: str | Path) -> Analysis:
    """Read a file; an error names it."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.pop("kind", None) != KIND:
            raise ValueError("this is not an analysis of a run")
        version, form = data.pop("version", None), data.pop("form", None)
        if version != VERSION or form not in _FORMS:
            raise ValueError(
                f"version {version!r}, form {form!r}: this sasr reads version {VERSION} of visits and along"
            )
        form_class = _FORMS[form]
        arrays = {"x": np.float64, "y": np.float64, "rate": np.float64, "counts": np.int64}
        parts: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in data.items()}
        for name in arrays.keys() & data.keys():
            parts[name] = np.array(data[name], arrays[name])
        return _checked(form_class(**parts))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def read_analyses(folder: str | Path) -> tuple[dict[str, Analysis], list[Problem]]:
    """Every analysis in a folder by its file's stem; files that cannot be read are named with the folder."""
    analyses: dict[str, Analysis] = {}
    problems = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            analyses[path.stem] = read_analysis(path)
        except ValueError as error:
            problems.append(Problem(f"{path.parent.name}/{path.name}", str(error).removeprefix(f"{path}: ")))
    return analyses, problems


def _checked(analysis: Analysis) -> Analysis:
    periods = len(analysis.stages) if isinstance(analysis, Along) else len(analysis.steps) - 1
    expected = (periods, len(analysis.y) - 1, len(analysis.x) - 1)
    if analysis.counts.shape != expected:
        raise ValueError(f"counts of shape {analysis.counts.shape} but its periods and bins need {expected}")
    if isinstance(analysis, Along) and analysis.rate.shape != (periods, len(analysis.x) - 1):
        raise ValueError(f"rates of shape {analysis.rate.shape} for {periods} stages of {len(analysis.x) - 1} bins")
    return analysis


def _plain(value: Any) -> Any:
    """Lists with six digits, enough for a picture; NaN is null."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
