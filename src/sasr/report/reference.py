"""Curves of others to compare with, from a CSV file with the columns task, variant, step, mean, spread.

Lines at its beginning that start with # are for readers.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("task", "variant", "step", "mean", "spread")
ALIASES = {"rlara": "relara", "count": "explo"}
"""Names in the authors' logged data that are others here."""


class Reference(NamedTuple):
    """One curve, each (T,)."""

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    """Standard deviation, as it was logged."""


References = dict[str, dict[str, Reference]]
"""By task, then by method."""


def read_reference(path: str | Path) -> References:
    """The curves of a file; a missing column or a word where a number belongs is named with its line."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{path} is not a file; give a CSV file with the columns {', '.join(COLUMNS)}")
    points: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with file.open(newline="", encoding="utf-8-sig") as lines:
        told = list(lines)
        header = next((number for number, line in enumerate(told) if not line.startswith("#")), 0)
        rows = csv.DictReader(told[header:])
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}; its first line must name {', '.join(COLUMNS)}")
        for row in rows:
            method = ALIASES.get(row["variant"], row["variant"])
            try:
                point = (float(row["step"]), _number(row["mean"]), _number(row["spread"]))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{path}, line {header + rows.line_num}: {row} has no numbers for step, mean, spread"
                ) from None
            points.setdefault((row["task"], method), []).append(point)
    found: References = {}
    for (task, method), own in points.items():
        steps, mean, spread = np.array(sorted(own), np.float64).T
        found.setdefault(task, {})[method] = Reference(steps, mean, spread)
    return found


def like(method: str, curves: Mapping[str, Reference]) -> Reference | None:
    """The curve of a method, or of what it is a variant of: that of sasr for sasr-authors and sasr (features=50)."""
    return curves.get(method) or curves.get(family(method))


def family(method: str) -> str:
    """What a method is a variant of.

    >>> [family(name) for name in ("sasr-authors", "sasr (features=50)", "sac-paper", "rnd")]
    ['sasr', 'sasr', 'sac', 'rnd']
    """
    return re.split(r"[-+ @(,]", method)[0]


def _number(text: str) -> float:
    return float(text) if text.strip() else math.nan
