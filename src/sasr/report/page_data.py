"""The data that the page carries: curves packed into few bytes, figures as tables, everything else as it is."""

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
from sasr.report.read import Collection, Maps, Reference, References, Video, reference_of
from sasr.report.seeds import MAX_POINTS, thin
from sasr.report.store import Result
from sasr.report.summary import Aggregate, Cell, Summary
from sasr.report.tables import Entry, Table, aggregate_table, final_table, report_tables

Values = NDArray[np.float64]
VIDEO_BYTES = 3_000_000
"""Films are embedded while all of them together are smaller than this; the others are linked."""
MOST_SHOWN, SHOWN_AT_FIRST = 8, 5
"""With more methods than the first number, so many are ticked at first."""
_LARGEST = {16: 65_534, 8: 254}
"""The whole number that stands for the upper end of a range, by bits."""


def payload(
    found: Collection, summary: Summary, *, out: Path, reference: References | None = None, seed: int = 0
) -> dict[str, Any]:
    """Plain data for the page's script.

    Args:
        found: What is reported.
        summary: Its figures.
        out: Where the page will be; films that are not embedded are linked from there.
        reference: Curves to compare with.
        seed: Of the curves' bootstrap intervals.
    """
    cells = [_cell(summary, summary.cells[own.task, own.method], reference or {}, seed) for own in found.results]
    return {
        "tasks": summary.tasks,
        "methods": summary.methods,
        "preselected": _preselected(summary),
        "colours": {"light": LIGHT, "dark": DARK},
        "cells": cells,
        "aggregates": [_aggregate(own) for own in summary.aggregates],
        "tables": _tables(summary),
        "maps": [_maps(own) for own in found.maps],
        "videos": _videos(found.videos, out),
        "problems": [{"path": own.path, "text": own.text} for own in found.problems],
    }


def packed(values: NDArray[np.float64], low: float, high: float, *, bits: int = 16) -> str:
    """Numbers in [low, high] as base64 of little-endian whole numbers; the largest of these stands for NaN."""
    top = _LARGEST[bits]
    finite = np.isfinite(values)
    share = np.zeros(values.shape)
    if high > low:
        share[finite] = np.clip((values[finite] - low) / (high - low), 0.0, 1.0)
    whole = np.where(finite, np.rint(share * top), top + 1)
    return base64.b64encode(whole.astype(f"<u{bits // 8}").tobytes()).decode()


def _cell(summary: Summary, cell: Cell, reference: References, seed: int) -> dict[str, Any]:
    result = cell.result
    drawn = [own for own in result.seeds if own.steps]
    steps, values = stats.aligned([(own.steps, own.returns) for own in drawn])
    kept = thin(len(steps), MAX_POINTS)
    steps = steps[kept]
    values = values[:, kept]
    finite = values[np.isfinite(values)]
    low = 0.0
    high = 0.0
    if len(finite):
        low = float(finite.min())
        high = float(finite.max())
    data: dict[str, Any] = {}
    if drawn and all(own.success for own in drawn):
        _, rates = stats.aligned([(own.steps, own.success) for own in drawn])
        rates = rates[:, kept]
        data["success"] = packed(rates, 0.0, 1.0, bits=8)
        data["successIqm"] = _band(steps, rates, 0.0, 1.0, 8, seed)
    return data | {
        "task": summary.tasks.index(result.task),
        "method": summary.methods.index(result.method),
        "seeds": [own.seed for own in drawn],
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
    """Where a result comes from, on one line."""
    machine, versions = result.machine, result.versions
    parts = [f"{len(result.seeds)} seeds", f"{result.steps:,} steps", f"{result.curve_of} returns"]
    if result.commit:
        parts.append(f"commit {result.commit}")
    places = [machine.get("processor"), result.cores, machine.get("gpu"), machine.get("device")]
    parts += [str(place) for place in places if place]
    parts += [f"{name} {versions[name]}" for name in ("sasr", "torch", "gymnasium") if name in versions]
    if math.isfinite(result.wall_seconds):
        parts.append(_duration(result.wall_seconds))
    if math.isfinite(result.peak_memory_bytes):
        parts.append(f"{result.peak_memory_bytes / 2**30:.2f} GiB at most")
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    """In the unit that suits it."""
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
    """The methods shown at first, as numbers: of more than eight SASR, plain SAC and the three best others."""
    methods = summary.methods
    if len(methods) <= MOST_SHOWN:
        return list(range(len(methods)))
    ours = [method for method in ("sasr", "sac") if method in methods]
    others = [own for own in summary.aggregates if own.method not in ours]
    others.sort(key=lambda own: (-own.tasks, -own.iqm.value if own.tasks else math.inf))
    chosen = {*ours, *(own.method for own in others[: SHOWN_AT_FIRST - len(ours)])}
    return [index for index, method in enumerate(methods) if method in chosen]


_TABLES = {
    "final": ("mean ± standard error", "high"),
    "iqm": ("IQM [95 % interval]", "high"),
    "area": ("area under the curve", "high"),
    "halfway": ("steps to halfway", "low"),
    "time": ("time", "low"),
    "memory": ("peak memory", "low"),
    "overall": ("over all tasks", ""),
}
"""Short name of each table, and which end is good."""


def _tables(summary: Summary) -> list[dict[str, Any]]:
    known = report_tables(summary)
    # Of a report without any figure these two say so.
    known = {"final": final_table(summary), "overall": aggregate_table(summary)} | known
    return [_table(key, known[key]) for key in _TABLES if key in known]


def _table(key: str, table: Table) -> dict[str, Any]:
    name, good = _TABLES[key]
    return {
        "key": key,
        "name": name,
        "good": good,
        "title": table.title,
        "columns": table.columns,
        "rows": [[_entry(entry) for entry in row] for row in table.rows],
        "notes": table.notes,
        "copies": {"markdown": table.to_markdown(), "latex": table.to_latex(), "csv": table.to_csv()},
    }


def _entry(entry: Entry) -> dict[str, Any]:
    data: dict[str, Any] = {"text": entry.text(), "value": entry.value}
    if isinstance(entry.value, float):
        # JSON has no infinity; steps that never came sort last.
        data["value"] = 1e300 if math.isinf(entry.value) else _rounded(entry.value)
    if entry.incomplete:
        data["incomplete"] = True
    return data


def _maps(own: Maps) -> dict[str, Any]:
    return {
        "run": own.run,
        "steps": own.steps.tolist(),
        "x": _all_rounded(own.x),
        "y": _all_rounded(own.y),
        "rate": packed(own.rate.mean(1), 0.0, 1.0, bits=8),
        "seeds": own.rate.shape[1],
        "axes": own.axes,
    }


def _videos(films: Sequence[Video], out: Path) -> list[dict[str, Any]]:
    shown = []
    bytes_left = VIDEO_BYTES
    for film in films:
        size = film.path.stat().st_size
        is_embedded = size <= bytes_left
        if is_embedded:
            bytes_left -= size
            content = base64.b64encode(read_regular(film.path, size)).decode()
            source = f"data:video/{film.path.suffix[1:]};base64,{content}"
        else:
            source = _link(film.path, out)
        shown.append({"run": film.run, "name": film.path.name, "source": source, "embedded": is_embedded})
    return shown


def _link(path: Path, out: Path) -> str:
    from urllib.parse import quote

    try:
        return quote(str(path.resolve().relative_to(out.resolve().parent)))
    except ValueError:
        return path.resolve().as_uri()


def _all_rounded(values: Iterable[float]) -> list[float | None]:
    return [_rounded(value) for value in values]


def _rounded(value: float) -> float | None:
    """Seven digits are more than a screen shows; NaN is null."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
