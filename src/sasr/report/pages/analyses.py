"""What single runs went through: where they have been, and what they were paid for it."""

from __future__ import annotations

from sasr.report.analysis import Along, Analysis
from sasr.report.figures import along_feature, visits
from sasr.report.pages.inputs import Store
from sasr.report.pages.notes import in_short
from sasr.report.pages.page import Page, Picture, digest, file_name

ANALYSIS = "analysis"


def analysis_page(store: Store) -> Page | None:
    """The page of the analysis figures; None while there are none."""
    if not store.analyses:
        return None
    lines = [
        "# What runs went through",
        "",
        "One seed each, from its run folder by `python -m benchmarks.analysis RUN`.",
        "",
    ]
    pictures = []
    for stem, found in store.analyses:
        picture = Picture(f"{ANALYSIS}-{file_name(stem)}.png", _digest(found), lambda found=found: _draw(found))  # type: ignore[misc]
        pictures.append(picture)
        facts = found.facts
        what = "shaped rewards and success rates" if isinstance(found, Along) else "visited states"
        lines += [
            f"## {facts.get('task', stem)}, {facts.get('method', '')}: {what}",
            "",
            *picture.markdown(_caption(found)),
        ]
        told = f"Seed {facts.get('seed')}, commit {facts.get('commit')}, {facts.get('machine')}"
        lines += [f"{told}: `{facts.get('run')}`, then `{facts.get('command')}`", ""]
    return Page(name=ANALYSIS, lines=[*lines, *in_short(store.notes, ANALYSIS, {})], pictures=tuple(pictures))


def _caption(found: Analysis) -> str:
    if isinstance(found, Along):
        return (
            f"Above: shaped rewards that were drawn for states of the last steps before a stage, over {found.name}. "
            "Below: the mean of their estimated success rates."
        )
    return f"Density of visited states over {found.names[0]} and {found.names[1]}, period by period."


def _digest(found: Analysis) -> str:
    own = (found.stages, found.name, found.rate) if isinstance(found, Along) else (found.steps, found.names)
    return digest(found.x, found.y, found.counts, *own)


def _draw(found: Analysis) -> object:
    return along_feature(found) if isinstance(found, Along) else visits(found)
