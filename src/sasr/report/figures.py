"""Figures for papers, as PNG and PDF by matplotlib; every function takes arrays and gives a figure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sasr.report import stats
from sasr.report.analysis import Along, Stage, Visits, bin_stages, count_visits
from sasr.report.collect import Collection
from sasr.report.palette import DASHES, LIGHT
from sasr.report.reference import Reference, like, until
from sasr.report.seeds import SeedResult
from sasr.report.stats import Curve, Estimate, Profile
from sasr.report.summary import Summary

Band = Literal["error", "iqm", "seeds"]
"""Mean ± standard error, interquartile mean with its 95 % interval, or the mean with every seed as a thin line."""
Panels = Mapping[str, Mapping[str, Sequence[SeedResult]]]
"""Seeds by method, for each panel by its title."""
WIDTH, HEIGHT = 2.9, 2.2
"""Inches of a panel."""
LONGER = 1.5
"""Curves of others that are so many times longer than ours get a panel of their own."""
_DASHED = (0, (4, 2))


def learning_curves(
    panels: Panels,
    *,
    band: Band = "error",
    reference: Mapping[str, Mapping[str, Reference]] | None = None,
    columns: int = 4,
    seed: int = 0,
) -> Any:
    """One panel for each task, one line with its band for each method; reference curves are dashed.

    Args:
        panels: Seeds by method, for each task.
        band: What is drawn around a line.
        reference: Curves by method, for each task; those of methods that a panel has are drawn, in their colour.
        columns: Panels in a row.
        seed: Of the bootstrap.
    """
    methods = list(dict.fromkeys(method for own in panels.values() for method in own))
    figure, axes = _grid(len(panels), columns)
    for (task, own), panel in zip(panels.items(), axes, strict=True):
        for method, seeds in own.items():
            _draw_method(panel, seeds, _style(methods.index(method)), band, seed)
            if curve := like(method, (reference or {}).get(task, {})):
                colour = _style(methods.index(method))[0]
                panel.plot(curve.steps, curve.mean, color=colour, linestyle=_DASHED, linewidth=0.9, alpha=0.8)
        _dress(panel, task)
    _legend(figure, methods, dashed="reference" if reference else "")
    return figure


def over_authors(
    methods: Mapping[str, Sequence[SeedResult]], authors: Mapping[str, Reference], *, title: str = "", seed: int = 0
) -> Any:
    """One task: our methods with bands over the authors' curves, dashed, up to where ours end.

    Further panels have returns in training, which is what the authors logged, of the methods that stored them, and all
    that the authors logged where theirs go on for much longer.

    Args:
        methods: Seeds by method.
        authors: Curves by the method whose colour they get; others' are grey.
        title: Of the figure.
        seed: Of the bootstrap.
    """
    end = max((own.steps[-1] for seeds in methods.values() for own in seeds if own.steps), default=0)
    theirs = max((float(own.steps[-1]) for own in authors.values()), default=0.0)
    shown = [(title, methods, float(end))]
    if trained := in_training(methods):
        shown.append(("in training, as the authors'" if authors else "in training", trained, float(end)))
    if theirs > LONGER * end:
        shown.append(("all that the authors logged", methods, theirs))
    figure, axes = _grid(len(shown), len(shown), width=4.6, height=3.0)
    names = list(methods)
    for panel, (words, drawn, last) in zip(axes, shown, strict=True):
        for name, curve in authors.items():
            part, colour = until(curve, last), _style(names.index(name))[0] if name in methods else "#999999"
            panel.plot(part.steps, part.mean, color=colour, linestyle=_DASHED, linewidth=1.0, alpha=0.85)
        for name, seeds in drawn.items():
            _draw_method(panel, seeds, _style(names.index(name)), "error", seed)
        _dress(panel, words)
    _legend(figure, names, dashed="the authors' curves" if authors else "")
    return figure


def in_training(methods: Mapping[str, Sequence[SeedResult]]) -> dict[str, list[SeedResult]]:
    """Curves of returns in training in place of those of evaluations, each stretch at its middle, where known."""
    return {name: [_trained(own) for own in seeds] for name, seeds in methods.items() if all(o.episodes for o in seeds)}


def _trained(own: SeedResult) -> SeedResult:
    middles = [(first + last) // 2 for first, last in zip((0, *own.steps), own.steps, strict=False)]
    known = [k for k, count in enumerate(own.episodes) if count]
    return SeedResult(
        seed=own.seed, steps=tuple(middles[k] for k in known), returns=tuple(own.trained[k] for k in known)
    )


def ablation_grid(
    groups: Mapping[str, Panels],
    *,
    band: Band = "error",
    reference: Mapping[str, Mapping[str, Reference]] | None = None,
    seed: int = 0,
) -> Any:
    """One row of panels for each ablation, one column for each task, variants as lines with a legend in each row.

    Reference curves, by task and variant, are dashed and end where the seeds' curves do.
    """
    tasks = list(dict.fromkeys(task for panels in groups.values() for task in panels))
    figure, axes = _grid(len(tasks) * len(groups), len(tasks))
    for row, (name, panels) in enumerate(groups.items()):
        variants = list(dict.fromkeys(variant for own in panels.values() for variant in own))
        line = axes[row * len(tasks) : (row + 1) * len(tasks)]
        for task, panel in zip(tasks, line, strict=True):
            if task not in panels:
                panel.set_axis_off()
                continue
            for variant, seeds in panels[task].items():
                style = _style(variants.index(variant))
                _draw_method(panel, seeds, style, band, seed, label=variant)
                curve = (reference or {}).get(task, {}).get(variant)
                if curve is not None:
                    shown = until(curve, max(own.steps[-1] for own in seeds if own.steps))
                    panel.plot(shown.steps, shown.mean, color=style[0], linestyle=_DASHED, linewidth=0.9, alpha=0.8)
            _dress(panel, task if row == 0 else "")
        line[0].set_ylabel(name, fontsize=9)
        drawn = next(panel for panel in line if panel.lines)
        drawn.legend(fontsize=6, frameon=False, loc="best")
    return figure


def change_grid(changes: Panels, *, band: Band = "error", seed: int = 0) -> Any:
    """A panel for each change, with two methods in it: what was changed, and the same with that change."""
    figure, axes = _grid(len(changes), 4, width=0.75 * WIDTH, height=0.75 * HEIGHT)
    for panel, (name, pair) in zip(axes, changes.items(), strict=True):
        end = min(max(own.steps[-1] for own in seeds) for seeds in pair.values())
        for index, seeds in enumerate(pair.values()):
            if begun := [_until(own, end) for own in seeds if own.steps[0] <= end]:
                _draw_method(panel, begun, _style(index), band, seed)
        panel.set_xlim(0, end)
        _dress(panel, fill(name, 26))  # as many letters as stand above a panel so narrow
    first = list(next(iter(changes.values())))
    _legend(figure, [first[0], "with the change above"])
    return figure


def interval_bars(summary: Summary) -> Any:
    """The interquartile mean of every method over all tasks, with its interval, best on top."""
    known = [own for own in summary.aggregates if own.tasks]
    ranked = sorted(known, key=lambda own: own.iqm.value)
    figure, (panel,) = _grid(1, 1, width=4.5, height=0.6 + 0.28 * len(ranked))
    for row, own in enumerate(ranked):
        colour = LIGHT[summary.methods.index(own.method) % len(LIGHT)]
        panel.plot([own.iqm.low, own.iqm.high], [row, row], color=colour, linewidth=6, alpha=0.4, solid_capstyle="butt")
        panel.plot([own.iqm.value], [row], "o", color=colour, markersize=5)
    panel.set_yticks(range(len(ranked)), [own.method for own in ranked], fontsize=8)
    panel.set_xlabel("normalised return, IQM and 95 % interval", fontsize=8)
    _clean(panel)
    return figure


def chances(panels: Mapping[str, Mapping[str, Estimate]]) -> Any:
    """A panel for each title: the chance of being ahead on each task, with its interval, the first task on top.

    An interval on one side of the line at 0.5 is coloured: there the seeds tell the two apart.
    """
    tasks = list(dict.fromkeys(task for own in panels.values() for task in own))[::-1]
    figure, axes = _grid(len(panels), len(panels), width=3.6, height=0.5 + 0.26 * len(tasks))
    for panel, (title, own) in zip(axes, panels.items(), strict=True):
        panel.axvline(0.5, color="#999999", linewidth=1.0, linestyle=_DASHED)
        for task, (value, low, high) in own.items():
            told, row = low > 0.5 or high < 0.5, tasks.index(task)
            colour, alpha = (LIGHT[0], 0.6) if told else ("#777777", 0.35)
            panel.plot([low, high], [row, row], color=colour, linewidth=6, alpha=alpha, solid_capstyle="butt")
            panel.plot([value], [row], "o", color=colour, markersize=5)
        panel.set(xlim=(-0.03, 1.03), ylim=(-0.6, len(tasks) - 0.4))
        panel.set_yticks(range(len(tasks)), tasks if panel is axes[0] else [], fontsize=8)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("chance of the larger area", fontsize=8)
        _clean(panel)
    return figure


def profiles(curves: Mapping[str, Profile]) -> Any:
    """Performance profiles: the share of runs above each normalised return."""
    figure, (panel,) = _grid(1, 1, width=4.5, height=3.2)
    for index, own in enumerate(curves.values()):
        colour, dash = _style(index)
        panel.fill_between(own.thresholds, own.low, own.high, color=colour, alpha=0.15, linewidth=0)
        panel.plot(own.thresholds, own.share, color=colour, linestyle=dash, linewidth=1.5)
    panel.set(ylim=(0, 1.02))
    panel.set_xlabel("normalised return τ", fontsize=8)
    panel.set_ylabel("share of runs above τ", fontsize=8)
    _clean(panel)
    _legend(figure, list(curves))
    return figure


def visit_density(
    states: ArrayLike,
    *,
    period: int = 25_000,
    names: tuple[str, str] = ("position", "velocity"),
    bounds: tuple[tuple[float, float], tuple[float, float]] | None = None,
    bins: int = 60,
) -> Any:
    """Where a run has been: the density of visited states (steps, 2), one panel for every `period` steps."""
    return visits(count_visits(states, period=period, names=names, bounds=bounds, bins=bins))


def visits(found: Visits) -> Any:
    """Where a run has been, from counts."""
    # Logarithms: a few states near the start are visited far more often than all others.
    shown = np.log1p(found.density)
    figure, axes = _grid(len(shown), 5 if len(shown) == 5 else 4)
    extent = (found.x[0], found.x[-1], found.y[0], found.y[-1])
    image: Any = None
    for index, (panel, own) in enumerate(zip(axes, shown, strict=True)):
        image = panel.imshow(
            own, origin="lower", extent=extent, aspect="auto", vmin=0.0, vmax=float(shown.max()), cmap="magma"
        )
        panel.set_title(f"{found.steps[index]:,} – {found.steps[index + 1]:,} steps", fontsize=8)
        panel.tick_params(labelsize=7)
    figure.supxlabel(found.names[0], fontsize=8)
    figure.supylabel(found.names[1], fontsize=8)
    figure.colorbar(image, ax=list(axes), label="log(1 + density)")
    return figure


def shaping_along_feature(stages: Sequence[Stage], *, name: str = "height", bins: int = 40) -> Any:
    """Shaped rewards as a density over one feature, and the success-rate estimate's mean along it, stage by stage."""
    return along_feature(bin_stages(stages, name=name, bins=bins))


def along_feature(found: Along) -> Any:
    """Shaped rewards and success rates along a feature, from counts and means in bins."""
    stages = len(found.stages)
    figure, axes = _grid(2 * stages, stages)
    centres = 0.5 * (found.x[1:] + found.x[:-1])
    for index, title in enumerate(found.stages):
        above, below = axes[index], axes[stages + index]
        counts = np.ma.masked_equal(found.counts[index], 0)
        above.pcolormesh(found.x, found.y, counts, cmap="magma_r", norm="log", rasterized=True)
        above.set_title(title, fontsize=9)
        below.plot(centres, found.rate[index], color=LIGHT[0], linewidth=1.6)
        below.set(xlim=(found.x[0], found.x[-1]), ylim=(-0.02, 1.02))
        below.set_xlabel(found.name, fontsize=8)
        for panel in (above, below):
            panel.tick_params(labelsize=7)
    axes[0].set_ylabel("shaped reward", fontsize=8)
    axes[stages].set_ylabel("success rate, estimated", fontsize=8)
    return figure


def save(figure: Any, path: str | Path) -> list[Path]:
    """Write a figure as PNG and PDF; the same figure gives the same bytes."""
    stem = Path(path)
    written = [stem.with_name(f"{stem.name}{end}") for end in (".png", ".pdf")]
    figure.savefig(written[0], dpi=200, metadata={"Software": None})
    figure.savefig(written[1], metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return written


def save_png(figure: Any, path: Path, *, data: str = "") -> None:
    """Write a figure for a page; `data`, a digest of what is drawn, goes into the file, where `png_data` finds it."""
    figure.savefig(path, dpi=110, metadata={"Software": None, **({"Data": data} if data else {})})


def png_data(path: Path) -> str:
    """The digest that a picture was written with; empty where it has none."""
    from PIL import Image

    with Image.open(path) as picture:
        return str(picture.info.get("Data", ""))


def panels_of(found: Collection) -> dict[str, dict[str, Sequence[SeedResult]]]:
    """The seeds of everything that was found, in the order of `found.methods`."""
    methods = found.methods
    cells = {task: [(method, found.cell(task, method)) for method in methods] for task in found.tasks}
    return {task: {name: own.seeds for name, own in row if own and own.seeds} for task, row in cells.items()}


def _draw_method(
    panel: Any, seeds: Sequence[SeedResult], style: tuple[str, Any], band: Band, seed: int, label: str | None = None
) -> None:
    colour, dash = style
    steps, values = stats.aligned([(own.steps, own.returns) for own in seeds])
    curve: Curve = stats.iqm_curve(steps, values, seed=seed) if band == "iqm" else stats.mean_curve(steps, values)
    if band == "seeds":
        for own in seeds:
            panel.plot(own.steps, own.returns, color=colour, linewidth=0.5, alpha=0.4)
    else:
        panel.fill_between(steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(steps, curve.centre, color=colour, linestyle=dash, linewidth=1.5, label=label)


def _until(own: SeedResult, end: int) -> SeedResult:
    """The curve up to there: beyond is nothing to compare, and what is higher would press the rest down."""
    points = bisect_right(own.steps, end)
    return SeedResult(seed=own.seed, steps=own.steps[:points], returns=own.returns[:points])


def _grid(count: int, columns: int, *, width: float = WIDTH, height: float = HEIGHT) -> tuple[Any, Any]:
    """A figure of its own, not pyplot's: nothing global is touched, and no display is needed."""
    from matplotlib.figure import Figure

    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.set_axis_off()
    return figure, axes[:count]


def _dress(panel: Any, title: str) -> None:
    panel.set_title(title, fontsize=9)
    panel.set_xlabel("steps", fontsize=8)
    panel.set_ylabel("return", fontsize=8)
    panel.xaxis.set_major_formatter(_short_steps)
    _clean(panel)


def _clean(panel: Any) -> None:
    panel.tick_params(labelsize=7)
    panel.grid(alpha=0.25, linewidth=0.5)
    panel.spines[["top", "right"]].set_visible(False)


def _short_steps(value: float, _: object = None) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"


def _legend(figure: Any, methods: Sequence[str], *, dashed: str = "") -> None:
    from matplotlib.lines import Line2D

    styles = [_style(index) for index in range(len(methods))]
    handles = [Line2D([], [], color=colour, linestyle=dash, linewidth=1.5) for colour, dash in styles]
    names = list(methods)
    if dashed:
        handles.append(Line2D([], [], color="#999999", linestyle=_DASHED, linewidth=1.0))
        names.append(dashed)
    for columns in range(min(6, len(names)), 0, -1):
        drawn = figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=7, frameon=False)
        if columns == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return
        drawn.remove()  # wider than the picture, which would cut names off


def _style(index: int) -> tuple[str, Any]:
    return LIGHT[index % len(LIGHT)], DASHES[index // len(LIGHT) % len(DASHES)]
