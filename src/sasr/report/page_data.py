"""The data embedded in the page: packed curves, tables, maps and videos."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasr.files import read_regular
from sasr.report import stats
from sasr.report.figures import DARK, LIGHT
from sasr.report.read import Collection, MapsOfRun, Reference, References, Video, reference_of
from sasr.report.seeds import MAX_POINTS, thin
from sasr.report.store import Result
from sasr.report.summary import Aggregate, Summary
from sasr.report.tables import Entry, Table, aggregate_table, final_table, report_tables

Values = NDArray[np.float64]
VIDEO_BYTES = 3_000_000
"""Videos are embedded up to this total size; the others are linked."""
MOST_SHOWN, SHOWN_AT_FIRST = 8, 5
"""With more methods than the first number, the page shows the second number of them at first."""
_LARGEST = {16: 65_534, 8: 254}
"""The integer for the upper end of a range, by bits."""


def payload(
    collection: Collection, summary: Summary, *, out: Path, reference: References | None = None, seed: int = 0
) -> dict[str, Any]:
    """Plain data for the page's script.

    Args:
        collection: Results, runs, maps and videos.
        summary: Their statistics.
        out: The page's path, which links to videos are relative to.
        reference: Curves for comparison.
        seed: Seed of the curves' bootstrap intervals.
    """
    return {
        "tasks": summary.tasks,
        "methods": summary.methods,
        "preselected": _preselected(summary),
        "colours": {"light": LIGHT, "dark": DARK},
        "results": [_result(summary, result, reference or {}, seed) for result in collection.results],
        "aggregates": list(map(_aggregate, summary.aggregates)),
        "tables": _tables(summary),
        "maps": list(map(_maps, collection.maps)),
        "videos": _videos(collection.videos, out),
        "problems": [problem._asdict() for problem in collection.problems],
    }


def packed(values: NDArray[np.float64], low: float, high: float, *, bits: int = 16) -> str:
    """Numbers in [low, high] as base64 of little-endian integers, the largest of which stands for NaN."""
    top = _LARGEST[bits]
    finite = np.isfinite(values)
    share = np.zeros(values.shape)
    if high > low:
        share[finite] = np.clip((values[finite] - low) / (high - low), 0.0, 1.0)
    whole = np.where(finite, np.rint(share * top), top + 1)
    return base64.b64encode(whole.astype(f"<u{bits // 8}").tobytes()).decode()


def _result(summary: Summary, result: Result, reference: References, seed: int) -> dict[str, Any]:
    """A method on a task: the curves of its seeds, and where they come from."""
    drawn = [run for run in result.seeds if run.steps]
    steps, values = stats.aligned([(run.steps, run.returns) for run in drawn])
    kept = thin(len(steps), MAX_POINTS)
    steps = steps[kept]
    values = values[:, kept]
    finite = values[np.isfinite(values)]
    low, high = 0.0, 0.0
    if len(finite):
        low, high = float(finite.min()), float(finite.max())
    data: dict[str, Any] = {}
    if drawn and all(run.success for run in drawn):
        _, rates = stats.aligned([(run.steps, run.success) for run in drawn])
        rates = rates[:, kept]
        data["success"] = packed(rates, 0.0, 1.0, bits=8)
        data["successIqm"] = _band(steps, rates, 0.0, 1.0, 8, seed)
    return data | {
        "task": summary.tasks.index(result.task),
        "method": summary.methods.index(result.method),
        "seeds": [run.seed for run in drawn],
        "steps": base64.b64encode(steps.astype("<u4").tobytes()).decode(),
        "range": [low, high],
        "returns": packed(values, low, high),
        "iqm": _band(steps, values, low, high, 16, seed),
        "scale": _all_rounded(summary.scale[result.task]),
        "hours": _rounded(result.wall_seconds / 3600.0),
        "reference": _reference(reference_of(result.method, reference.get(result.task, {}))),
        "gaps": result.gaps,
        "remarks": result.remarks,
        "command": result.command,
        "facts": _facts(result),
    }


def _reference(curve: Reference | None) -> dict[str, Any] | None:
    if curve is None:
        return None
    return {"steps": curve.steps.tolist(), "mean": _all_rounded(curve.mean)}


def _band(steps: Values, values: Values, low: float, high: float, bits: int, seed: int) -> str:
    """Interquartile mean and both ends of its interval, one after the other."""
    curve = stats.iqm_curve(steps, values, seed=seed)
    return packed(np.stack([curve.centre, curve.low, curve.high]), low, high, bits=bits)


def _facts(result: Result) -> str:
    """The origin of a result, on one line."""
    machine, versions = result.machine, result.versions
    parts = [f"{len(result.seeds)} seeds", f"{result.steps:,} steps", f"{result.curve_of} returns"]
    if result.commit:
        parts.append(f"commit {result.commit}")
    for hardware in (machine.get("processor"), result.cores, machine.get("gpu"), machine.get("device")):
        if hardware:
            parts.append(str(hardware))
    for package in ("sasr", "torch", "gymnasium"):
        if package in versions:
            parts.append(f"{package} {versions[package]}")
    if math.isfinite(result.wall_seconds):
        parts.append(_duration(result.wall_seconds))
    if math.isfinite(result.peak_memory_bytes):
        parts.append(f"{result.peak_memory_bytes / 2**30:.2f} GiB at most")
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    """A duration in hours, minutes or seconds."""
    if seconds >= 3600.0:
        return f"{seconds / 3600.0:.1f} h"
    if seconds >= 60.0:
        return f"{seconds / 60.0:.1f} min"
    return f"{seconds:.1f} s"


def _aggregate(aggregate: Aggregate) -> dict[str, Any]:
    profile = None
    if aggregate.profile:
        profile = {name: _all_rounded(values) for name, values in aggregate.profile._asdict().items()}
    return {
        "method": aggregate.method,
        "tasks": aggregate.tasks,
        "iqm": _all_rounded(aggregate.iqm),
        "profile": profile,
    }


def _preselected(summary: Summary) -> list[int]:
    """Indices of the methods shown at first: of more than eight SASR, plain SAC and the three best others."""
    methods = summary.methods
    if len(methods) <= MOST_SHOWN:
        return list(range(len(methods)))
    shown: list[str] = [method for method in ("sasr", "sac") if method in methods]
    for aggregate in sorted(summary.aggregates, key=lambda other: (-other.tasks, -other.iqm.value)):
        if aggregate.method not in shown and len(shown) < SHOWN_AT_FIRST:
            shown.append(aggregate.method)
    return sorted(methods.index(method) for method in shown)


_TABLES = {
    "final": ("mean ± standard error", "high"),
    "iqm": ("IQM [95 % interval]", "high"),
    "area": ("area under the curve", "high"),
    "halfway": ("steps to halfway", "low"),
    "time": ("time", "low"),
    "memory": ("peak memory", "low"),
    "overall": ("over all tasks", ""),
}
"""Short name of each table, and whether high or low values are good."""


def _tables(summary: Summary) -> list[dict[str, Any]]:
    # These two are shown even without any number.
    tables = {"final": final_table(summary), "overall": aggregate_table(summary)} | report_tables(summary)
    return [_table(key, tables[key]) for key in _TABLES if key in tables]


def _table(key: str, table: Table) -> dict[str, Any]:
    name, good = _TABLES[key]
    return {
        "key": key,
        "name": name,
        "good": good,
        "title": table.title,
        "columns": table.columns,
        "rows": [list(map(_entry, row)) for row in table.rows],
        "notes": table.notes,
        "copies": {"markdown": table.to_markdown(), "latex": table.to_latex(), "csv": table.to_csv()},
    }


def _entry(entry: Entry) -> dict[str, Any]:
    data: dict[str, Any] = {"text": entry.text(), "value": entry.value}
    if isinstance(entry.value, float):
        data["value"] = _rounded(entry.value)
        if math.isinf(entry.value):  # which JSON lacks; infinitely many steps sort last
            data["value"] = 1e300
    if entry.incomplete:
        data["incomplete"] = True
    return data


def _maps(of_run: MapsOfRun) -> dict[str, Any]:
    maps = of_run.maps
    return {
        "run": of_run.run,
        "steps": maps.steps.tolist(),
        "x": _all_rounded(maps.x),
        "y": _all_rounded(maps.y),
        "rate": packed(maps.rate.mean(1, dtype=np.float64), 0.0, 1.0, bits=8),
        "seeds": maps.rate.shape[1],
        "axes": of_run.axes,
    }


def _videos(videos: Sequence[Video], out: Path) -> list[dict[str, Any]]:
    shown = []
    bytes_left = VIDEO_BYTES
    for video in videos:
        size = video.path.stat().st_size
        is_embedded = size <= bytes_left
        if is_embedded:
            bytes_left -= size
            content = base64.b64encode(read_regular(video.path, size)).decode()
            source = f"data:video/{video.path.suffix[1:]};base64,{content}"
        else:
            source = _link(video.path, out)
        shown.append({"run": video.run, "name": video.path.name, "source": source, "embedded": is_embedded})
    return shown


def _link(path: Path, out: Path) -> str:
    from urllib.parse import quote

    try:
        return quote(str(path.resolve().relative_to(out.resolve().parent)))
    except ValueError:
        return path.resolve().as_uri()


def _all_rounded(values: Iterable[float]) -> list[float | None]:
    return list(map(_rounded, values))


def _rounded(value: float) -> float | None:
    """Rounded to seven digits, more than a screen shows; NaN is None."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
