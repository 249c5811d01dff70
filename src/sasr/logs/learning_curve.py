"""`curve.png`: how the returns of a run went, every seed thin and their mean thick."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sasr.files import write_whole
from sasr.logs.metrics import Event, read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "curve.png"
INSTALL = 'no pictures, as matplotlib is not installed: pip install "sasr[report]"'
_POINTS = 200


class Curve(NamedTuple):
    """Evaluations of P members at K steps."""

    steps: NDArray[np.int64]  # (K,)
    returns: NDArray[np.float64]  # (P, K) mean return of the episodes, NaN where there was none
    success: NDArray[np.float64]  # (P, K) share of episodes that succeeded


def available() -> bool:
    """Whether pictures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def evaluation_curve(events: list[Event], members: int) -> Curve:
    """The evaluations among a run's events."""
    events = [event for event in events if event["kind"] == "evaluation"]
    steps = sorted({int(event["step"]) for event in events})
    place = {step: k for k, step in enumerate(steps)}
    curve = Curve(np.array(steps, np.int64), *(np.full((members, len(steps)), np.nan) for _ in range(2)))
    for event in events:
        at = event["member"], place[event["step"]]
        curve.returns[at] = _number(event["return_mean"])
        curve.success[at] = _number(event["success_rate"])
    return curve


def training_curve(events: list[Event], members: int, end: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Training returns averaged within equal parts of the run: middles (K,), means (P, K).

    Where no episode of a member ended it has the value before, NaN at first: a mean over members must not jump because
    another one happens to be between two episodes.
    """
    edges = np.linspace(0, end, _POINTS + 1)
    sums, counts = np.zeros((members, _POINTS)), np.zeros((members, _POINTS))
    for event in events:
        if event["kind"] == "episode" and event["return"] is not None:
            k = min(int(event["step"] * _POINTS / max(end, 1)), _POINTS - 1)
            sums[event["member"], k] += event["return"]
            counts[event["member"], k] += 1
    newest = np.maximum.accumulate(np.where(counts > 0, np.arange(_POINTS), 0), axis=1)
    with np.errstate(invalid="ignore"):
        means = np.take_along_axis(sums / counts, newest, axis=1)
    return (edges[1:] + edges[:-1]) / 2, means


def draw_curve(run: Path, *, title: str, members: int) -> Path | None:
    """Draw a run's metrics; None where nothing has happened that could be drawn."""
    events = read_metrics(run, "episode", "evaluation")
    if not events:
        return None
    return save_picture(_figure(events, title, members), run / NAME)


def save_picture(figure: Figure, path: Path) -> Path:
    """Write a PNG, whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_whole(path, buffer.getvalue())
    return path


def _figure(events: list[Event], title: str, members: int) -> Figure:
    # A figure of its own and not pyplot's: pyplot would choose a window system and keep the figure for ever.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    end = max(event["step"] for event in events)
    middles, training = training_curve(events, members, end)
    found = evaluation_curve(events, members)
    _lines(axes, middles, training, colour="tab:grey", label="training episodes")
    _lines(axes, found.steps, found.returns, colour="tab:blue", label=f"evaluation, {_of(members)}", marker=".")
    axes.set(title=title, xlabel="steps", ylabel="return of an episode (the environment's)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.25)
    axes.legend(loc="best", frameon=False)
    return figure


def _lines(
    axes: Any, steps: NDArray[Any], values: NDArray[np.float64], *, colour: str, label: str, **style: Any
) -> None:
    """Every member thin, the mean of those that have a value thick, and ± one standard error as a band."""
    there = np.isfinite(values).any(0)
    if not there.any():
        return
    if len(values) > 1:
        for own in values:
            known = np.isfinite(own)
            axes.plot(steps[known], own[known], color=colour, linewidth=0.6, alpha=0.35)
    n = np.isfinite(values[:, there]).sum(0)
    mean = np.nansum(values[:, there], 0) / n
    axes.plot(steps[there], mean, color=colour, linewidth=1.8, label=label, **style)
    if len(values) > 1:
        spread = np.sqrt(np.nansum((values[:, there] - mean) ** 2, 0) / np.maximum(n - 1, 1) / n)
        axes.fill_between(steps[there], mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)


def _of(members: int) -> str:
    return f"mean ± standard error of {members} seeds" if members > 1 else "one seed"


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
