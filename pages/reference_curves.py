"""Write results/reference/authors.csv: the authors' logged learning curves, thinned, under this library's names.

python -m pages.reference_curves CURVES.csv    the columns task, variant, step, mean, spread, one row a point
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OUT = Path(__file__).parents[1] / "results" / "reference" / "authors.csv"
METHODS = {
    "sasr": "sasr",
    "sac": "sac",
    "rlara": "relara",
    "count": "explo",
    "rnd": "rnd",
    "ppo": "ppo",
    "td3": "td3",
    "explors": "explors",
    "rosa": "rosa",
}
# By the names that the suites give them.
ABLATIONS = {
    "woBeta": "without sampling",
    "rr1": "φ=1",
    "rr001": "φ=0.01",
    "m50": "M=50",
    "m500": "M=500",
    "m2000": "M=2000",
    "rw02": "λ=0.2",
    "rw04": "λ=0.4",
    "rw08": "λ=0.8",
    "rw10": "λ=1.0",
    "bd001": "h=0.01",
    "bd01": "h=0.1",
    "bd1": "h=1",
    "bdc": "h=0.5→0.1",
}
HEADER = """\
# The learning curves that the authors of SASR logged (Ma et al., ICLR 2025), thinned by pages/reference_curves.py.
# From the branch `re` of their public repository, https://github.com/mahaozhe/SASR: returns in training, mean and
# spread (standard deviation) as stored there. MountainCar's are Gymnasium's divided by 100.
# Names are this library's; theirs are rlara (relara), count (explo), woBeta (without sampling), rr (φ), m (M), rw (λ)
# and bd (h).
# Not all of it can be: AntStand M=500 and HumanStand h=0.1 go below 0 and RobotPush M=2000 above 200, where a task pays
# 0 or 1 on each of 200 steps. Take the scale and the order from these curves, not the decimals.
"""


@dataclass(frozen=True)
class Settings:
    """What is read."""

    curves: Annotated[Path, tyro.conf.Positional]
    """The authors' curves in full."""
    points: int = 50
    """Most points of a curve."""


def kept(steps: Floats, mean: Floats, points: int) -> list[int]:
    """Indices of at most `points` points, such that straight lines between them stay close to all others.

    One after the other, the point that is furthest from the lines so far.
    """
    chosen = sorted({0, len(steps) - 1})
    while len(chosen) < min(points, len(steps)):
        away = np.abs(mean - np.interp(steps, steps[chosen], mean[chosen]))
        away[chosen] = -1.0
        chosen = sorted([*chosen, int(away.argmax())])
    return chosen


def main(settings: Settings) -> None:
    """Read, thin, write."""
    curves: dict[tuple[str, str], list[tuple[int, float, float]]] = defaultdict(list)
    with settings.curves.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            point = (int(float(row["step"])), float(row["mean"]), float(row["spread"]))
            curves[row["task"], row["variant"]].append(point)
    text = [HEADER + "task,variant,step,mean,spread\n"]
    for names in (METHODS, ABLATIONS):
        for (task, variant), logged in sorted(curves.items()):
            if variant in names:
                points = np.array(sorted(logged))
                for step, mean, spread in points[kept(points[:, 0], points[:, 1], settings.points)]:
                    text.append(f"{task},{names[variant]},{step:.0f},{mean:.4g},{spread:.3g}\n")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("".join(text), encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Settings))
