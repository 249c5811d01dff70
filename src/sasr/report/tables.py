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
from sasr.report.summary import Aggregate, Cell, Summary
from sasr.terminal import harmless


class Entry(NamedTuple):
    """A figure with what is known about how sure it is."""

    value: float | str = math.nan
    error: float = math.nan
    low: float = math.nan
    high: float = math.nan
    best: bool = False
    incomplete: bool = False
    """Not to be ranked: the result behind it is missing or unfinished."""
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
        shown = _fixed(self.value, digits)
        if not math.isnan(self.error):
            shown += f" {plus_minus} {_fixed(self.error, digits)}"
        if not math.isnan(self.low):
            shown += f" [{_fixed(self.low, digits)}, {_fixed(self.high, digits)}]"
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
        """Full precision; a column's error and interval are columns of their own, left out where all are unknown."""
        parts = []
        for column, name in enumerate(self.columns):
            parts.append((column, name, "value"))
            for extra in ("error", "low", "high"):
                if any(not math.isnan(getattr(row[column], extra)) for row in self.rows):
                    parts.append((column, f"{name} {extra}", extra))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([_csv(name) for _, name, _ in parts])
        for row in self.rows:
            writer.writerow([_csv(getattr(row[column], part)) for column, _, part in parts])
        return out.getvalue()

    @property
    def known(self) -> bool:
        """Whether it has any figure."""
        for row in self.rows:
            for entry in row[1:]:
                if isinstance(entry.value, float) and not math.isnan(entry.value):
                    return True
        return False


def report_tables(summary: Summary) -> dict[str, Table]:
    """All tables of a report, by the names of their files; without those that have no figure."""
    tables = {
        "final": final_table(summary),
        "iqm": iqm_table(summary),
        "area": area_table(summary),
        "halfway": halfway_table(summary),
        "time": cost_table(summary, "time"),
        "memory": cost_table(summary, "memory"),
        "overall": aggregate_table(summary),
    }
    return {name: table for name, table in tables.items() if table.known}


def final_table(summary: Summary) -> Table:
    """Tasks by methods, the form of the paper's Table 1; the best mean of a row is bold."""
    return _by_task(summary, "Final return, mean ± standard error over seeds", final_entry)


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
    first, total = summary.methods[0], len(summary.learned)
    unfinished = {method for (_, method), cell in summary.cells.items() if cell.incomplete}
    incomplete = {own.method for own in summary.aggregates if own.tasks < total or own.method in unfinished}

    def complete_and_best_first(own: Aggregate) -> tuple[bool, float]:
        return own.method in incomplete, -own.iqm.value if own.tasks else math.inf

    rows = []
    for aggregate in sorted(summary.aggregates, key=complete_and_best_first):
        better = Entry() if aggregate.method == first else _interval(aggregate.better)
        row = [
            Entry(aggregate.method, mark="*" if aggregate.method in incomplete else ""),
            _interval(aggregate.iqm),
            _interval(aggregate.mean),
            better,
            Entry(f"{aggregate.tasks} of {total}"),
            Entry(str(aggregate.runs)),
        ]
        rows.append(tuple(row))
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
    """Tasks by methods: time or peak memory, as multiples of one method's, the form of the paper's cost tables.

    Args:
        summary: The report's figures.
        what: "time" or "memory".
        base: The method that is 1; the first one where this is empty.
    """
    base = base or summary.methods[0]
    costs = {key: _cost(cell, what) for key, cell in summary.cells.items()}
    rows = []
    notes: tuple[str, ...] = ()
    for task in summary.tasks:
        head = Entry(task)
        if _machines(summary, task) > 1:
            head = Entry(task, mark="†")
            notes = ("† measured on different machines: not comparable.",)
        one = costs.get((task, base), math.nan)
        shares = [Entry(costs.get((task, method), math.nan) / one) for method in summary.methods]
        rows.append((head, *shares))
    name = {"time": "Training time of a seed's step", "memory": "Peak memory"}[what]
    return Table(title=f"{name}, {base} = 1", columns=("task", *summary.methods), rows=tuple(rows), notes=notes)


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
    """Tasks by methods, or by variants of one setting; the best of a row is bold, unless the row is incomplete.

    Args:
        title: Above the table.
        tasks: Rows.
        methods: Columns.
        cells: By task and method; those that are not there get a dash.
        entry: What is said of a cell.
        highest: Whether the best is the highest.
    """
    rows = []
    for task in tasks:
        row_cells = [cells.get((task, method)) for method in methods]
        rows.append(_row(task, row_cells, entry, highest))
    return Table(title=title, columns=("task", *methods), rows=tuple(rows), notes=_notes(rows))


def _by_task(summary: Summary, title: str, entry: Callable[[Cell], Entry], highest: bool = True) -> Table:
    return table_by_task(title, summary.tasks, summary.methods, summary.cells, entry, highest=highest)


def _row(task: str, cells: Sequence[Cell | None], entry: Callable[[Cell], Entry], highest: bool) -> tuple[Entry, ...]:
    entries = [Entry() if cell is None else entry(cell) for cell in cells]
    values = [float(each.value) for each in entries if not math.isnan(float(each.value))]
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    incomplete = [cell is None or cell.incomplete for cell in cells]
    lengths = {cell.result.steps for cell in cells if cell is not None}
    ranked = not any(incomplete) and len(lengths) == 1
    best = math.nan
    if len(set(values)) > 1 and ranked:  # of equals none is best
        best = max(values) if highest else min(values)
    row = [Entry(task, mark="" if ranked else "°")]
    for each, cell, is_incomplete in zip(entries, cells, incomplete, strict=True):
        digits = digits_for(largest) if each.digits is None else each.digits
        is_best = each.value == best and math.isfinite(best)
        row.append(each._replace(best=is_best, incomplete=is_incomplete, mark=_mark(cell), digits=digits))
    return tuple(row)


def _mark(cell: Cell | None) -> str:
    mark = ""
    if cell is not None and cell.result.gaps:
        mark += "*"
    if cell is not None and cell.failed:
        mark += "‡"
    return mark


def _notes(rows: Iterable[Sequence[Entry]]) -> tuple[str, ...]:
    marks: set[str] = set()
    for row in rows:
        for entry in row:
            marks.update(entry.mark)
    notes = []
    if "°" in marks:
        notes.append(
            "° incomplete row: a method is missing, unfinished or ran for other steps, so the others are not ranked."
        )
    if "*" in marks:
        notes.append("* incomplete: seeds, steps or the final evaluation are missing.")
    if "‡" in marks:
        notes.append("‡ without seeds that gave NaN.")
    return tuple(notes)


def digits_for(size: float) -> int:
    """As many as the paper prints for figures of this size, more where all are small."""
    if size == 0.0:
        return 2
    for digits, least in enumerate((1000.0, 10.0, 0.1, 0.01)):
        if size >= least:
            return digits
    return 4


def _fixed(value: float, digits: int) -> str:
    """With so many digits after the point; what rounds to zero has no sign, and steps that never came no number."""
    if not math.isfinite(value):
        return "never"
    text = f"{value:,.{digits}f}"
    return text if re.search("[1-9]", text) else text.lstrip("-")


def _interval(figure: Estimate) -> Entry:
    return Entry(figure.value, low=figure.low, high=figure.high)


def _cost(cell: Cell, what: str) -> float:
    """Seconds of a step of one seed, or bytes."""
    if what == "memory":
        return cell.result.peak_memory_bytes
    steps = sum(seed.steps[-1] for seed in cell.result.seeds if seed.steps)
    if steps == 0:
        return math.nan
    return cell.result.wall_seconds / steps


def _machines(summary: Summary, task: str) -> int:
    """How many machines the methods of a task ran on."""
    machines = set()
    for (cell_task, _), cell in summary.cells.items():
        if cell_task == task:
            machines.add(repr(sorted(cell.result.machine.items())))
    return len(machines)


def _markdown_entry(entry: Entry) -> str:
    text = _markdown(entry.text())
    return f"**{text}**" if entry.best else text


def _latex_entry(entry: Entry) -> str:
    text = _latex(entry.text(plus_minus="\0")).replace("\0", r"$\pm$")
    return rf"\textbf{{{text}}}" if entry.best else text


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return re.sub(r"([\\|`*_<>])", r"\\\1", text)


def _latex(text: str) -> str:
    special = {
        "\\": r"\textbackslash{}",
        "–": "--",
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
        "°": r"$^\circ$",
        "~": r"\textasciitilde{}",
    }
    special |= {"^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$", ">": r"$>$"}
    special |= {sign: rf"\{sign}" for sign in "#$%&_{}"}
    return "".join(special.get(sign, sign) for sign in text)


def _csv(value: float | str) -> str:
    if isinstance(value, str):
        text = harmless(value)
        is_formula = text.startswith(("=", "+", "-", "@", "\t"))  # to a spreadsheet
        return f"'{text}" if is_formula else text
    if math.isnan(value):
        return ""
    return repr(float(value))
