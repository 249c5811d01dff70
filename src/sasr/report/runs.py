"""What a report takes from a run's folder: a result like those of the store, success-rate maps, videos."""

from __future__ import annotations

import json
import math
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sasr.files import read_arrays, read_regular
from sasr.report.seeds import MAX_POINTS, SeedResult, logged, training_by_point, training_parts
from sasr.report.store import Result

CONFIG, METRICS, FINAL, MAPS = "config.json", "metrics.jsonl", "eval.json", "success_map.npz"
VIDEOS = (".mp4", ".webm")
CONFIG_BYTES, METRICS_BYTES, MAPS_BYTES = 2**26, 2**32, 2**28
"""No more is read of a file: what claims to be larger is not what a run writes."""


class Maps(NamedTuple):
    """Success-rate estimates of a run over a grid of two-dimensional states."""

    run: str
    steps: NDArray[np.int64]  # (K,)
    x: NDArray[np.float64]  # (X,)
    y: NDArray[np.float64]  # (Y,)
    rate: NDArray[np.float64]  # (K, P, Y, X)
    axes: tuple[str, str]


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's, whole or not."""
    return (folder / METRICS).exists() or (folder / CONFIG).exists()


def from_run(folder: str | Path) -> Result:
    """The result of a run so far; a run that is half finished has gaps, and one without settings is refused."""
    place = Path(folder)
    facts = _facts(place)
    config: dict[str, Any] = facts["config"]
    planned = tuple(config.get("seeds", ()))
    events, notes = _events(place / METRICS)
    of = "evaluation" if any(event["kind"] == "evaluation" for event in events) else "training"
    final = _final(place / FINAL)
    taken = max((event["step"] for event in events), default=0)
    seeds = [_seed(seed, events, of, taken, final.get(seed, {})) for seed in planned]
    told = [logged(event.get("seconds")) for event in events if event["kind"] == "clock"]
    clocks = [seconds for seconds in told if math.isfinite(seconds)]
    peaks = [own for event in events if math.isfinite(own := logged(event.get("peak_memory_bytes")))]
    return Result(
        task=_short(str(config["task"])),
        method=str(facts.get("method") or method_name(config)),
        commit=str(facts.get("commit") or "")[:10],
        command=str(facts.get("command") or ""),
        config=config,
        steps=int(config.get("steps", 0)),
        planned=planned,
        seeds=tuple(own for own in seeds if own.steps or own.final),
        curve_of=of,
        machine=dict(facts.get("machine") or {}),
        versions=dict(facts.get("versions") or {}),
        wall_seconds=clocks[-1] if clocks else math.nan,
        peak_memory_bytes=max(peaks, default=math.nan),
        notes=tuple(notes),
    )


def method_name(config: Mapping[str, Any]) -> str:
    """What a run's settings are called in tables: the shaper, or the plain agent, and what is unusual about it.

    >>> method_name({"preset": "authors", "agent": "sac-paper"}), method_name({"shaper": "none", "agent": "td3"})
    ('sasr-authors', 'td3')
    """
    shaper, agent, preset = config.get("shaper", "sasr"), config.get("agent", "auto"), config.get("preset", "auto")
    if shaper == "none":
        return "sac" if agent == "auto" else str(agent)
    if shaper == "sasr" and preset != "auto":
        name = f"sasr-{preset}"
        return name if agent == "sac-paper" else f"{name}+{agent}"
    return str(shaper) if agent in ("auto", "sac") else f"{shaper}+{agent}"


def read_maps(folder: Path) -> Maps | None:
    """The success-rate maps of a run; None where it has none."""
    path = folder / MAPS
    if not os.path.lexists(path):
        return None
    try:
        steps, x, y, rate = read_arrays(path, ("steps", "x", "y", "rate"), MAPS_BYTES)
    except ValueError as error:
        raise ValueError(f"{error}; the page goes without this map") from None
    if not all(part.dtype.kind in "iuf" for part in (steps, x, y, rate)) or (steps.ndim, x.ndim, y.ndim) != (1, 1, 1):
        raise ValueError(f"{MAPS} holds something else than moments, states and rates")
    if rate.ndim != 4 or rate.shape[0] != len(steps) or rate.shape[2:] != (len(y), len(x)):
        raise ValueError(f"{MAPS} has rates of shape {rate.shape} for {len(steps)} moments, {len(y)} × {len(x)} states")
    return Maps(folder.name, steps, x, y, rate.astype(np.float64), _axes(folder))


def videos(folder: Path) -> list[Path]:
    """Films of a run, by name; a link is none, because a page would carry what it points to."""
    films = (path for path in folder.rglob("*") if path.suffix in VIDEOS)
    return sorted(path for path in films if stat.S_ISREG(path.lstat().st_mode))


def _short(task: str) -> str:
    """Our own tasks by the names that the catalogue lists."""
    return task[len("SASR/") :].removesuffix("-v0") if task.startswith("SASR/") else task


def _facts(place: Path) -> dict[str, Any]:
    path = place / CONFIG
    if not os.path.lexists(path):
        raise ValueError(f"has no {CONFIG}: a run that was half written, or no run")
    try:
        facts = json.loads(read_regular(path, CONFIG_BYTES))
        if not (isinstance(facts, dict) and isinstance(facts["config"], dict) and facts["config"]["task"]):
            raise ValueError
    except OSError as error:
        raise ValueError(f"{CONFIG} cannot be read: {error}") from None
    except (ValueError, KeyError, RecursionError):
        raise ValueError(f"{CONFIG} is cut off or was changed by hand: a run that was half written") from None
    return facts


def _events(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of a metrics file; what cannot be read is counted and told."""
    if not os.path.lexists(path):
        return [], []
    try:
        lines = read_regular(path, METRICS_BYTES).split(b"\n")
    except OSError as error:
        return [], [f"{METRICS} cannot be read: {error}"]
    events, bad = [], 0
    for line in lines[:-1]:  # what stands behind the last line's end was cut off
        try:
            event = json.loads(line)
            events.append({**event, "kind": event["kind"], "step": int(event["step"])})
        except (ValueError, KeyError, TypeError):
            bad += 1
    return events, [f"{bad} lines of {METRICS} cannot be read and are left out"] if bad else []


def _final(path: Path) -> dict[int, dict[str, Any]]:
    """Final evaluations by seed, from what `sasr eval` left."""
    try:
        data = json.loads(read_regular(path, METRICS_BYTES))
        return {int(own["seed"]): own for own in data["members"]}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}


def _seed(seed: int, events: Iterable[Mapping[str, Any]], of: str, taken: int, final: Mapping[str, Any]) -> SeedResult:
    own = [event for event in events if event.get("seed") == seed]
    curve = _evaluations(own) if of == "evaluation" else _episodes(own)
    steps = sorted(curve)
    returns, successes = final.get("returns") or [], final.get("success") or []
    training = training_by_point(steps, own) if of == "evaluation" else []  # else the curve says it already
    return SeedResult(
        seed=seed,
        steps=tuple(steps),
        returns=tuple(curve[step][0] for step in steps),
        success=tuple(curve[step][1] for step in steps),
        **training_parts(training),
        taken=taken if own else 0,
        final=tuple(logged(value) for value in returns),
        final_success=float(np.mean(successes)) if successes else math.nan,
    ).thinned()


def _evaluations(events: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Return and success rate by step; a step that was evaluated again after resuming counts once."""
    return {
        event["step"]: (logged(event.get("return_mean")), logged(event.get("success_rate")))
        for event in events
        if event["kind"] == "evaluation"
    }


def _episodes(events: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Training episodes, the means of neighbours where there are more than a curve's points."""
    ended = [event for event in events if event["kind"] == "episode"]
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for part in np.array_split(np.arange(len(ended)), min(len(ended), MAX_POINTS)) if ended else []:
        for index in part:
            event = ended[index]
            found[ended[part[-1]]["step"]].append((logged(event.get("return")), float(bool(event.get("success")))))
    return {
        step: (float(np.mean([r for r, _ in own])), float(np.mean([s for _, s in own]))) for step, own in found.items()
    }


def _axes(folder: Path) -> tuple[str, str]:
    """Names of the two state features where the task is known."""
    try:
        task = str(_facts(folder)["config"]["task"])
    except ValueError:
        task = ""
    return ("position", "velocity") if "MountainCar" in task else ("first feature", "second feature")
