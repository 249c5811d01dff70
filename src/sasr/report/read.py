"""Everything that a folder has to report: results of a store, runs, maps and videos, and what was wrong with them."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sasr.files import read_regular
from sasr.final_evaluation import NAME as FINAL
from sasr.logs import plots
from sasr.logs.metrics import MAX_BYTES, read_lines
from sasr.logs.metrics import NAME as METRICS
from sasr.logs.run_folder import CONFIG, CONFIG_BYTES
from sasr.logs.states import NAME as STATES
from sasr.logs.states import States, read_states
from sasr.report.seeds import MAX_POINTS, SeedResult, logged, training_by_point, training_parts
from sasr.report.store import INDIFFERENT, Problem, Result, read_files
from sasr.tasks.catalogue import VARIANTS, full_id

VIDEOS = (".mp4", ".webm")
REFERENCE_COLUMNS = ("task", "variant", "step", "mean", "spread")
REFERENCE_NAMES = {"rlara": "relara", "count": "explo"}
"""Names in the authors' logged data that are others here."""
_LONGEST = 500  # characters of a reason, which may quote what was found


class Maps(NamedTuple):
    """Success-rate estimates of a run over a grid of two-dimensional states."""

    run: str
    steps: NDArray[np.int64]  # (K,)
    x: NDArray[np.float64]  # (X,)
    y: NDArray[np.float64]  # (Y,)
    rate: NDArray[np.float64]  # (K, P, Y, X)
    axes: tuple[str, str] = ("observation[0]", "observation[1]")


class StatesOfRun(NamedTuple):
    """Where a run has been, and what SASR added there."""

    task: str
    method: str
    axes: tuple[str, str]
    states: States

    @property
    def density(self) -> NDArray[np.float64]:
        """Visits of each period over all seeds as a density, (K, Y, X)."""
        area = np.diff(self.states.y)[:, None] * np.diff(self.states.x)
        visits = self.states.visits.sum(1)
        total = visits.sum((1, 2), keepdims=True)
        return np.asarray(visits / (np.maximum(total, 1) * area))


def joined_states(runs: Iterable[StatesOfRun]) -> list[StatesOfRun]:
    """One for each task and method: seeds of several runs together where bins and periods are the same."""
    joined: dict[tuple[str, str], StatesOfRun] = {}
    for run in runs:
        first = joined.setdefault((run.task, run.method), run)
        if run is first:
            continue
        same = all(
            np.array_equal(getattr(first.states, part), getattr(run.states, part)) for part in ("steps", "x", "y")
        )
        if same:
            parts = {}
            for part in ("visits", "feature", "bonus"):
                pair = getattr(first.states, part), getattr(run.states, part)
                parts[part] = np.concatenate(pair, axis=1)
            joined[run.task, run.method] = first._replace(states=first.states._replace(**parts))
    return list(joined.values())


class Video(NamedTuple):
    """A film of a run."""

    run: str
    path: Path


class Reference(NamedTuple):
    """A curve to compare with, each (T,)."""

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    """Standard deviation, as it was logged."""

    def until(self, step: float) -> Reference:
        """The part up to a step, with its interpolated value there."""
        if not len(self.steps) or self.steps[-1] <= step:
            return self
        kept = self.steps < step
        parts = []
        for values in self:
            end = np.interp(step, self.steps, values)
            parts.append(np.append(values[kept], end))
        return Reference(*parts)


References = dict[str, dict[str, Reference]]
"""By task, then by method."""


@dataclass
class Collection:
    """What was found, in the order of a walk through the folders."""

    results: list[Result] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    maps: list[Maps] = field(default_factory=list)
    states: list[StatesOfRun] = field(default_factory=list)
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

    def result(self, task: str, method: str) -> Result | None:
        """The result of a method on a task."""
        for result in self.results:
            if (result.task, result.method) == (task, method):
                return result
        return None


# ---------------------------------------------------------------------- folders


def collect(folder: str | Path, *, leave_out: Path | None = None) -> Collection:
    """Read a results store, a run, or a folder with any number of both in it.

    Args:
        folder: The folder.
        leave_out: A folder below it that is not read, such as the one that the report's own figures go to.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"{folder} is not a folder; give a results store, a run's folder, or one with runs in it")
    found = Collection()
    origins: list[str] = []
    for path, below, files in os.walk(root):
        place = Path(path)
        here = place.resolve().name if place == root else str(place.relative_to(root))
        if leave_out and place.resolve() == leave_out.resolve():
            below.clear()
            continue
        below[:] = sorted(folder for folder in below if not folder.startswith("."))
        if is_run(place):
            below.clear()
            _add_run(place, here, found, origins)
            continue
        if place != root and not below and not files:
            found.problems.append(Problem(here, "is empty: a run that never began"))
        reading = read_files([place / file for file in sorted(files) if file.endswith(".json")], root)
        found.results += reading.results
        origins += [here] * len(reading.results)
        found.problems += reading.problems
    if not found.results:
        problems = "".join(f"; {problem.path} {problem.text}" for problem in found.problems[:3])
        raise ValueError(f"{folder} has nothing to report: no results of `sasr compare --save` and no runs{problems}")
    found.results = told_apart(found.results, origins)
    return found


def _add_run(place: Path, here: str, found: Collection, origins: list[str]) -> None:
    try:
        result = from_run(place)
        found.results.append(result)
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
            found.maps.append(maps._replace(run=here, axes=axes_of(result.task)))
        if os.path.lexists(place / STATES):
            found.states.append(StatesOfRun(result.task, result.method, axes_of(result.task), read_states(place)))
    except ValueError as error:
        found.problems.append(Problem(here, str(error)))
    found.videos += [Video(here, path) for path in videos(place)]


# ------------------------------------------------------------------------- runs


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's, whole or not."""
    return (folder / METRICS).exists() or (folder / CONFIG).exists()


def from_run(folder: str | Path) -> Result:
    """The result of a run so far; a run that is half finished has gaps, and one without settings is rejected."""
    place = Path(folder)
    facts = _facts(place)
    config: dict[str, Any] = facts["config"]
    planned = tuple(config.get("seeds", ()))
    events, notes = _events(place / METRICS)
    curve_of = "training"
    if any(event["kind"] == "evaluation" for event in events):
        curve_of = "evaluation"
    final = _final_evaluations(place / FINAL)
    taken = max((event["step"] for event in events), default=0)
    seeds = [_seed_result(seed, events, curve_of, taken, final.get(seed, {})) for seed in planned]
    seconds = _finite(event.get("seconds") for event in events if event["kind"] == "clock")
    return Result(
        task=_short_name(str(config["task"])),
        method=str(facts.get("method") or method_name(config)),
        commit=str(facts.get("commit") or "")[:10],
        command=str(facts.get("command") or ""),
        config=config,
        steps=int(config.get("steps", 0)),
        planned=planned,
        seeds=tuple(seed for seed in seeds if seed.steps or seed.final),
        curve_of=curve_of,
        machine=dict(facts.get("machine") or {}),
        versions=dict(facts.get("versions") or {}),
        wall_seconds=seconds[-1] if seconds else math.nan,
        peak_memory_bytes=max(_finite(event.get("peak_memory_bytes") for event in events), default=math.nan),
        notes=tuple(notes),
    )


def method_name(config: Mapping[str, Any]) -> str:
    """What a run's settings are called in tables: the shaper, or the plain agent, and what is unusual about it.

    >>> method_name({"preset": "authors", "agent": "sac-paper"}), method_name({"shaper": "none", "agent": "td3"})
    ('sasr-authors', 'td3')
    """
    shaper, agent, preset = config.get("shaper", "sasr"), config.get("agent", "auto"), config.get("preset", "auto")
    if shaper == "none":
        return "sac" if agent == "auto" else str(agent)
    name, is_usual = str(shaper), agent in ("auto", "sac")
    if shaper == "sasr" and preset != "auto":
        name, is_usual = f"sasr-{preset}", agent == "sac-paper"
    return name if is_usual else f"{name}+{agent}"


def read_maps(folder: Path) -> Maps | None:
    """The success-rate maps of a run; None where it has none."""
    if not os.path.lexists(folder / plots.MAPS_DATA):
        return None
    try:
        steps, x, y, rate = plots.read_maps(folder)
    except ValueError as error:
        raise ValueError(f"{error}; the page goes without this map") from None
    return Maps(folder.name, steps, x, y, rate.astype(np.float64))


def videos(folder: Path) -> list[Path]:
    """Films of a run, by name; a link is none, because a page would carry what it points to."""
    films = [path for path in folder.rglob("*") if path.suffix in VIDEOS]
    return sorted(path for path in films if stat.S_ISREG(path.lstat().st_mode))


def _short_name(task: str) -> str:
    """Our own tasks by the names that the catalogue lists."""
    if task.startswith("SASR/"):
        return task.removeprefix("SASR/").removesuffix("-v0")
    return task


def _facts(place: Path) -> dict[str, Any]:
    """A run's config.json. Unlike `read_facts` it takes what older versions wrote, and mends nothing."""
    path = place / CONFIG
    if not os.path.lexists(path):
        raise ValueError(f"has no {CONFIG}: a run that was half written, or no run")
    try:
        facts = json.loads(read_regular(path, CONFIG_BYTES))
        if not (isinstance(facts, dict) and isinstance(facts["config"], dict) and facts["config"]["task"]):
            raise ValueError
    except OSError as error:
        raise ValueError(f"{CONFIG} cannot be read: {error}") from None
    except (ValueError, KeyError, RecursionError):
        raise ValueError(f"{CONFIG} is cut off or was changed by hand: a run that was half written") from None
    return facts


def _events(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of a metrics file; what cannot be read is counted and reported."""
    if not os.path.lexists(path):
        return [], []
    try:
        events, bad = read_lines(path)
    except OSError as error:
        return [], [f"{METRICS} cannot be read: {error}"]
    return events, [f"{len(bad)} lines of {METRICS} cannot be read and are left out"] if bad else []


def _final_evaluations(path: Path) -> dict[int, dict[str, Any]]:
    """Final evaluations by seed, from what `sasr eval` left."""
    try:
        data = json.loads(read_regular(path, MAX_BYTES))
        return {int(member["seed"]): member for member in data["members"]}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}


def _seed_result(
    seed: int, events: Iterable[Mapping[str, Any]], curve_of: str, taken: int, final: Mapping[str, Any]
) -> SeedResult:
    events = [event for event in events if event.get("seed") == seed]
    curve = _evaluations(events) if curve_of == "evaluation" else _training_episodes(events)
    steps = sorted(curve)
    training = []
    if curve_of == "evaluation":  # else the curve says it already
        training = training_by_point(steps, events)
    successes = final.get("success") or []
    return SeedResult(
        seed=seed,
        steps=tuple(steps),
        returns=tuple(curve[step][0] for step in steps),
        success=tuple(curve[step][1] for step in steps),
        **training_parts(training),
        taken=taken if events else 0,
        final=tuple(map(logged, final.get("returns") or [])),
        final_success=float(np.mean(successes)) if successes else math.nan,
    ).thinned()


def _evaluations(events: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Return and success rate by step; a step that was evaluated again after resuming counts once."""
    curve = {}
    for event in events:
        if event["kind"] == "evaluation":
            curve[event["step"]] = logged(event.get("return_mean")), logged(event.get("success_rate"))
    return curve


def _training_episodes(events: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Return and success rate of training episodes, means of neighbours where there are more than a curve's points."""
    ended = [event for event in events if event["kind"] == "episode"]
    if not ended:
        return {}
    by_step: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for part in np.array_split(np.arange(len(ended)), min(len(ended), MAX_POINTS)):
        step = ended[part[-1]]["step"]
        for index in part:
            by_step[step].append((logged(ended[index].get("return")), float(bool(ended[index].get("success")))))
    curve = {}
    for step, episodes in by_step.items():
        returns, successes = zip(*episodes, strict=True)
        curve[step] = float(np.mean(returns)), float(np.mean(successes))
    return curve


def _finite(values: Iterable[Any]) -> list[float]:
    return list(filter(math.isfinite, map(logged, values)))


def axes_of(task: str) -> tuple[str, str]:
    """Names of the first two entries of a task's observation."""
    variant = VARIANTS.get(full_id(task))
    names = variant.axes if variant else ()
    return names[0] if names else "observation[0]", names[1] if len(names) > 1 else "observation[1]"


# --------------------------------------------------------------- names of methods

Entry = tuple[Result, str]
"""A result and the folder it is from."""
Suffix = Callable[[Entry], str]


def told_apart(results: Sequence[Result], origins: Sequence[str]) -> list[Result]:
    """Results such that no two have both task and method in common.

    Runs that differ in nothing but their seeds, or in how they were run, are joined. Where several remain, the methods'
    names say what differs: the commit, the settings, or the folder they are in.
    """
    entries = _joined(list(zip(results, origins, strict=True)))
    names = [result.method for result, _ in entries]
    for suffix_for in (_commit_suffix, _settings_suffix, _origin_suffix):
        names = _renamed(entries, names, suffix_for)
    return [replace(result, method=name) for (result, _), name in zip(entries, names, strict=True)]


def _joined(entries: Iterable[Entry]) -> list[Entry]:
    groups: dict[str, list[Entry]] = defaultdict(list)
    for result, origin in entries:
        settings = _flat(result.config)
        for name in INDIFFERENT:
            settings.pop(name, None)
        key = repr((result.task, result.method, result.commit, result.steps, sorted(settings.items())))
        groups[key].append((result, origin))
    joined: list[Entry] = []
    for group in groups.values():
        whole, origin = group[0]
        for result, other_origin in group[1:]:
            if _seeds(whole) & _seeds(result):
                joined.append((result, other_origin))
            else:
                whole = _with_seeds_of(whole, result)
        joined.append((whole, origin))
    return joined


def _seeds(result: Result) -> set[int]:
    return {seed.seed for seed in result.seeds}


def _with_seeds_of(one: Result, other: Result) -> Result:
    commands = dict.fromkeys(filter(None, (one.command, other.command)))
    return replace(
        one,
        seeds=one.seeds + other.seeds,
        planned=tuple(dict.fromkeys(one.planned + other.planned)),
        command=" && ".join(commands),
        wall_seconds=one.wall_seconds + other.wall_seconds,
        peak_memory_bytes=max(one.peak_memory_bytes, other.peak_memory_bytes),
        notes=tuple(dict.fromkeys(one.notes + other.notes)),
    )


def _renamed(
    entries: Sequence[Entry], names: Sequence[str], suffix_for: Callable[[Sequence[Entry]], Suffix]
) -> list[str]:
    """Add a suffix to every method that occurs twice on some task; on all tasks, so that names agree."""
    cells: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry, name in zip(entries, names, strict=True):
        cells[entry[0].task, name].append(entry)
    clashing: dict[str, list[Entry]] = defaultdict(list)
    for (_, method), group in cells.items():
        if len(group) > 1:
            clashing[method] += group
    suffixes = {method: suffix_for(group) for method, group in clashing.items()}
    renamed = []
    for entry, name in zip(entries, names, strict=True):
        suffix = suffixes[name](entry) if name in suffixes else ""
        renamed.append(f"{name} {suffix}" if suffix else name)
    return renamed


def _commit_suffix(clashing: Sequence[Entry]) -> Suffix:
    if len({result.commit for result, _ in clashing}) == 1:
        return lambda entry: ""
    return lambda entry: f"@{entry[0].commit[:7] or 'unknown'}"


def _settings_suffix(clashing: Sequence[Entry]) -> Suffix:
    """Up to three settings that differ."""
    configs = [_flat(result.config) for result, _ in clashing]
    differing = []
    for name in sorted(set().union(*configs) - {"seeds", "task"}):
        values = {repr(config.get(name)) for config in configs}
        if len(values) > 1:
            differing.append(name)

    def suffix(entry: Entry) -> str:
        config = _flat(entry[0].config)
        words = []
        for name in differing[:3]:
            short_name = name.rsplit(".", 1)[-1]
            words.append(f"{short_name}={config.get(name)}")
        return f"({', '.join(words)})" if words else ""

    return suffix


def _origin_suffix(clashing: Sequence[Entry]) -> Suffix:
    return lambda entry: f"in {entry[1]}"


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


# ---------------------------------------------------------------- reference curves


def read_reference(path: str | Path) -> References:
    """Curves to compare with, from a CSV file with the columns task, variant, step, mean, spread.

    Lines at its beginning that start with # are for readers. A missing column or a word where a number belongs is named
    with its line.
    """
    file = Path(path)
    columns = ", ".join(REFERENCE_COLUMNS)
    if not file.is_file():
        raise ValueError(f"{path} is not a file; give a CSV file with the columns {columns}")
    lines = file.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    header = 0
    while header < len(lines) and lines[header].startswith("#"):
        header += 1
    rows = csv.DictReader(lines[header:])
    for name in REFERENCE_COLUMNS:
        if name not in (rows.fieldnames or ()):
            raise ValueError(f"{path} has no column {name!r}; its first line must name {columns}")
    points: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for row in rows:
        method = REFERENCE_NAMES.get(row["variant"], row["variant"])
        try:
            point = float(row["step"]), _number(row["mean"]), _number(row["spread"])
        except (TypeError, ValueError):
            line = header + rows.line_num
            raise ValueError(f"{path}, line {line}: {row} has no numbers for step, mean, spread") from None
        points[row["task"], method].append(point)
    found: References = defaultdict(dict)
    for (task, method), curve in points.items():
        found[task][method] = Reference(*np.array(sorted(curve), np.float64).T)
    return dict(found)


def reference_of(method: str, curves: Mapping[str, Reference]) -> Reference | None:
    """The curve of a method, or of what it is a variant of: that of sasr for sasr-authors and sasr (features=50)."""
    return curves.get(method) or curves.get(family(method))


def family(method: str) -> str:
    """What a method is a variant of.

    >>> [family(name) for name in ("sasr-authors", "sasr (features=50)", "sac-paper", "rnd")]
    ['sasr', 'sasr', 'sac', 'rnd']
    """
    return re.split(r"[-+ @(,]", method)[0]


def _number(text: str) -> float:
    return float(text) if text.strip() else math.nan
