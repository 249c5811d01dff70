"""Pictures of the pages, in the style of the report's figures; all take arrays and give matplotlib figures."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

from sasr.report.figures import (
    DASHED,
    HEIGHT,
    LIGHT,
    WIDTH,
    Panels,
    clean,
    draw_method,
    draw_reference,
    dress,
    grid,
    legend,
    style,
)
from sasr.report.read import Reference
from sasr.report.seeds import SeedResult
from sasr.report.stats import Estimate

Curves = Mapping[str, Sequence[SeedResult]]
"""The seeds of each method."""
_GREY = "#999999"
_APART: dict[str, Any] = {"color": LIGHT[0], "linewidth": 6, "alpha": 0.6, "solid_capstyle": "butt"}
_NOT_APART: dict[str, Any] = {"color": "#777777", "linewidth": 6, "alpha": 0.35, "solid_capstyle": "butt"}


def over_authors(ours: Curves, others: Curves, authors: Mapping[str, Reference], *, title: str) -> Any:
    """One task: methods with our agent, and beside them those with the paper's, over the authors' dashed curves.

    Each of our curves has its band. Authors' curves of methods that are not ours are grey.
    """
    panels: list[tuple[str, Curves, Mapping[str, Reference]]] = []
    if ours:
        panels.append((f"{title}, today's agent", ours, {}))
    if others or authors:
        panels.append(
            (
                f"{title}, the paper's agent or an earlier default" if others else f"{title}, the authors' curves",
                others,
                authors,
            )
        )
    figure, axes = grid(len(panels), len(panels), width=5.4, height=3.2)
    styles = {name: style(index) for index, name in enumerate([*ours, *others])}
    for panel, (words, drawn, references) in zip(axes, panels, strict=True):
        for name, curve in references.items():
            draw_reference(panel, curve, styles[name][0] if name in styles else _GREY)
        for name, seeds in drawn.items():
            draw_method(panel, seeds, styles[name])
        dress(panel, words)
    legend(figure, list(styles), dashed="the authors' curves" if authors else "")
    return figure


def ablation(panels: Panels, reference: Mapping[str, Mapping[str, Reference]]) -> Any:
    """A panel for each task with a line for each variant; the authors' curves are dashed and end where ours do."""
    figure, axes = grid(len(panels), len(panels))
    variants = list(dict.fromkeys(chain.from_iterable(panels.values())))
    for (task, methods), panel in zip(panels.items(), axes, strict=True):
        for variant, seeds in methods.items():
            drawn = style(variants.index(variant))
            draw_method(panel, seeds, drawn, label=variant)
            if curve := reference.get(task, {}).get(variant):
                end = max(seed.steps[-1] for seed in seeds)
                draw_reference(panel, curve.until(end), drawn[0])
        dress(panel, task)
    axes[0].legend(fontsize=6, frameon=False, loc="best")
    return figure


def changes(pairs: Panels) -> Any:
    """A panel for each change, with two methods in it: what was changed, and the same with that change."""
    figure, axes = grid(len(pairs), 4, width=0.75 * WIDTH, height=0.75 * HEIGHT)
    for panel, (name, pair) in zip(axes, pairs.items(), strict=True):
        end = min(max(seed.steps[-1] for seed in seeds) for seeds in pair.values())
        for index, seeds in enumerate(pair.values()):
            if begun := [_cut(seed, end) for seed in seeds if seed.steps[0] <= end]:
                draw_method(panel, begun, style(index))
        panel.set_xlim(0, end)
        dress(panel, fill(name, 26))  # as many letters as stand above a panel so narrow
    base, _ = next(iter(pairs.values()))
    legend(figure, [base, "with the change above"])
    return figure


def chances(panels: Mapping[str, Mapping[str, Estimate]], order: Sequence[str]) -> Any:
    """A panel for each title: the chance of being ahead on each task, with its interval; tasks from the top.

    An interval on one side of the line at 0.5 is coloured: there the seeds tell the two apart.
    """
    from matplotlib.lines import Line2D

    known = set(chain.from_iterable(panels.values()))
    tasks = [task for task in reversed(order) if task in known]
    figure, axes = grid(len(panels), len(panels), width=3.6, height=0.5 + 0.26 * len(tasks))
    for panel, (title, estimates) in zip(axes, panels.items(), strict=True):
        panel.axvline(0.5, color=_GREY, linewidth=1.0, linestyle=DASHED)
        for task, (value, low, high) in estimates.items():
            row = tasks.index(task)
            bar = _APART if low > 0.5 or high < 0.5 else _NOT_APART
            panel.plot([low, high], [row, row], **bar)
            panel.plot([value], [row], "o", color=bar["color"], markersize=5)
        panel.set(xlim=(-0.03, 1.03), ylim=(-0.6, len(tasks) - 0.4))
        panel.set_yticks(range(len(tasks)), tasks if panel is axes[0] else [], fontsize=8)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("chance of the larger area", fontsize=8)
        clean(panel)
    figure.suptitle("Chance that a seed of the default has the larger area under the learning curve", fontsize=10)
    handles = {
        "estimate": Line2D([], [], marker="o", linestyle="", color="#777777", markersize=5),
        "95 % interval": Line2D([], [], **_NOT_APART),
        "95 % interval on one side of 0.5": Line2D([], [], **_APART),
        "no difference": Line2D([], [], color=_GREY, linewidth=1.0, linestyle=DASHED),
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def save_png(figure: Any, path: Path, *, data: str) -> None:
    """Write a figure; `data`, a digest of what is drawn, goes into the file, where `png_data` finds it."""
    figure.savefig(path, dpi=110, metadata={"Software": None, "Data": data})


def png_data(path: Path) -> str:
    """The digest that a picture was written with; empty where it has none."""
    from PIL import Image

    with Image.open(path) as picture:
        return str(picture.info.get("Data", ""))


def _cut(seed: SeedResult, end: int) -> SeedResult:
    """The curve up to there: beyond is nothing to compare, and what is higher would press the rest down."""
    points = bisect_right(seed.steps, end)
    return SeedResult(seed=seed.seed, steps=seed.steps[:points], returns=seed.returns[:points])
