"""What people write under the tables, with figures that are filled in from the store and so can't go stale."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sasr.errors import unknown_name
from sasr.report.pages.rows import Row, figure_at, figures_of

_BRACES = re.compile(r"\{([^{}]*)\}")
_AT = re.compile(r"at ([0-9][0-9,]*)")


def filled(text: str, rows: Mapping[str, Row], *, where: str) -> str:
    """A note with its placeholders replaced.

    `{sac.final}` is the final return of sac on the page's task, `{AntFar/sac.final}` that on another one; behind the
    last point stands any name that `figures_of` gives, or `at 100,000` for the evaluations after as many steps.
    One that means nothing is an error that names it.

    Args:
        text: The note.
        rows: Rows by what stands before the last point.
        where: The note's file, for errors.
    """

    def fill(found: re.Match[str]) -> str:
        method, point, figure = found[1].rpartition(".")
        if not point:
            raise ValueError(f"{where}: {{{found[1]}}} is not {{METHOD.FIGURE}}, such as {{sac.final}}")
        if method not in rows:
            raise ValueError(f"{where}: {{{found[1]}}}: {unknown_name('method', method, rows)}")
        if when := _AT.fullmatch(figure):
            return _at(rows[method], int(when[1].replace(",", "")), where=f"{where}: {{{found[1]}}}")
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


def in_short(notes: Mapping[str, str], page: str, rows: Mapping[str, Row]) -> list[str]:
    """The closing section of a page."""
    file = f"results/notes/{page}.md"
    text = filled(notes[page], rows, where=file) if page in notes else f"*To be written, in `{file}`.*"
    return ["## In short", "", text, ""]
