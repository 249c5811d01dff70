"""What people write under the tables, with figures that are filled in from the store and so can't go stale."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sasr.errors import unknown_name
from sasr.report.pages.rows import (
    BORDERED,
    TRAINING,
    Row,
    figure_at,
    figure_of_area,
    figure_of_duel,
    figure_of_training,
    figures_of,
)

_BRACES = re.compile(r"\{([^{}]*)\}")
_NUMBER = "([0-9][0-9,]*)"
_AT = re.compile(f"at {_NUMBER}")
_AREA = re.compile(rf"(.+)\.(?:area to|beats (.+) to) {_NUMBER}")
_BETWEEN = re.compile(rf"(.+)\.({'|'.join(TRAINING)})(?: (-?[0-9]+(?:\.[0-9]+)?) in)? {_NUMBER}-{_NUMBER}")


def filled(text: str, rows: Mapping[str, Row], *, where: str) -> str:
    """A note with its placeholders replaced.

    `{sac.final}` is the final return of sac on the page's task, `{AntFar/sac.final}` that on another one; behind the
    last point stands any name that `figures_of` gives, `at 100,000` for the evaluations after as many steps, `area to
    100,000`, `beats sac to 100,000` for the chance that its area is larger than that of sac on the same task, or one of
    `TRAINING` and two points of the curve, as in `{sac.trained 80,000-100,000}` and `{sac.above 25 in 0-100,000}`,
    for the episodes of training between them. One that means nothing is an error that names it.

    Args:
        text: The note.
        rows: Rows by what stands before the last point.
        where: The note's file, for errors.
    """

    def fill(found: re.Match[str]) -> str:
        method, point, figure = found[1].rpartition(".")
        area, span = _AREA.fullmatch(found[1]), _BETWEEN.fullmatch(found[1])
        if told := area or span:  # which may have a point in the rival's name, or in the border
            method = told[1]
        if not point:
            raise ValueError(f"{where}: {{{found[1]}}} is not {{METHOD.FIGURE}}, such as {{sac.final}}")
        if method not in rows:
            raise ValueError(f"{where}: {{{found[1]}}}: {unknown_name('method', method, rows)}")
        if when := _AT.fullmatch(figure):
            return _at(rows[method], _steps(when[1]), where=f"{where}: {{{found[1]}}}")
        if area:
            return _area(rows, area, where=f"{where}: {{{found[1]}}}")
        if span:
            return _between(rows[method], span, where=f"{where}: {{{found[1]}}}")
        figures = figures_of(rows[method])
        if figure not in figures:
            raise ValueError(f"{where}: {{{found[1]}}}: {unknown_name('figure', figure, figures)}")
        return figures[figure]

    return _BRACES.sub(fill, text).strip()


def _at(row: Row, step: int, *, where: str) -> str:
    if not (text := figure_at(row, step)):
        known = ", ".join(f"{own:,}" for own in row.result.seeds[0].steps)
        raise ValueError(f"{where}: not every seed was evaluated after {step:,} steps; the first one was after {known}")
    return text


def _area(rows: Mapping[str, Row], found: re.Match[str], *, where: str) -> str:
    method, rival, until = found.groups()
    task, slash, _ = method.rpartition("/")
    other = f"{task}{slash}{rival}" if rival else method
    if other not in rows:
        raise ValueError(f"{where}: {unknown_name('method', other, rows)}")
    steps, both = _steps(until), (rows[method], rows[other])
    text = figure_of_duel(*both, steps) if rival else figure_of_area(both[0], steps)
    if not text:
        ends = " and ".join(dict.fromkeys(f"{own.result.steps:,}" for own in both))
        raise ValueError(f"{where}: not every seed was evaluated up to {until} steps; runs are of {ends}")
    return text


def _between(row: Row, span: re.Match[str], *, where: str) -> str:
    what, border, after, until = span.groups()[1:]
    if (what in BORDERED) != (border is not None):
        raise ValueError(
            f"{where}: {what!r} has {'a border too many' if border else f'no border, as in {what} 25 in …'}"
        )
    text = figure_of_training(row, what, _steps(after), _steps(until), float(border or "nan"))
    if not text:
        known = ", ".join(f"{own:,}" for own in row.result.seeds[0].steps if row.result.seeds[0].episodes)
        raise ValueError(
            f"{where}: not every seed has episodes of training from {after} to {until}, which must be points of its "
            f"curve; those of the first are {known or 'without such figures'}"
        )
    return text


def _steps(text: str) -> int:
    return int(text.replace(",", ""))


def in_short(notes: Mapping[str, str], page: str, rows: Mapping[str, Row]) -> list[str]:
    """The closing section of a page."""
    file = f"results/notes/{page}.md"
    text = filled(notes[page], rows, where=file) if page in notes else f"*To be written, in `{file}`.*"
    return ["## In short", "", text, ""]
