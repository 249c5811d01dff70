"""Reading a folder for a report: results of a store, runs, success-rate maps, videos, and problems."""

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
from sasr.report.store import IGNORED_SETTINGS, Problem, Result, read_files
from sasr.tasks.catalogue import VARIANTS, full_id

VIDEOS = (".mp4", ".webm")
REFERENCE_COLUMNS = ("task", "variant", "step", "mean", "spread")
REFERENCE_NAMES = {"rlara": "relara", "count": "explo"}
"""Methods with another name in the authors' logged data."""
_LONGEST = 500  # characters of a reason, which may quote a file


class MapsOfRun(NamedTuple):
    """The success-rate maps of a run."""

    run: str
    axes: tuple[str, str]
    maps: plots.Maps


class StatesOfRun(NamedTuple):
    """The states that a run visited, and SASR's bonus there."""

    task: str
    method: str
    axes: tuple[str, str]
    states: States

    @property
    def density(self) -> NDArray[np.float64]:
        """Density of the visits of all seeds in each period, (K, Y, X)."""
        area = np.diff(self.states.y)[:, None] * np.diff(self.states.x)
        visits = self.states.visits.sum(1)
        total = visits.sum((1, 2), keepdims=True)
        return np.asarray(visits / (np.maximum(total, 1) * area))


def joined_states(runs: Iterable[StatesOfRun]) -> list[StatesOfRun]:
    """The seeds of several runs of a task and method in one, where their bins and periods are equal."""
    joined: dict[tuple[str, str], StatesOfRun] = {}
    for run in runs:
        first = joined.setdefault((run.task, run.method), run)
        shared = ("steps", "x", "y")
        equal = [np.array_equal(getattr(first.states, name), getattr(run.states, name)) for name in shared]
        if run is first or not all(equal):
            continue
        both = {}
        for name in ("visits", "feature", "bonus"):
            both[name] = np.concatenate((getattr(first.states, name), getattr(run.states, name)), axis=1)
        joined[run.task, run.method] = first._replace(states=first.states._replace(**both))
    return list(joined.values())


class Video(NamedTuple):
    """A video of a run."""

    run: str
    path: Path


class Reference(NamedTuple):
    """A curve for comparison, each (T,)."""

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
    """All that a folder has for a report, sorted by path."""

    results: list[Result] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    maps: list[MapsOfRun] = field(default_factory=list)
    states: list[StatesOfRun] = field(default_factory=list)
    videos: list[Video] = field(default_factory=list)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in the order of their results."""
        return list(dict.fromkeys(result.task for result in self.results))

    @property
    def methods(self) -> list[str]:
        """Names of the methods: sasr, its variants, then the others."""
        names = dict.fromkeys(result.method for result in self.results)
        return sorted(
            names, key=lambda name: (name != "sasr", name.split(",")[0] != "sasr", not name.startswith("sasr"))
        )

    def result(self, task: str, method: str) -> Result | None:
        """The result of a method on a task; None without one."""
        for result in self.results:
            if (result.task, result.method) == (task, method):
                return result
        return None


# ---------------------------------------------------------------------- folders


def collect(folder: str | Path, *, leave_out: Path | None = None) -> Collection:
    """Read a results store, a run, or a folder with any number of both in it.

    Args:
        folder: The folder.
        leave_out: A folder below it that is not read, such as the folder for the report's figures.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"{folder} is not a folder; give a results store, a run folder, or one with runs in it")
    collection = Collection()
    entries: list[Entry] = []
    for path, below, files in os.walk(root):
        place = Path(path)
        here = place.resolve().name if place == root else str(place.relative_to(root))
        if leave_out and place.resolve() == leave_out.resolve():
            below.clear()
            continue
        below[:] = sorted(folder for folder in below if not folder.startswith("."))
        if is_run(place):
            below.clear()
            _add_run(place, here, collection, entries)
            continue
        if place != root and not below and not files:
            collection.problems.append(Problem(here, "is empty: a run that never started"))
        reading = read_files([place / file for file in sorted(files) if file.endswith(".json")], root)
        entries += [(result, here) for result in reading.results]
        collection.problems += reading.problems
    if not entries:
        message = f"{folder} has nothing to report: no results of `sasr compare --save` and no runs"
        for problem in collection.problems[:3]:
            message += f"; {problem.path} {problem.text}"
        raise ValueError(message)
    collection.results = with_unique_names(entries)
    return collection


def _add_run(place: Path, here: str, collection: Collection, entries: list[Entry]) -> None:
    try:
        result = from_run(place)
        entries.append((result, here))
    except ValueError as error:
        collection.problems.append(Problem(here, str(error)[:_LONGEST]))
        return
    except (TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        collection.problems.append(Problem(here, f"is damaged or was changed by hand: {str(error)[:_LONGEST]}"))
        return
    axes = axes_of(result.task)
    try:
        if os.path.lexists(place / plots.MAPS_DATA):
            collection.maps.append(MapsOfRun(here, axes, plots.read_maps(place)))
        if os.path.lexists(place / STATES):
            collection.states.append(StatesOfRun(result.task, result.method, axes, read_states(place)))
    except ValueError as error:
        collection.problems.append(Problem(here, str(error)))
    collection.videos += [Video(here, path) for path in videos(place)]


# ------------------------------------------------------------------------- runs


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's, even an incomplete one."""
    return (folder / METRICS).exists() or (folder / CONFIG).exists()


def from_run(folder: str | Path) -> Result:
    """The result of a run so far; an unfinished run has gaps, and a run without settings is rejected."""
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
    seconds = _finite_values(events, "seconds")
    peak_memory = _finite_values(events, "peak_memory_bytes")
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
        peak_memory_bytes=max(peak_memory, default=math.nan),
        notes=tuple(notes),
    )


def method_name(config: Mapping[str, Any]) -> str:
    """A run's name in tables: the shaper or the plain agent, and what differs from the defaults.

    >>> method_name({"preset": "authors", "agent": "sac-paper"}), method_name({"shaper": "none", "agent": "td3"})
    ('sasr-authors', 'td3')
    """
    shaper, agent, preset = config.get("shaper", "sasr"), config.get("agent", "auto"), config.get("preset", "auto")
    if shaper == "none" and agent == "auto":
        return "sac"
    if shaper == "none":
        return str(agent)
    name, is_usual = str(shaper), agent in ("auto", "sac")
    if shaper == "sasr" and preset != "auto":
        name, is_usual = f"sasr-{preset}", agent == "sac-paper"
    if is_usual:
        return name
    return f"{name}+{agent}"


def videos(folder: Path) -> list[Path]:
    """Videos of a run, by name; links are left out, because the page would embed what they point to."""
    paths = [path for path in folder.rglob("*") if path.suffix in VIDEOS]
    return sorted(path for path in paths if stat.S_ISREG(path.lstat().st_mode))


def _short_name(task: str) -> str:
    """The catalogue's name of a task of sasr; any other task by its id."""
    if task.startswith("SASR/"):
        return task.removeprefix("SASR/").removesuffix("-v0")
    return task


def _facts(place: Path) -> dict[str, Any]:
    """A run's config.json. Unlike `read_facts` it accepts older versions and restores nothing."""
    path = place / CONFIG
    if not os.path.lexists(path):
        raise ValueError(f"has no {CONFIG}: an incomplete run, or no run")
    try:
        facts = json.loads(read_regular(path, CONFIG_BYTES))
        if not (isinstance(facts, dict) and isinstance(facts["config"], dict) and facts["config"]["task"]):
            raise ValueError
    except OSError as error:
        raise ValueError(f"{CONFIG} cannot be read: {error}") from None
    except (ValueError, KeyError, RecursionError):
        raise ValueError(f"{CONFIG} is cut off or was changed by hand") from None
    return facts


def _events(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The events of a metrics file, and notes on lines that cannot be read."""
    if not os.path.lexists(path):
        return [], []
    try:
        events, bad = read_lines(path)
    except OSError as error:
        return [], [f"{METRICS} cannot be read: {error}"]
    if bad:
        return events, [f"{len(bad)} lines of {METRICS} cannot be read and are left out"]
    return events, []


def _final_evaluations(path: Path) -> dict[int, dict[str, Any]]:
    """The results of `sasr eval` by seed; empty without any."""
    try:
        data = json.loads(read_regular(path, MAX_BYTES))
        return {int(evaluation["seed"]): evaluation for evaluation in data["members"]}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}


def _seed_result(
    seed: int, events: Iterable[Mapping[str, Any]], curve_of: str, taken: int, final: Mapping[str, Any]
) -> SeedResult:
    events = [event for event in events if event.get("seed") == seed]
    if curve_of == "evaluation":
        curve = _evaluations(events)
        training = training_by_point(sorted(curve), events)
    else:
        curve = _training_episodes(events)
        training = []
    steps = sorted(curve)
    final_success = math.nan
    if final.get("success"):
        final_success = float(np.mean(final["success"]))
    return SeedResult(
        seed=seed,
        steps=tuple(steps),
        returns=tuple(curve[step][0] for step in steps),
        success=tuple(curve[step][1] for step in steps),
        **training_parts(training),
        taken=taken if events else 0,
        final=tuple(map(logged, final.get("returns") or [])),
        final_success=final_success,
    ).thinned()


def _evaluations(events: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Return and success rate by step; the last one counts where a resumed run evaluated a step again."""
    curve = {}
    for event in events:
        if event["kind"] == "evaluation":
            curve[event["step"]] = logged(event.get("return_mean")), logged(event.get("success_rate"))
    return curve


def _training_episodes(events: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Return and success rate of training episodes by step, averaged to the points of a curve."""
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


def _finite_values(events: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    """The values of a field in the events of the kind clock."""
    values = []
    for event in events:
        if event["kind"] == "clock":
            values.append(logged(event.get(name)))
    return [value for value in values if math.isfinite(value)]


def axes_of(task: str) -> tuple[str, str]:
    """Names of the first two entries of a task's observation."""
    defaults = ("observation[0]", "observation[1]")
    variant = VARIANTS.get(full_id(task))
    names = variant.axes if variant else ()
    first, second = (*names, *defaults[len(names) :])[:2]
    return first, second


# --------------------------------------------------------------- names of methods

Entry = tuple[Result, str]
"""A result and its folder."""


def with_unique_names(entries: Iterable[Entry]) -> list[Result]:
    """Results of which no two have the same task and method.

    Results that differ only in their seeds, or in settings without effect on them, are joined. If several
    remain, the methods' names are extended by what differs: the commit, the settings, or the folder.
    """
    joined = _joined(entries)
    names = [result.method for result, _ in joined]
    for suffix in (_commit_suffix, _settings_suffix, _folder_suffix):
        names = _renamed(joined, names, suffix)
    return [replace(result, method=name) for (result, _), name in zip(joined, names, strict=True)]


def _joined(entries: Iterable[Entry]) -> list[Entry]:
    groups: dict[str, list[Entry]] = defaultdict(list)
    for result, folder in entries:
        settings = _flat(result.config)
        for name in IGNORED_SETTINGS:
            settings.pop(name, None)
        key = repr((result.task, result.method, result.commit, result.steps, sorted(settings.items())))
        groups[key].append((result, folder))
    joined: list[Entry] = []
    for group in groups.values():
        whole, first_folder = group[0]
        for result, folder in group[1:]:
            if _seeds(whole) & _seeds(result):
                joined.append((result, folder))
            else:
                whole = _with_seeds_of(whole, result)
        joined.append((whole, first_folder))
    return joined


def _seeds(result: Result) -> set[int]:
    return {seed.seed for seed in result.seeds}


def _with_seeds_of(one: Result, other: Result) -> Result:
    commands = dict.fromkeys(command for command in (one.command, other.command) if command)
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
    entries: Sequence[Entry], names: Sequence[str], suffix: Callable[[Entry, Sequence[Entry]], str]
) -> list[str]:
    """Add a suffix to every method with two results on a task; on all tasks, so that its names agree."""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry, name in zip(entries, names, strict=True):
        groups[entry[0].task, name].append(entry)
    clashing: dict[str, list[Entry]] = defaultdict(list)
    for (_, name), group in groups.items():
        if len(group) > 1:
            clashing[name] += group
    renamed = []
    for entry, name in zip(entries, names, strict=True):
        if name in clashing:
            name = f"{name} {suffix(entry, clashing[name])}".rstrip()
        renamed.append(name)
    return renamed


def _commit_suffix(entry: Entry, clashing: Sequence[Entry]) -> str:
    if len({result.commit for result, _ in clashing}) == 1:
        return ""
    return f"@{entry[0].commit[:7] or 'unknown'}"


def _settings_suffix(entry: Entry, clashing: Sequence[Entry]) -> str:
    """Up to three settings that differ."""
    configs = [_flat(result.config) for result, _ in clashing]
    own_config = _flat(entry[0].config)
    differing = []
    for name in sorted(set().union(*configs) - {"seeds", "task"}):
        if len({repr(config.get(name)) for config in configs}) > 1:
            differing.append(f"{name.rsplit('.', 1)[-1]}={own_config.get(name)}")
    if not differing:
        return ""
    return f"({', '.join(differing[:3])})"


def _folder_suffix(entry: Entry, clashing: Sequence[Entry]) -> str:
    return f"in {entry[1]}"


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
    """Curves for comparison, from a CSV file with the columns task, variant, step, mean, spread.

    Comment lines at its beginning start with #. An error names a missing column, or the line of a wrong value.
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
    references: References = defaultdict(dict)
    for (task, method), curve in points.items():
        references[task][method] = Reference(*np.array(sorted(curve), np.float64).T)
    return dict(references)


def reference_of(method: str, curves: Mapping[str, Reference]) -> Reference | None:
    """The curve of a method, or of its family: that of sasr for sasr-authors and sasr (features=50)."""
    return curves.get(method) or curves.get(family(method))


def family(method: str) -> str:
    """The method that a name is a variant of.

    >>> [family(name) for name in ("sasr-authors", "sasr (features=50)", "sac-paper", "rnd")]
    ['sasr', 'sasr', 'sac', 'rnd']
    """
    return re.split(r"[-+ @(,]", method)[0]


def _number(text: str) -> float:
    return float(text) if text.strip() else math.nan
