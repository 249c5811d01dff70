"""Everything that a folder has to report: results of a store, runs, maps and videos, and what was wrong with them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from sasr.report.runs import Maps, from_run, is_run, read_maps, videos
from sasr.report.store import INDIFFERENT, Problem, Result, read_files


class Video(NamedTuple):
    """A film of a run."""

    run: str
    path: Path


@dataclass
class Collection:
    """What was found, in the order of a walk through the folders."""

    results: list[Result] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    maps: list[Maps] = field(default_factory=list)
    videos: list[Video] = field(default_factory=list)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in the order found."""
        return list(dict.fromkeys(result.task for result in self.results))

    @property
    def methods(self) -> list[str]:
        """Names of the methods, SASR's first and its default before its presets, whatever the files are called."""
        names = dict.fromkeys(result.method for result in self.results)
        return sorted(names, key=lambda name: (name.split(",")[0] != "sasr", not name.startswith("sasr")))

    def cell(self, task: str, method: str) -> Result | None:
        """The result of a method on a task."""
        return next((own for own in self.results if (own.task, own.method) == (task, method)), None)


def collect(folder: str | Path) -> Collection:
    """Read a results store, a run, or a folder with any number of both in it."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"{folder} is not a folder; give a results store, a run's folder, or one with runs in it")
    found = Collection()
    origins: list[str] = []
    for name, below, files in os.walk(root):
        place = Path(name)
        here = str(place.relative_to(root)) if place != root else place.resolve().name
        below[:] = sorted(own for own in below if not own.startswith("."))
        if is_run(place):
            below.clear()
            _take_run(place, here, found, origins)
            continue
        if place != root and not below and not files:
            found.problems.append(Problem(here, "is empty: a run that never began"))
        reading = read_files([place / own for own in sorted(files) if own.endswith(".json")], root)
        found.results += reading.results
        origins += [here] * len(reading.results)
        found.problems += reading.problems
    if not found.results:
        told = "".join(f"; {problem.path} {problem.text}" for problem in found.problems[:3])
        raise ValueError(f"{folder} has nothing to report: no results of `sasr compare --save` and no runs{told}")
    found.results = told_apart(found.results, origins)
    return found


def told_apart(results: Sequence[Result], origins: Sequence[str]) -> list[Result]:
    """Results such that no two have both task and method in common.

    Runs that differ in nothing but their seeds, or in how they were run, are joined. Where several remain, the methods'
    names say what differs: the commit, the settings, or the folder they are in.
    """
    entries = _joined(list(zip(results, origins, strict=True)))
    names = [result.method for result, _ in entries]
    for telling in (_by_commit, _by_settings, _by_origin):
        names = _renamed(entries, names, telling)
    return [replace(result, method=name) for (result, _), name in zip(entries, names, strict=True)]


_LONGEST = 500  # characters of a reason, which may quote what was found
Entry = tuple[Result, str]
Telling = Callable[[Sequence[Entry]], Callable[[Entry], str]]


def _take_run(place: Path, here: str, found: Collection, origins: list[str]) -> None:
    try:
        found.results.append(from_run(place))
        origins.append(here)
    except ValueError as error:
        found.problems.append(Problem(here, str(error)[:_LONGEST]))
        return
    except (TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        found.problems.append(Problem(here, f"holds what no run writes: {str(error)[:_LONGEST]}"))
        return
    try:
        maps = read_maps(place)
        if maps is not None:
            found.maps.append(maps._replace(run=here))
    except ValueError as error:
        found.problems.append(Problem(here, str(error)))
    found.videos += [Video(here, path) for path in videos(place)]


def _joined(entries: Iterable[Entry]) -> list[Entry]:
    groups: dict[str, list[Entry]] = defaultdict(list)
    for result, origin in entries:
        settings = {name: value for name, value in _flat(result.config).items() if name not in INDIFFERENT}
        groups[repr((result.task, result.method, result.commit, result.steps, sorted(settings.items())))].append(
            (result, origin)
        )
    joined: list[Entry] = []
    for group in groups.values():
        whole, origin = group[0]
        for result, other in group[1:]:
            if {own.seed for own in whole.seeds} & {own.seed for own in result.seeds}:
                joined.append((result, other))
            else:
                whole = _plus(whole, result)
        joined.append((whole, origin))
    return joined


def _plus(one: Result, other: Result) -> Result:
    return replace(
        one,
        seeds=one.seeds + other.seeds,
        planned=tuple(dict.fromkeys(one.planned + other.planned)),
        command=" && ".join(dict.fromkeys(text for text in (one.command, other.command) if text)),
        wall_seconds=one.wall_seconds + other.wall_seconds,
        peak_memory_bytes=max(one.peak_memory_bytes, other.peak_memory_bytes),
        notes=tuple(dict.fromkeys(one.notes + other.notes)),
    )


def _renamed(entries: Sequence[Entry], names: Sequence[str], telling: Telling) -> list[str]:
    """Add what `telling` says to every method that occurs twice on some task; on all tasks, so that names agree."""
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, ((result, _), name) in enumerate(zip(entries, names, strict=True)):
        cells[result.task, name].append(index)
    doubled = {method for (_, method), indices in cells.items() if len(indices) > 1}
    renamed = list(names)
    for method in doubled:
        clashing = [[entries[i] for i in indices] for (_, name), indices in cells.items() if name == method]
        tell = telling([entry for group in clashing if len(group) > 1 for entry in group])
        for index, name in enumerate(names):
            if name == method and (more := tell(entries[index])):
                renamed[index] = f"{name} {more}"
    return renamed


def _by_commit(clashing: Sequence[Entry]) -> Callable[[Entry], str]:
    differ = len({result.commit for result, _ in clashing}) > 1
    return lambda entry: f"@{entry[0].commit[:7] or 'unknown'}" if differ else ""


def _by_settings(clashing: Sequence[Entry]) -> Callable[[Entry], str]:
    settings = [_flat(result.config) for result, _ in clashing]
    names = sorted({name for own in settings for name in own} - {"seeds", "task"})
    differing = [name for name in names if len({repr(own.get(name)) for own in settings}) > 1][:3]

    def tell(entry: Entry) -> str:
        own = _flat(entry[0].config)
        return f"({', '.join(f'{_leaf(name)}={own.get(name)}' for name in differing)})" if differing else ""

    return tell


def _by_origin(clashing: Sequence[Entry]) -> Callable[[Entry], str]:
    return lambda entry: f"in {entry[1]}"


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _leaf(name: str) -> str:
    return name.rsplit(".", 1)[-1]
