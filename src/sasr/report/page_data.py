"""The data that the page carries: curves packed into few bytes, figures as tables, everything else as it is."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasr.files import read_regular
from sasr.report import stats, tables
from sasr.report.palette import DARK, LIGHT
from sasr.report.read import Collection, Video
from sasr.report.reference import References, like
from sasr.report.runs import Maps
from sasr.report.seeds import MAX_POINTS, thin
from sasr.report.store import Result
from sasr.report.summary import Aggregate, Cell, Summary
from sasr.report.tables import Table

Values = NDArray[np.float64]
VIDEO_BYTES = 3_000_000
"""Films are embedded while all of them together are smaller than this; the others are linked."""
_TOP16, _TOP8 = 65_534, 254


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
        "colours": {"light": LIGHT, "dark": DARK},
        "cells": cells,
        "aggregates": [_aggregate(own) for own in summary.aggregates],
        "tables": [_table(*own) for own in _tables(summary)],
        "maps": [_maps(own) for own in found.maps],
        "videos": _videos(found.videos, out),
        "problems": [{"path": own.path, "text": own.text} for own in found.problems],
    }


def packed(values: NDArray[np.float64], low: float, high: float, *, bits: int = 16) -> str:
    """Numbers in [low, high] as base64 of little-endian whole numbers; the largest of these stands for NaN."""
    top, kind = (_TOP16, "<u2") if bits == 16 else (_TOP8, "u1")
    share = (values - low) / (high - low) if high > low else np.where(np.isfinite(values), 0.0, np.nan)
    whole = np.where(np.isfinite(share), np.rint(np.clip(np.nan_to_num(share), 0.0, 1.0) * top), top + 1)
    return base64.b64encode(whole.astype(kind).tobytes()).decode()


def _cell(summary: Summary, cell: Cell, reference: References, seed: int) -> dict[str, Any]:
    result = cell.result
    drawn = [own for own in result.seeds if own.steps]
    steps, values = stats.aligned([(own.steps, own.returns) for own in drawn])
    keep = thin(len(steps), MAX_POINTS)
    steps, values = steps[keep], values[:, keep]
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    shares: dict[str, str] = {}
    if drawn and all(own.success for own in drawn):
        rates = stats.aligned([(own.steps, own.success) for own in drawn])[1][:, keep]
        shares = {"success": packed(rates, 0.0, 1.0, bits=8), "successIqm": _band(steps, rates, 0.0, 1.0, 8, seed)}
    curve = like(result.method, reference.get(result.task, {}))
    return shares | {
        "task": summary.tasks.index(result.task),
        "method": summary.methods.index(result.method),
        "seeds": [own.seed for own in drawn],
        "steps": base64.b64encode(steps.astype("<u4").tobytes()).decode(),
        "range": [low, high],
        "returns": packed(values, low, high),
        "iqm": _band(steps, values, low, high, 16, seed),
        "scale": [_rounded(value) for value in summary.scale[result.task]],
        "hours": _rounded(result.wall_seconds / 3600.0),
        "reference": curve and {"steps": curve.steps.tolist(), "mean": [_rounded(own) for own in curve.mean]},
        "gaps": result.gaps,
        "remarks": result.remarks,
        "command": result.command,
        "facts": _facts(result),
    }


def _band(steps: Values, values: Values, low: float, high: float, bits: int, seed: int) -> str:
    """Interquartile mean and both ends of its interval, one after the other."""
    curve = stats.iqm_curve(steps, values, seed=seed)
    return packed(np.stack([curve.centre, curve.low, curve.high]), low, high, bits=bits)


def _facts(result: Result) -> str:
    """Where a result comes from, on one line."""
    parts = [f"{len(result.seeds)} seeds", f"{result.steps:,} steps", f"{result.curve_of} returns"]
    parts += [f"commit {result.commit}"] if result.commit else []
    names = ("processor", "cores", "gpu", "device")
    parts += [result.cores if name == "cores" else str(own) for name in names if (own := result.machine.get(name))]
    wanted = ("sasr", "torch", "gymnasium")
    parts += [f"{name} {result.versions[name]}" for name in wanted if name in result.versions]
    if math.isfinite(result.wall_seconds):
        parts.append(_duration(result.wall_seconds))
    if math.isfinite(result.peak_memory_bytes):
        parts.append(f"{result.peak_memory_bytes / 2**30:.2f} GiB at most")
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    """In the unit that suits it."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _aggregate(own: Aggregate) -> dict[str, Any]:
    profile = None
    if own.profile:
        profile = {name: [_rounded(value) for value in values] for name, values in own.profile._asdict().items()}
    return {
        "method": own.method,
        "tasks": own.tasks,
        "iqm": [_rounded(value) for value in own.iqm],
        "profile": profile,
    }


def _tables(summary: Summary) -> list[tuple[str, str, str, Table]]:
    """Key, short name, which end is good, and the table."""
    made = [
        ("final", "mean ± standard error", "high", tables.final_table(summary)),
        ("iqm", "IQM [95 % interval]", "high", tables.iqm_table(summary)),
        ("area", "area under the curve", "high", tables.area_table(summary)),
        ("halfway", "steps to halfway", "low", tables.halfway_table(summary)),
        ("time", "time", "low", tables.cost_table(summary, "time")),
        ("memory", "peak memory", "low", tables.cost_table(summary, "memory")),
        ("overall", "over all tasks", "", tables.aggregate_table(summary)),
    ]
    return [own for own in made if own[0] in ("final", "overall") or own[3].known]


def _table(key: str, name: str, good: str, table: Table) -> dict[str, Any]:
    rows = [
        [{"text": own.text(), "value": own.value if isinstance(own.value, str) else _rounded(own.value)} for own in row]
        for row in table.rows
    ]
    for row, shown in zip(table.rows, rows, strict=True):
        for own, cell in zip(row, shown, strict=True):
            if isinstance(own.value, float) and math.isinf(own.value):
                cell["value"] = 1e300  # never: JSON has no infinity, and it sorts last
    copies = {"markdown": table.to_markdown(), "latex": table.to_latex(), "csv": table.to_csv()}
    head = {"key": key, "name": name, "good": good, "title": table.title}
    return head | {"columns": table.columns, "rows": rows, "notes": table.notes, "copies": copies}


def _maps(own: Maps) -> dict[str, Any]:
    return {
        "run": own.run,
        "steps": own.steps.tolist(),
        "x": [_rounded(value) for value in own.x],
        "y": [_rounded(value) for value in own.y],
        "rate": packed(own.rate.mean(1), 0.0, 1.0, bits=8),
        "seeds": own.rate.shape[1],
        "axes": own.axes,
    }


def _videos(films: Sequence[Video], out: Path) -> list[dict[str, Any]]:
    left, shown = VIDEO_BYTES, []
    for film in films:
        size = film.path.stat().st_size
        kind = f"video/{film.path.suffix[1:]}"
        embedded = size <= left
        if embedded:
            left -= size
            source = f"data:{kind};base64,{base64.b64encode(read_regular(film.path, size)).decode()}"
        else:
            source = _link(film.path, out)
        shown.append({"run": film.run, "name": film.path.name, "source": source, "embedded": embedded})
    return shown


def _link(path: Path, out: Path) -> str:
    from urllib.parse import quote

    try:
        return quote(str(path.resolve().relative_to(out.resolve().parent)))
    except ValueError:
        return path.resolve().as_uri()


def _rounded(value: float) -> float | None:
    """Seven digits are more than a screen shows; NaN is null."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
