"""Tables in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sasr.report.stats import Estimate
from sasr.report.store import Result
from sasr.report.summary import Aggregate, Statistics, Summary
from sasr.terminal import harmless


class Entry(NamedTuple):
    """A figure of a table with its error or interval."""

    value: float | str = math.nan
    error: float = math.nan
    low: float = math.nan
    high: float = math.nan
    best: bool = False
    incomplete: bool = False
    """Not ranked, because its result is missing or unfinished."""
    mark: str = ""
    """A footnote mark."""
    digits: int | None = None
    """Decimal places; None is 2, or in a table by tasks as many as the row needs."""

    def text(self, *, plus_minus: str = "±") -> str:
        """Its text in a table: 94.9 ± 0.3 or 0.91 [0.87, 0.95], and a dash for NaN.

        >>> Entry(94.949, 0.3, digits=1).text(), Entry(0.91, low=0.87, high=0.95).text(), Entry().text()
        ('94.9 ± 0.3', '0.91 [0.87, 0.95]', '–')
        """
        if isinstance(self.value, str):
            return self.value + self.mark
        if math.isnan(self.value):
            return "–" + self.mark
        digits = 2 if self.digits is None else self.digits
        shown = _fixed(self.value, digits)
        if not math.isnan(self.error):
            shown += f" {plus_minus} {_fixed(self.error, digits)}"
        if not math.isnan(self.low):
            shown += f" [{_fixed(self.low, digits)}, {_fixed(self.high, digits)}]"
        return shown + self.mark


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns and rows; the first column has the rows' names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = field(default=())

    def to_markdown(self) -> str:
        """A Markdown table with its title above and its notes below."""
        lines = [f"**{_markdown(self.title)}**", "", _line(map(_markdown, self.columns))]
        lines.append(_line(["---"] + ["---:"] * (len(self.columns) - 1)))
        for row in self.rows:
            lines.append(_line(_markdown_entry(entry) for entry in row))
        for note in self.notes:
            lines += ["", _markdown(note)]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """A floating table for the booktabs package."""
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.title)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, self.columns)) + r" \\", r"\midrule"]
        for row in self.rows:
            lines.append(" & ".join(map(_latex_entry, row)) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        for note in self.notes:
            lines.append(rf"\par\smallskip\footnotesize {_latex(note)}")
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def to_csv(self) -> str:
        """CSV with full precision; errors and intervals are separate columns, left out if all are unknown."""
        parts = []
        for column, name in enumerate(self.columns):
            parts.append((column, name, "value"))
            for extra in ("error", "low", "high"):
                values = [getattr(row[column], extra) for row in self.rows]
                if not np.isnan(values).all():
                    parts.append((column, f"{name} {extra}", extra))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([_csv(name) for _, name, _ in parts])
        for row in self.rows:
            writer.writerow([_csv(getattr(row[column], part)) for column, _, part in parts])
        return out.getvalue()

    @property
    def known(self) -> bool:
        """Whether it has any number."""
        values = [entry.value for row in self.rows for entry in row[1:]]
        return any(isinstance(value, float) and not math.isnan(value) for value in values)


def report_tables(summary: Summary) -> dict[str, Table]:
    """All tables of a report that have any number, by the names of their files."""
    iqm = "Final return, interquartile mean over seeds [95 % bootstrap interval]"
    area = "Area under the learning curve divided by its length, mean ± standard error over seeds"
    tables = {
        "final": final_table(summary),
        "iqm": _by_task(summary, iqm, lambda statistics: _interval(statistics.iqm)),
        "area": _by_task(summary, area, area_entry),
        "halfway": halfway_table(summary),
        "time": cost_table(summary, "time"),
        "memory": cost_table(summary, "memory"),
        "overall": aggregate_table(summary),
    }
    return {name: table for name, table in tables.items() if table.known}


def final_table(summary: Summary) -> Table:
    """Tasks by methods, the form of the paper's Table 1; the best mean of a row is bold."""
    return _by_task(summary, "Final return, mean ± standard error over seeds", final_entry)


def halfway_table(summary: Summary) -> Table:
    """Tasks by methods: steps to the middle between the worst and the best method."""
    title = "Steps to the middle between the worst and the best method's final return, median over seeds"
    return _by_task(summary, title, lambda statistics: Entry(statistics.halfway, digits=0), highest=False)


def aggregate_table(summary: Summary) -> Table:
    """Methods over all tasks, complete ones first, the best on top."""
    first, total = summary.methods[0], len(summary.learned)
    incomplete = {aggregate.method for aggregate in summary.aggregates if aggregate.tasks < total}
    incomplete |= {method for (_, method), statistics in summary.statistics.items() if statistics.incomplete}

    def complete_and_best_first(aggregate: Aggregate) -> tuple[bool, bool, float]:
        return aggregate.method in incomplete, aggregate.tasks == 0, -aggregate.iqm.value

    rows = []
    for aggregate in sorted(summary.aggregates, key=complete_and_best_first):
        name = Entry(aggregate.method, mark="*" if aggregate.method in incomplete else "")
        better = Entry() if aggregate.method == first else _interval(aggregate.better)
        counts = Entry(f"{aggregate.tasks} of {total}"), Entry(str(aggregate.runs))
        rows.append((name, _interval(aggregate.iqm), _interval(aggregate.mean), better, *counts))
    notes = [
        "Returns are normalised by task: the worst method's mean is 0, the best's is 1. Intervals: 95 %, bootstrap."
    ]
    if incomplete:
        notes.append("* not run on all tasks, or not to the end: not comparable with the others.")
    if total < len(summary.tasks):
        left_out = ", ".join(task for task in summary.tasks if task not in summary.learned)
        notes.append(f"Without {left_out}: no seed succeeded there, or no two methods differ.")
    return Table(
        title="Over all tasks",
        columns=("method", "IQM", "mean", f"P({first} > method)", "tasks", "runs"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def cost_table(summary: Summary, what: str = "time", *, base: str = "") -> Table:
    """Tasks by methods: time or peak memory relative to one method, the form of the paper's cost tables.

    Args:
        summary: The report's statistics.
        what: "time" or "memory".
        base: The method whose cost is 1; empty takes the first one.
    """
    base = base or summary.methods[0]
    costs = {key: _cost(statistics.result, what) for key, statistics in summary.statistics.items()}
    rows = []
    notes: tuple[str, ...] = ()
    for task in summary.tasks:
        head = Entry(task)
        if _machines(summary, task) > 1:
            head = Entry(task, mark="†")
            notes = ("† measured on different machines: not comparable.",)
        base_cost = costs.get((task, base), math.nan)
        ratios = [Entry(costs.get((task, method), math.nan) / base_cost) for method in summary.methods]
        rows.append((head, *ratios))
    name = {"time": "Training time of a seed's step", "memory": "Peak memory"}[what]
    return Table(title=f"{name}, {base} = 1", columns=("task", *summary.methods), rows=tuple(rows), notes=notes)


def final_entry(statistics: Statistics) -> Entry:
    """Final return, mean ± standard error."""
    return Entry(statistics.mean, statistics.error)


def area_entry(statistics: Statistics) -> Entry:
    """Area under the learning curve, mean ± standard error."""
    return Entry(statistics.area, statistics.area_error)


def table_by_task(
    title: str,
    tasks: Sequence[str],
    methods: Sequence[str],
    statistics: Mapping[tuple[str, str], Statistics],
    entry: Callable[[Statistics], Entry],
    *,
    highest: bool = True,
) -> Table:
    """Tasks by methods, or by variants of a setting; the best of a complete row is bold.

    Args:
        title: Above the table.
        tasks: Rows.
        methods: Columns.
        statistics: By task and method; missing ones get a dash.
        entry: Makes an entry from the statistics of a method on a task.
        highest: Whether the best is the highest.
    """
    rows = []
    for task in tasks:
        rows.append(_row(task, [statistics.get((task, method)) for method in methods], entry, highest))
    marks = {mark for row in rows for entry in row for mark in entry.mark}
    notes = tuple(f"{mark} {meaning}" for mark, meaning in _MARKS.items() if mark in marks)
    return Table(title=title, columns=("task", *methods), rows=tuple(rows), notes=notes)


def _by_task(summary: Summary, title: str, entry: Callable[[Statistics], Entry], highest: bool = True) -> Table:
    return table_by_task(title, summary.tasks, summary.methods, summary.statistics, entry, highest=highest)


def _row(
    task: str, by_method: Sequence[Statistics | None], make_entry: Callable[[Statistics], Entry], highest: bool
) -> tuple[Entry, ...]:
    entries = [Entry(incomplete=True) if one is None else _marked(make_entry(one), one) for one in by_method]
    lengths = {one.result.steps for one in by_method if one is not None}
    is_ranked = len(lengths) == 1 and not any(entry.incomplete for entry in entries)
    values = np.array([entry.value for entry in entries], np.float64)
    finite = values[np.isfinite(values)]
    digits = digits_for(float(np.abs(finite).max(initial=0.0)))
    best = math.nan
    known = values[~np.isnan(values)]
    if len(set(known)) > 1 and is_ranked:  # equal values have no best
        best = float(known.max() if highest else known.min())
    row = [Entry(task, mark="" if is_ranked else "°")]
    for entry in entries:
        if entry.digits is None:
            entry = entry._replace(digits=digits)
        row.append(entry._replace(best=entry.value == best and math.isfinite(best)))
    return tuple(row)


def _marked(entry: Entry, statistics: Statistics) -> Entry:
    mark = ""
    if statistics.result.gaps:
        mark += "*"
    if statistics.failed:
        mark += "‡"
    return entry._replace(incomplete=statistics.incomplete, mark=mark)


_MARKS = {
    "°": "incomplete row: a method is missing, unfinished or ran for other steps, so the others are not ranked.",
    "*": "incomplete: seeds, steps or the final evaluation are missing.",
    "‡": "without seeds that gave NaN.",
}


def digits_for(size: float) -> int:
    """Decimal places for values up to this size: the paper's, and more for small ones."""
    if size == 0.0:
        return 2
    for digits, least in enumerate((1000.0, 10.0, 0.1, 0.01)):
        if size >= least:
            return digits
    return 4


def _fixed(value: float, digits: int) -> str:
    """Text with so many decimal places; zero has no sign, and infinitely many steps are "never"."""
    if not math.isfinite(value):
        return "never"
    return f"{value:z,.{digits}f}"


def _interval(figure: Estimate) -> Entry:
    return Entry(figure.value, low=figure.low, high=figure.high)


def _cost(result: Result, what: str) -> float:
    """Seconds of a step of one seed, or bytes."""
    if what == "memory":
        return result.peak_memory_bytes
    steps = sum(seed.steps[-1] for seed in result.seeds if seed.steps)
    if steps == 0:
        return math.nan
    return result.wall_seconds / steps


def _machines(summary: Summary, task: str) -> int:
    """How many machines the methods of a task ran on."""
    results = [statistics.result for (other, _), statistics in summary.statistics.items() if other == task]
    return len({repr(sorted(result.machine.items())) for result in results})


def _markdown_entry(entry: Entry) -> str:
    text = _markdown(entry.text())
    if entry.best:
        return f"**{text}**"
    return text


def _latex_entry(entry: Entry) -> str:
    text = _latex(entry.text(plus_minus="\0")).replace("\0", r"$\pm$")
    if entry.best:
        return rf"\textbf{{{text}}}"
    return text


def _line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _markdown(text: str) -> str:
    return re.sub(r"([\\|`*_<>])", r"\\\1", text)


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
    special |= {"†": r"$\dagger$", "‡": r"$\ddagger$", "°": r"$^\circ$", "±": r"$\pm$", "<": r"$<$", ">": r"$>$"}
    special |= {sign: rf"\{sign}" for sign in "#$%&_{}"}
    return "".join(special.get(sign, sign) for sign in text)


def _csv(value: float | str) -> str:
    if isinstance(value, str):
        text = harmless(value)
        if text.startswith(("=", "+", "-", "@", "\t")):  # a spreadsheet would take it for a formula
            return f"'{text}"
        return text
    if math.isnan(value):
        return ""
    return repr(float(value))
