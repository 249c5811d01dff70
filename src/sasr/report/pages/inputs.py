"""What pages are drawn from: a results store with notes, plans, reference curves and analyses beside it."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sasr.experiments.method import Method, built_in_methods
from sasr.experiments.plan import Plan
from sasr.experiments.plan_file import read_plan, suites
from sasr.report.analysis import Analysis, read_analyses
from sasr.report.collect import Collection, told_apart
from sasr.report.reference import References, read_reference
from sasr.report.store import Problem, Result, read_results

MAIN = ""
"""The group of results that belong to no suite and no plan: methods on tasks."""
_MAIN_SUITE = "table1"  # the suite of the main comparison


@dataclass(frozen=True, kw_only=True)
class Store:
    """A folder of results, read."""

    groups: dict[str, Collection]
    """Results of the main comparison, of suites and of plans, by name; every group that could be is in it."""
    reference: References = field(default_factory=dict)
    """The authors' curves."""
    paper: dict[str, Any] = field(default_factory=dict)
    """Figures that the paper prints."""
    thresholds: dict[str, float] = field(default_factory=dict)
    """Returns that count as having learned a task."""
    notes: dict[str, str] = field(default_factory=dict)
    """What people wrote, by page."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """Plans in the folder that take a method apart, by name."""
    analyses: list[tuple[str, Analysis]] = field(default_factory=list)
    """What single runs went through, by file."""

    @property
    def main(self) -> Collection:
        """Methods on tasks."""
        return self.groups[MAIN]

    def suites(self, *names: str) -> dict[str, Collection]:
        """Groups that have results, of these names."""
        return {name: self.groups[name] for name in names if self.groups[name].results}


def read_store(folder: str | Path) -> Store:
    """Read everything; files that cannot be used are all named in one error."""
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"{folder} is not a folder; give the one that `sasr compare --save` writes to")
    every = {path.stem: read_plan(path) for path in sorted((place / "plans").glob("*.toml"))}
    plans = {name: plan for name, plan in every.items() if takes_apart(plan)}
    paper, curves = place / "reference" / "paper.toml", place / "reference" / "authors.csv"
    results, problems = _results(place)
    analyses, more = read_analyses(place / "analysis")
    problems += [Problem(f"analysis/{own.path}", own.text) for own in more]
    if problems:
        told = "".join(f"\n  {own.path}: {own.text}" for own in problems)
        raise ValueError(f"{folder} has files that cannot be used; mend or remove them:{told}")
    return Store(
        groups=grouped(results, plans),
        reference=read_reference(curves) if curves.exists() else {},
        paper=_toml(paper),
        thresholds={task: float(level) for task, level in _toml(place / "thresholds.toml").items()},
        notes={path.stem: path.read_text(encoding="utf-8") for path in sorted((place / "notes").glob("*.md"))},
        plans=plans,
        analyses=analyses,
    )


def grouped(results: Iterable[tuple[str, Result]], plans: Mapping[str, Plan]) -> dict[str, Collection]:
    """Results (folder, result) by what they belong to.

    A result belongs to the suite or the plan that its folder is named after where that takes a method apart; to the main
    comparison otherwise.
    """
    names = [MAIN, *(name for name in suites() if name != _MAIN_SUITE), *plans]
    parts: dict[str, list[tuple[str, Result]]] = defaultdict(list)
    for folder, result in results:
        parts[folder if folder in names else MAIN].append((folder, result))
    return {
        name: Collection(told_apart([own for _, own in parts[name]], [place for place, _ in parts[name]]))
        for name in names
    }


def methods_of(plan: Plan) -> dict[str, Method]:
    """The methods of a plan by name, in its order."""
    return {cell.method.name: cell.method for cell in plan.cells}


def takes_apart(plan: Plan) -> bool:
    """Whether a plan's own methods are all variants of its first one, a SASR; others add to the comparison."""
    first, *others = methods_of(plan).values()
    own = [method for method in others if method.name not in built_in_methods()]
    alike = all((method.shaper, method.agent) == (first.shaper, first.agent) for method in own)
    return first.shaper == "sasr" and bool(own) and alike


def authors_name(method: Method, curves: Iterable[str]) -> str:
    """What the authors' curve of a method is called: a variant's own name, or sasr where nothing is varied."""
    if method.name in curves:
        return method.name
    return "sasr" if method.shaper == "sasr" and not method.shaper_settings else ""


def _results(place: Path) -> tuple[list[tuple[str, Result]], list[Problem]]:
    results: list[tuple[str, Result]] = []
    problems: list[Problem] = []
    for folder in sorted(own for own in place.iterdir() if own.is_dir()):
        reading = read_results(folder)
        results += [(folder.name, own) for own in reading.results]
        problems += [Problem(f"{folder.name}/{own.path}", own.text) for own in reading.problems]
    return results, problems


def _toml(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
