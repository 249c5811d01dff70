"""Tables in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sasr.report.stats import Estimate
from sasr.report.summary import Cell, Summary


class Entry(NamedTuple):
    """A figure with what is known about how sure it is."""

    value: float | str = math.nan
    error: float = math.nan
    low: float = math.nan
    high: float = math.nan
    best: bool = False
    mark: str = ""
    """Appended to the figure and explained below the table."""
    digits: int | None = None
    """After the point; None is 2 here, and what suits the row in a table by tasks."""

    def text(self, *, plus_minus: str = "±") -> str:
        """As it stands in a table: 94.9 ± 0.3, or 0.91 [0.87, 0.95]; a dash where there is nothing.

        >>> Entry(94.949, 0.3, digits=1).text(), Entry(0.91, low=0.87, high=0.95).text(), Entry().text()
        ('94.9 ± 0.3', '0.91 [0.87, 0.95]', '–')
        """
        if isinstance(self.value, str):
            return self.value + self.mark
        if math.isnan(self.value):
            return "–" + self.mark
        digits = 2 if self.digits is None else self.digits
        shown = "never" if math.isinf(self.value) else _fixed(self.value, digits)
        if not math.isnan(self.error):
            shown += f" {plus_minus} {_fixed(self.error, digits)}"
        if not math.isnan(self.low):
            low, high = (_fixed(end, digits) if math.isfinite(end) else "never" for end in (self.low, self.high))
            shown += f" [{low}, {high}]"
        return shown + self.mark


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns and rows; the first column names the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = field(default=())

    def to_markdown(self) -> str:
        """A table as GitHub shows it, with its title above and its notes below."""
        lines = [f"**{_markdown(self.title)}**", "", _line(map(_markdown, self.columns))]
        lines.append(_line(["---"] + ["---:"] * (len(self.columns) - 1)))
        for row in self.rows:
            lines.append(_line(f"**{_markdown(own.text())}**" if own.best else _markdown(own.text()) for own in row))
        return "\n".join([*lines, *(f"\n{_markdown(note)}" for note in self.notes)]) + "\n"

    def to_latex(self) -> str:
        """A floating table for the booktabs package."""
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.title)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, self.columns)) + r" \\", r"\midrule"]
        for row in self.rows:
            texts = [_latex(own.text(plus_minus="\0")).replace("\0", r"$\pm$") for own in row]
            bold = (rf"\textbf{{{text}}}" if own.best else text for own, text in zip(row, texts, strict=True))
            lines.append(" & ".join(bold) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip\footnotesize {_latex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def to_csv(self) -> str:
        """Full precision; a column's error and interval are columns of their own, empty where unknown."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        extras = [[part for part in ("error", "low", "high") if self._has(index, part)] for index in range(self.width)]
        heads = [[name, *(f"{name} {part}" for part in more)] for name, more in zip(self.columns, extras, strict=True)]
        writer.writerow([_csv(name) for group in heads for name in group])
        for row in self.rows:
            groups = [
                [own.value, *(getattr(own, part) for part in more)] for own, more in zip(row, extras, strict=True)
            ]
            writer.writerow([_csv(value) for group in groups for value in group])
        return out.getvalue()

    @property
    def known(self) -> bool:
        """Whether it has any figure."""
        figures = [own.value for row in self.rows for own in row[1:] if isinstance(own.value, float)]
        return any(not math.isnan(value) for value in figures)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def _has(self, column: int, part: str) -> bool:
        return any(not math.isnan(getattr(row[column], part)) for row in self.rows)


def final_table(summary: Summary, *, title: str = "Final return, mean ± standard error over seeds") -> Table:
    """Tasks by methods, the form of the paper's Table 1; the best mean of a row is bold."""
    return _by_task(summary, title, final_entry, highest=True)


def iqm_table(summary: Summary) -> Table:
    """Tasks by methods: interquartile mean with 95 % bootstrap intervals."""
    title = "Final return, interquartile mean over seeds [95 % bootstrap interval]"
    return _by_task(summary, title, lambda cell: Entry(cell.iqm.value, low=cell.iqm.low, high=cell.iqm.high))


def area_table(summary: Summary) -> Table:
    """Tasks by methods: mean height of the learning curves."""
    title = "Area under the learning curve divided by its length, mean ± standard error over seeds"
    return _by_task(summary, title, area_entry)


def halfway_table(summary: Summary) -> Table:
    """Tasks by methods: how soon a task was half learned."""
    title = "Steps to the middle between the worst and the best method's final return, median over seeds"
    return _by_task(summary, title, lambda cell: Entry(cell.halfway, digits=0), highest=False)


def aggregate_table(summary: Summary) -> Table:
    """Methods over all tasks."""
    first, total = summary.methods[0], len(summary.tasks)
    rows = []
    for own in sorted(summary.aggregates, key=lambda own: -own.iqm.value if own.tasks else math.inf):
        mark = "" if own.tasks == total else "*"
        estimates = [_entry(figure) for figure in (own.iqm, own.mean, own.better if own.method != first else None)]
        rows.append((Entry(own.method, mark=mark), *estimates, Entry(f"{own.tasks} of {total}"), Entry(str(own.runs))))
    notes = [
        "Returns are normalised by task: the worst method's mean is 0, the best's is 1. Intervals: 95 %, bootstrap."
    ]
    if any(own.tasks < total for own in summary.aggregates):
        notes.append("* not run on all tasks: not comparable with the others.")
    return Table(
        title="Over all tasks",
        columns=("method", "IQM", "mean", f"P({first} > method)", "tasks", "runs"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def cost_table(summary: Summary, what: str = "time", *, base: str = "") -> Table:
    """Tasks by methods: time or peak memory, as multiples of one method's, the form of the paper's cost tables.

    Args:
        summary: The report's figures.
        what: "time" or "memory".
        base: The method that is 1; the first one where this is empty.
    """
    base = base or summary.methods[0]
    costs = {key: _cost(cell, what) for key, cell in summary.cells.items()}
    rows = []
    for task in summary.tasks:
        one = costs.get((task, base), math.nan)
        shares = [costs.get((task, method), math.nan) / one for method in summary.methods]
        mark = "†" if _machines(summary, task) > 1 else ""
        rows.append((Entry(task, mark=mark), *(Entry(share) for share in shares)))
    name = {"time": "Training time of a seed's step", "memory": "Peak memory"}[what]
    notes = ("† measured on different machines: not comparable.",) if any(row[0].mark for row in rows) else ()
    columns = ("task", *summary.methods)
    return Table(title=f"{name}, {base} = 1", columns=columns, rows=tuple(rows), notes=notes)


def final_entry(cell: Cell) -> Entry:
    """Final return, mean ± standard error."""
    return Entry(cell.mean, cell.error)


def area_entry(cell: Cell) -> Entry:
    """Area under the learning curve, mean ± standard error."""
    return Entry(cell.area, cell.area_error)


def table_by_task(
    title: str,
    tasks: Sequence[str],
    methods: Sequence[str],
    cells: Mapping[tuple[str, str], Cell],
    entry: Callable[[Cell], Entry],
    *,
    highest: bool = True,
) -> Table:
    """Tasks by methods, or by variants of one setting; the best of a row is bold.

    Args:
        title: Above the table.
        tasks: Rows.
        methods: Columns.
        cells: By task and method; those that are not there get a dash.
        entry: What is said of a cell.
        highest: Whether the best is the highest.
    """
    rows = [_row(task, [cells.get((task, method)) for method in methods], entry, highest) for task in tasks]
    return Table(title=title, columns=("task", *methods), rows=tuple(rows), notes=_notes(rows))


def _by_task(summary: Summary, title: str, entry: Callable[[Cell], Entry], highest: bool = True) -> Table:
    return table_by_task(title, summary.tasks, summary.methods, summary.cells, entry, highest=highest)


def _row(task: str, cells: Sequence[Cell | None], entry: Callable[[Cell], Entry], highest: bool) -> tuple[Entry, ...]:
    entries = [Entry() if cell is None else entry(cell) for cell in cells]
    values = [float(own.value) for own in entries if not math.isnan(float(own.value))]
    best = (max if highest else min)(values) if values else math.nan
    digits = digits_for(max((abs(value) for value in values if math.isfinite(value)), default=0.0))
    finished = []
    for own, cell in zip(entries, cells, strict=True):
        mark = "" if cell is None else ("*" if cell.result.gaps else "") + ("‡" if cell.failed else "")
        is_best = own.value == best and math.isfinite(best) and len(set(values)) > 1  # of equals none is best
        finished.append(own._replace(best=is_best, mark=mark, digits=digits if own.digits is None else own.digits))
    return (Entry(task), *finished)


def _notes(rows: Iterable[Sequence[Entry]]) -> tuple[str, ...]:
    marks = "".join(own.mark for row in rows for own in row)
    told = {
        "*": "* incomplete: seeds, steps or the final evaluation are missing.",
        "‡": "‡ without seeds that gave NaN.",
    }
    return tuple(text for mark, text in told.items() if mark in marks)


def digits_for(size: float) -> int:
    """As many as the paper prints for figures of this size, more where all are small."""
    return next((digits for digits, from_ in enumerate((1000.0, 10.0, 0.1, 0.01)) if size >= from_), 4 if size else 2)


def _fixed(value: float, digits: int) -> str:
    """With so many digits after the point; what rounds to zero has no sign."""
    text = f"{value:,.{digits}f}"
    return text if re.search("[1-9]", text) else text.lstrip("-")


def _entry(figure: Estimate | None) -> Entry:
    return Entry() if figure is None else Entry(figure.value, low=figure.low, high=figure.high)


def _cost(cell: Cell, what: str) -> float:
    """Seconds of a step of one seed, or bytes."""
    if what == "memory":
        return cell.result.peak_memory_bytes
    steps = sum(own.steps[-1] for own in cell.result.seeds if own.steps)
    return cell.result.wall_seconds / steps if steps else math.nan


def _machines(summary: Summary, task: str) -> int:
    """How many machines the methods of a task ran on."""
    return len({repr(sorted(cell.result.machine.items())) for (own, _), cell in summary.cells.items() if own == task})


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return re.sub(r"([\\|`*_<>])", r"\\\1", text)


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "–": "--", "†": r"$\dagger$", "‡": r"$\ddagger$", "~": r"\textasciitilde{}"}
    special |= {"^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$", ">": r"$>$"}
    special |= {sign: rf"\{sign}" for sign in "#$%&_{}"}
    return "".join(special.get(sign, sign) for sign in text)


def _csv(value: float | str) -> str:
    if isinstance(value, str):
        formula = value.startswith(("=", "+", "-", "@", "\t", "\r"))  # to a spreadsheet
        return f"'{value}" if formula else value
    return "" if math.isnan(value) else repr(float(value))
