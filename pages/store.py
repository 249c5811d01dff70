"""What pages are drawn from: a results store with plans and reference curves beside it."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sasr.experiments.plan import Method, Plan, built_in_methods
from sasr.experiments.plan_file import read_plan, suites
from sasr.report.read import Collection, References, read_reference, with_unique_names
from sasr.report.store import Problem, Reading, Result, read_results

MAIN = "main"
"""The group of results that belong to no suite and to no plan that takes a method apart: methods on tasks."""
MAIN_SUITE = "table1"
"""The suite of the main comparison."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """A folder of results, read."""

    groups: Mapping[str, Collection]
    """Results of the main comparison, of suites and of plans, by name; those without results are empty."""
    plans: Mapping[str, Plan]
    """Plans in the folder that take a method apart, by name."""
    about: Mapping[str, str]
    """What these plans are about."""
    reference: References
    """The authors' curves."""
    paper: Mapping[str, Any]
    """Figures that the paper prints."""
    thresholds: Mapping[str, float]
    """Returns that count as having learned a task."""

    @property
    def main(self) -> Collection:
        """Methods on tasks."""
        return self.groups[MAIN]


def read_store(folder: str | Path) -> Store:
    """Read everything; files that cannot be used are all named in one error."""
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"{folder} is not a folder; give the one that `sasr compare --save` writes to")
    readings = {path.name: read_results(path) for path in sorted(place.iterdir()) if path.is_dir()}
    problems = []
    for name, reading in readings.items():
        problems += [Problem(f"{name}/{problem.path}", problem.text) for problem in reading.problems]
    if problems:
        lines = "".join(f"\n  {problem.path}: {problem.text}" for problem in problems)
        raise ValueError(f"{folder} has files that cannot be used; fix or remove them:{lines}")
    files = {path.stem: path for path in sorted((place / "plans").glob("*.toml"))}
    plans = {name: plan for name, path in files.items() if takes_apart(plan := read_plan(path))}
    curves = place / "reference" / "authors.csv"
    return Store(
        groups=_grouped(readings, plans),
        plans=plans,
        about={name: str(_toml(files[name]).get("about", name)) for name in plans},
        reference=read_reference(curves) if curves.exists() else {},
        paper=_toml(place / "reference" / "paper.toml"),
        thresholds={task: float(level) for task, level in _toml(place / "thresholds.toml").items()},
    )


def methods_of(plan: Plan) -> dict[str, Method]:
    """The methods of a plan by name, in its order."""
    return {run.method.name: run.method for run in plan.runs}


def takes_apart(plan: Plan) -> bool:
    """Whether a plan's own methods are all variants of its first one, a SASR; others add to the comparison."""
    first, *others = methods_of(plan).values()
    variants = [method for method in others if method.name not in built_in_methods()]
    alike = all(method.shaper == first.shaper for method in variants)
    return first.shaper == "sasr" and bool(variants) and alike


def _grouped(readings: Mapping[str, Reading], plans: Mapping[str, Plan]) -> dict[str, Collection]:
    """A suite or a plan that takes a method apart has the results in its folder; the main comparison all others.

    The suite of the main comparison has those in its folder too.
    """
    apart = [*(suite for suite in suites() if suite != MAIN_SUITE), *plans]
    results: dict[str, list[tuple[Result, str]]] = defaultdict(list)
    for folder, reading in readings.items():
        groups = [folder] if folder in apart else [MAIN]
        if folder == MAIN_SUITE:
            groups.append(MAIN_SUITE)
        for group in groups:
            results[group] += [(result, folder) for result in reading.results]
    return {name: Collection(with_unique_names(results[name])) for name in (MAIN, MAIN_SUITE, *apart)}


def _toml(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
