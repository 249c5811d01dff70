"""Figures for papers, drawn by matplotlib as PNG and PDF."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasr.report import stats
from sasr.report.read import Collection, Reference, family, reference_of
from sasr.report.seeds import SeedResult
from sasr.report.stats import Profile
from sasr.report.summary import Summary

Floats = NDArray[np.floating[Any]]
Panels = Mapping[str, Mapping[str, Sequence[SeedResult]]]
"""Seeds by method, for each panel by its title."""
WIDTH, HEIGHT = 2.9, 2.2
"""Inches of a panel."""
DASHED = (0, (4, 2))


def learning_curves(
    panels: Panels, *, reference: Mapping[str, Mapping[str, Reference]] | None = None, rivals: Sequence[str] = ()
) -> Any:
    """One panel for each task, one line of mean ± standard error for each method: the paper's Figure 3.

    Args:
        panels: Seeds by method, for each task; a task without any gets its reference curves in full.
        reference: Curves by method, for each task, drawn dashed in the method's colour up to the end of our curves;
            also of methods that were only run on other tasks.
        rivals: Methods whose reference curves are drawn even if they were not run.
    """
    methods = list(dict.fromkeys(method for seeds_by_method in panels.values() for method in seeds_by_method))
    reference = reference or {}
    alone = _with_reference_alone(rivals, methods, panels, reference)
    methods += alone
    figure, axes = curve_grid(len(panels))
    for (task, seeds_by_method), panel in zip(panels.items(), axes, strict=True):
        end = last_step(seeds_by_method) or math.inf
        for method, seeds in seeds_by_method.items():
            draw_method(panel, seeds, style(methods.index(method)))
        for method, curve in _reference_by_method(methods, seeds_by_method, reference.get(task, {})).items():
            draw_reference(panel, curve.until(end), style(methods.index(method))[0])
        if not panel.lines:
            panel.text(0.5, 0.5, "not run", transform=panel.transAxes, ha="center", fontsize=9, color="#777777")
            panel.set(xticks=[], yticks=[])
        dress(panel, task)
    legend(figure, methods, dashed="reference" if reference else "", dashed_alone=alone)
    return figure


def _reference_by_method(
    methods: Sequence[str], run_here: Container[str], curves: Mapping[str, Reference]
) -> dict[str, Reference]:
    """Each curve once, even for several variants of a method: under the first that was run on this task."""
    run_first = sorted(methods, key=lambda method: method not in run_here)
    by_method: dict[str, Reference] = {}
    for method in run_first:
        curve = reference_of(method, curves)
        if curve is not None and all(curve is not other for other in by_method.values()):
            by_method[method] = curve
    return by_method


def _with_reference_alone(
    rivals: Sequence[str], methods: Sequence[str], panels: Panels, reference: Mapping[str, Mapping[str, Reference]]
) -> list[str]:
    """Those of the rivals that have a reference curve on some task, and no method that it is drawn with."""
    shown = {family(method) for method in methods}
    known = {method for task in panels for method in reference.get(task, {})}
    return [rival for rival in rivals if rival in known and rival not in shown]


def last_step(seeds_by_method: Mapping[str, Sequence[SeedResult]]) -> int:
    """The last step of the longest curve; 0 without any."""
    return max((seed.steps[-1] for seeds in seeds_by_method.values() for seed in seeds if seed.steps), default=0)


def visit_density(
    densities: Mapping[str, Floats], *, x: Floats, y: Floats, steps: Sequence[int], axes: tuple[str, str]
) -> Any:
    """Visited states, one row for each method and one panel for each period: the paper's Figure 5.

    Args:
        densities: For each method, the density of visited states in each period, (K, Y, X).
        x: Edges of the bins of the first state variable, (X + 1,).
        y: Edges of the bins of the second, (Y + 1,).
        steps: Start of each period, and the end of the last, (K + 1,).
        axes: Names of both variables.
    """
    # Logarithms: a few states near the start are visited far more often than all others.
    shown = {method: np.log1p(density) for method, density in densities.items()}
    top = max(float(density.max()) for density in shown.values())
    periods = len(steps) - 1
    columns = periods if len(shown) > 1 or periods == 5 else 4
    figure, panels = grid(len(shown) * periods, columns, height=0.8 * HEIGHT)
    image: Any = None
    for row, (method, density) in enumerate(shown.items()):
        for period in range(periods):
            panel = panels[row * periods + period]
            image = panel.pcolormesh(x, y, density[period], vmin=0.0, vmax=top, cmap="magma", rasterized=True)
            panel.tick_params(labelsize=7)
            if len(shown) > 1:
                panel.label_outer()
            if row == 0:
                panel.set_title(f"{short_steps(steps[period])} – {short_steps(steps[period + 1])} steps", fontsize=8)
            if period == 0 and len(shown) > 1:
                panel.set_ylabel(method, fontsize=9)
    figure.supxlabel(axes[0], fontsize=8)
    figure.supylabel(axes[1], fontsize=8)
    figure.colorbar(image, ax=list(panels), label="log(1 + density)", aspect=20 * len(panels) // columns, pad=0.01)
    return figure


def bonus_along_feature(
    *, steps: Sequence[int], feature: Floats, bonus: Floats, name: str, seeds: Sequence[SeedResult]
) -> Any:
    """SASR's bonus along one state variable, above the learning curve: the paper's Figure 4.

    Args:
        steps: Steps at which states were logged, (K,).
        feature: The state variable of some visited states at each of them, (K, n).
        bonus: The bonus there, (K, n).
        name: Name of the state variable.
        seeds: The seeds of the learning curve.
    """
    # Four of the steps, evenly spread, with the last.
    shown = [round(k) for k in np.linspace(-1, len(steps) - 1, min(4, len(steps)) + 1)[1:]]
    figure, upper, lower = panels_over_one(len(shown))
    limits = (float(feature.min()), float(feature.max())), (float(bonus.min()), float(bonus.max()))
    for panel, moment in zip(upper, shown, strict=True):
        panel.hist2d(feature[moment], bonus[moment], bins=40, range=limits, cmap="magma_r", norm="log", rasterized=True)
        panel.set_title(f"{short_steps(steps[moment])} steps", fontsize=9)
        panel.set_xlabel(name, fontsize=8)
        panel.tick_params(labelsize=7)
        lower.axvline(steps[moment], color="#999999", linewidth=1.0, linestyle=DASHED)
    upper[0].set_ylabel("shaped reward", fontsize=8)
    if seeds:
        draw_method(lower, seeds, style(0))
    dress(lower, "")
    return figure


def interval_bars(summary: Summary) -> Any:
    """The interquartile mean of every method over all tasks, with its interval, best on top."""
    ranked = [aggregate for aggregate in summary.aggregates if aggregate.tasks]
    ranked.sort(key=lambda aggregate: aggregate.iqm.value)
    figure, (panel,) = grid(1, 1, width=4.5, height=0.6 + 0.28 * len(ranked))
    for row, aggregate in enumerate(ranked):
        iqm = aggregate.iqm
        colour = LIGHT[summary.methods.index(aggregate.method) % len(LIGHT)]
        panel.plot([iqm.low, iqm.high], [row, row], color=colour, linewidth=6, alpha=0.4, solid_capstyle="butt")
        panel.plot([iqm.value], [row], "o", color=colour, markersize=5)
    panel.set_yticks(range(len(ranked)), [aggregate.method for aggregate in ranked], fontsize=8)
    panel.set_xlabel("normalised return, IQM and 95 % interval", fontsize=8)
    clean(panel)
    return figure


def profiles(curves: Mapping[str, Profile]) -> Any:
    """Performance profiles: the share of runs above each normalised return."""
    figure, (panel,) = grid(1, 1, width=4.5, height=3.2)
    for index, profile in enumerate(curves.values()):
        colour, dash = style(index)
        panel.fill_between(profile.thresholds, profile.low, profile.high, color=colour, alpha=0.15, linewidth=0)
        panel.plot(profile.thresholds, profile.share, color=colour, linestyle=dash, linewidth=1.5)
    panel.set(ylim=(0, 1.02))
    panel.set_xlabel("normalised return τ", fontsize=8)
    panel.set_ylabel("share of runs above τ", fontsize=8)
    clean(panel)
    legend(figure, list(curves))
    return figure


def save(figure: Any, path: str | Path) -> list[Path]:
    """Write a figure as PNG and PDF; the same figure gives the same bytes."""
    stem = Path(path)
    png, pdf = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.pdf")
    figure.savefig(png, dpi=200, metadata={"Software": None})
    figure.savefig(pdf, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return [png, pdf]


def draw_reference(panel: Any, curve: Reference, colour: str) -> None:
    """Draw a reference curve, dashed."""
    panel.plot(curve.steps, curve.mean, color=colour, linestyle=DASHED, linewidth=1.0, alpha=0.85)


def panels_of(collection: Collection) -> dict[str, dict[str, Sequence[SeedResult]]]:
    """The seeds of all results, in the order of `collection.methods`."""
    panels: dict[str, dict[str, Sequence[SeedResult]]] = {task: {} for task in collection.tasks}
    for result in sorted(collection.results, key=lambda result: collection.methods.index(result.method)):
        if result.seeds:
            panels[result.task][result.method] = result.seeds
    return panels


def draw_method(panel: Any, seeds: Sequence[SeedResult], style: tuple[str, Any], label: str | None = None) -> None:
    """Draw a method's seeds as one line with a band of ± standard error, on the steps that they have."""
    colour, dash = style
    steps, values = stats.aligned([(seed.steps, seed.returns) for seed in seeds])
    curve = stats.mean_curve(steps, values)
    panel.fill_between(steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(steps, curve.centre, color=colour, linestyle=dash, linewidth=1.5, label=label)


def curve_grid(count: int) -> tuple[Any, Any]:
    """Panels for learning curves: nine in three rows like the paper, one alone larger."""
    if count == 1:
        return grid(1, 1, width=5.6, height=3.4)
    if count % 3 == 0:
        return grid(count, 3)
    return grid(count, 4)


def panels_over_one(count: int) -> tuple[Any, Any, Any]:
    """A figure with a row of panels, and one wide panel below them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * count, 2.0 * HEIGHT), layout="constrained")
    layout = figure.add_gridspec(2, count)
    upper = [figure.add_subplot(layout[0, column]) for column in range(count)]
    return figure, upper, figure.add_subplot(layout[1, :])


def grid(count: int, columns: int, *, width: float = WIDTH, height: float = HEIGHT) -> tuple[Any, Any]:
    """A figure with a grid of panels; not pyplot's, which needs global state and a display."""
    from matplotlib.figure import Figure

    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.set_axis_off()
    return figure, axes[:count]


def dress(panel: Any, title: str) -> None:
    """Give a panel of learning curves its title and its axes' names."""
    panel.set_title(title, fontsize=9)
    panel.set_xlabel("steps", fontsize=8)
    panel.set_ylabel("return", fontsize=8)
    panel.xaxis.set_major_formatter(short_steps)
    clean(panel)


def clean(panel: Any) -> None:
    """Make ticks, grid and frame small and light."""
    panel.tick_params(labelsize=7)
    panel.grid(alpha=0.25, linewidth=0.5)
    panel.spines[["top", "right"]].set_visible(False)


def short_steps(value: float, _: object = None) -> str:
    """A number of steps for an axis.

    >>> short_steps(25_000), short_steps(1.5e6)
    ('25k', '1.5M')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e3:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


def legend(figure: Any, methods: Sequence[str], *, dashed: str = "", dashed_alone: Sequence[str] = ()) -> None:
    """Draw a legend of the methods below a figure, in as few rows as fit.

    `dashed` names the dashed curves; methods in `dashed_alone` have only these.
    """
    from matplotlib.lines import Line2D

    handles = []
    for index, method in enumerate(methods):
        colour, dash = style(index)
        if method in dashed_alone:
            handles.append(Line2D([], [], color=colour, linestyle=DASHED, linewidth=1.0))
        else:
            handles.append(Line2D([], [], color=colour, linestyle=dash, linewidth=1.5))
    names = list(methods)
    if dashed:
        handles.append(Line2D([], [], color="#999999", linestyle=DASHED, linewidth=1.0))
        names.append(dashed)
    for columns in range(min(6, len(names)), 0, -1):
        drawn = figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=7, frameon=False)
        if columns == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return
        drawn.remove()  # wider than the figure, which would cut names off


def style(index: int) -> tuple[str, Any]:
    """Colour and dashes of the method with this index."""
    return LIGHT[index % len(LIGHT)], DASHES[index // len(LIGHT) % len(DASHES)]


# Neighbouring colours differ in lightness too, for readers without colour vision and for print.
LIGHT = (
    "#c8321f", "#1f5fbf", "#0d8a6a", "#8a4fbf", "#b87a00", "#3a9fc9",
    "#b8447f", "#5b6b7a", "#6a8f1f", "#7a4a2b", "#23306b",
)  # fmt: skip
DARK = (
    "#ff6b52", "#6ea8ff", "#3fd0a5", "#c195f5", "#f2b73d", "#7fd4f5",
    "#f58bc0", "#aab8c5", "#b4d95a", "#d9a37a", "#a3b1ff",
)  # fmt: skip
DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)))
