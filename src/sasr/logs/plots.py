"""Plots of a run: `curve.png`, the returns of its seeds and their mean, and maps of SASR's success rate."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sasr.experience.retained import FAILURE, SUCCESS
from sasr.experience.types import Batch
from sasr.files import read_arrays, write_arrays, write_whole
from sasr.logs.metrics import Event, read_metrics
from sasr.logs.recorders import number_or_nan
from sasr.logs.states import has_two_bounded_entries
from sasr.shaping.beta import beta_mean
from sasr.shaping.sasr import SASR
from sasr.training.trainer import Recorder, Trainer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = "curve.png"
INSTALL = 'no plots, because matplotlib is not installed: pip install "sasr[report]"'
_CURVE_POINTS = 200


class Curve(NamedTuple):
    """Evaluations of P seeds at K steps."""

    steps: NDArray[np.int64]  # (K,)
    returns: NDArray[np.float64]  # (P, K) mean return of the episodes, NaN where there was none
    success: NDArray[np.float64]  # (P, K) share of episodes that succeeded


def evaluation_curve(events: list[Event], seeds: int) -> Curve:
    """The evaluations among a run's events."""
    events = [event for event in events if event["kind"] == "evaluation"]
    steps = sorted({int(event["step"]) for event in events})
    place = {step: k for k, step in enumerate(steps)}
    unknown = np.full((seeds, len(steps)), np.nan)
    curve = Curve(np.array(steps, np.int64), unknown, unknown.copy())
    for event in events:
        at = event["member"], place[event["step"]]
        curve.returns[at] = number_or_nan(event["return_mean"])
        curve.success[at] = number_or_nan(event["success_rate"])
    return curve


def training_curve(events: list[Event], seeds: int, end: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Training returns averaged within equal parts of the run: middles (K,), means (P, K).

    A part without a finished episode has the value before, NaN at first. Otherwise the mean over seeds would jump
    whenever one of them is between two episodes.
    """
    edges = np.linspace(0, end, _CURVE_POINTS + 1)
    sums = np.zeros((seeds, _CURVE_POINTS))
    counts = np.zeros((seeds, _CURVE_POINTS))
    for event in events:
        if event["kind"] == "episode" and event["return"] is not None:
            k = min(int(event["step"] * _CURVE_POINTS / max(end, 1)), _CURVE_POINTS - 1)
            sums[event["member"], k] += event["return"]
            counts[event["member"], k] += 1
    newest = np.maximum.accumulate(np.where(counts > 0, np.arange(_CURVE_POINTS), 0), axis=1)
    with np.errstate(invalid="ignore"):
        means = np.take_along_axis(sums / counts, newest, axis=1)
    return (edges[1:] + edges[:-1]) / 2, means


def draw_curve(run: Path, *, title: str, seeds: int) -> Path | None:
    """Draw a run's returns; None without any episode."""
    events = read_metrics(run, "episode", "evaluation")
    if not events:
        return None
    return save_picture(curve_figure(events, title, seeds), run / CURVE)


def save_picture(figure: Figure, path: Path) -> Path:
    """Write a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_whole(path, buffer.getvalue())
    return path


def curve_figure(events: list[Event], title: str, seeds: int) -> Figure:
    """Returns of training episodes and of evaluations over steps."""
    # Not pyplot's: it would choose a window system and keep the figure in memory.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    end = max(event["step"] for event in events)
    middles, training = training_curve(events, seeds, end)
    evaluation = evaluation_curve(events, seeds)
    _lines(axes, middles, training, colour="tab:grey", label="training episodes")
    over = f"mean ± standard error of {seeds} seeds" if seeds > 1 else "one seed"
    label = f"evaluation, {over}"
    _lines(axes, evaluation.steps, evaluation.returns, colour="tab:blue", label=label, marker=".")
    axes.set(title=title, xlabel="steps", ylabel="return of an episode (the environment's)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.25)
    axes.legend(loc="best", frameon=False)
    return figure


def _lines(
    axes: Any, steps: NDArray[Any], values: NDArray[np.float64], *, colour: str, label: str, **style: Any
) -> None:
    """Thin lines for the seeds, a thick one for their mean, and a band of ± one standard error."""
    known_steps = np.isfinite(values).any(0)
    if not known_steps.any():
        return
    if len(values) > 1:
        for seed in values:
            known = np.isfinite(seed)
            axes.plot(steps[known], seed[known], color=colour, linewidth=0.6, alpha=0.35)
    shown, shown_steps = values[:, known_steps], steps[known_steps]
    n = np.isfinite(shown).sum(0)
    mean = np.nansum(shown, 0) / n
    axes.plot(shown_steps, mean, color=colour, linewidth=1.8, label=label, **style)
    if len(values) > 1:
        error = np.sqrt(np.nansum((shown - mean) ** 2, 0) / np.maximum(n - 1, 1) / n)
        axes.fill_between(shown_steps, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)


MAPS_DATA = "success_map.npz"
MAPS = "success_map.png"
MOMENTS = 10
_MAP_POINTS = 61
_MAP_BYTES = 2**28


class Maps(NamedTuple):
    """Success-rate estimates of P seeds at K steps over a grid of observations."""

    steps: NDArray[np.int64]  # (K,)
    x: NDArray[np.float64]  # (X,) the observation's first entry
    y: NDArray[np.float64]  # (Y,) the second
    rate: NDArray[np.float32]  # (K, P, Y, X) mean of Beta(N_S + 1, N_F + 1)


class SuccessMap(Recorder):
    """Maps of SASR's success rate; only if observations are two bounded numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shaper: SASR | None = None
        self.kept_steps: list[int] = []
        self.kept_rates: list[NDArray[np.float32]] = []

    def begin(self, trainer: Trainer) -> None:
        """Set up the grid; a resumed run keeps its earlier maps."""
        space, shaper = trainer.population.observation_space, trainer.shaper
        if not isinstance(shaper, SASR) or shaper.config.state_action or not has_two_bounded_entries(space):
            return
        self.shaper = shaper
        (x_low, y_low), (x_high, y_high) = space.low.tolist(), space.high.tolist()
        self.x = np.linspace(x_low, x_high, _MAP_POINTS)
        self.y = np.linspace(y_low, y_high, _MAP_POINTS)
        self.period = max(1, trainer.config.steps // MOMENTS)
        self.next = (trainer.loop.steps // self.period + 1) * self.period
        if trainer.loop.steps and (self.folder / MAPS_DATA).exists():
            try:
                maps = read_maps(self.folder)
                count = int((maps.steps <= trainer.loop.steps).sum())
                self.kept_steps, self.kept_rates = maps.steps[:count].tolist(), list(maps.rate[:count])
            except ValueError as error:
                raise ValueError(f"{MAPS_DATA} can't be read, only what follows will be in it: {error}") from error

    def turned(self, steps: int) -> None:
        """Add a map after each period."""
        if self.shaper is not None and steps >= self.next:
            self.next = (steps // self.period + 1) * self.period
            self.kept_steps.append(steps)
            self.kept_rates.append(success_rates(self.shaper, self.x, self.y))
            ends, rate = np.array(self.kept_steps, np.int64), np.stack(self.kept_rates)
            write_arrays(self.folder / MAPS_DATA, steps=ends, x=self.x, y=self.y, rate=rate)


def success_rates(shaper: SASR, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float32]:
    """Mean of the Beta distribution at every point of a grid, (P, Y, X), from the shaper's counts."""
    host = shaper.bound
    grid = torch.tensor(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2), dtype=torch.float32, device=host.device)
    with torch.no_grad():
        counts = shaper.counts(Batch.of_states(grid.expand(host.members, -1, -1)))
        rate = beta_mean(counts[..., SUCCESS], counts[..., FAILURE])
    rates: NDArray[np.float32] = rate.view(host.members, len(y), len(x)).float().cpu().numpy()
    return rates


def read_maps(run: str | Path) -> Maps:
    """The maps of a run; an error says what is wrong with the file."""
    maps = Maps(*read_arrays(Path(run) / MAPS_DATA, Maps._fields, _MAP_BYTES))
    are_numbers = all(part.dtype.kind in "iuf" for part in maps)
    if not are_numbers or (maps.steps.ndim, maps.x.ndim, maps.y.ndim) != (1, 1, 1):
        raise ValueError(f"{MAPS_DATA} does not hold steps, states and rates")
    moments, width, height = len(maps.steps), len(maps.x), len(maps.y)
    if maps.rate.ndim != 4 or (maps.rate.shape[0], *maps.rate.shape[2:]) != (moments, height, width):
        raise ValueError(
            f"{MAPS_DATA} has rates of shape {maps.rate.shape} for {moments} moments, {height} × {width} states"
        )
    return maps


def draw_maps(run: Path, *, title: str, axes: Mapping[int, str] | None = None) -> Path | None:
    """Draw the mean over seeds at every step as small panels; None without maps."""
    if not (run / MAPS_DATA).exists():
        return None
    from matplotlib.figure import Figure

    maps = read_maps(run)
    names = axes or {}
    columns = min(5, len(maps.steps))
    rows = -(-len(maps.steps) // columns)
    figure = Figure(figsize=(2.3 * columns + 1.2, 2.1 * rows + 0.6), layout="constrained")
    panels: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for panel in panels.ravel()[len(maps.steps) :]:
        panel.set_axis_off()
    image: Any = None
    for panel, step, rate in zip(panels.ravel(), maps.steps, maps.rate, strict=False):
        image = panel.pcolormesh(maps.x, maps.y, rate.mean(0), vmin=0.0, vmax=1.0, shading="auto", rasterized=True)
        panel.set_title(f"{step:,} steps", fontsize=9)
        panel.tick_params(labelsize=7)
    figure.supxlabel(names.get(0, "observation[0]"), fontsize=9)
    figure.supylabel(names.get(1, "observation[1]"), fontsize=9)
    figure.suptitle(title, fontsize=11)
    figure.colorbar(image, ax=panels, label="success rate, (N_S + 1) / (N_S + N_F + 2)")
    return save_picture(figure, run / MAPS)
