"""The results store: one file PLAN/TASK/METHOD-DIGEST.json per result, from `sasr compare --save`."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sasr.experiments.plan import seeds_in_words
from sasr.files import check_writable, plain, read_regular, write_whole
from sasr.report.seeds import BY_POINT, SeedResult, check_names, number, seed_from_json

KIND = "sasr-result"
VERSION = 1
FILE_BYTES = 2**28
FINAL_EPISODES = 100
"""Episodes of each seed in the final evaluation, as in the paper's Table 1."""
IGNORED_SETTINGS = ("seeds", "workers", "checkpoint_minutes", "log_states")
"""Settings without effect on a seed's result: they may differ between seeds of one method."""
_IN_ASCII = {"φ": "phi", "λ": "lambda", "→": "-to-"}


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one method on one task."""

    task: str
    method: str
    commit: str = ""
    """Of the code."""
    command: str = ""
    """The command that repeats this result."""
    config: dict[str, Any] = field(default_factory=dict)
    """All settings, as plain data."""
    steps: int = 0
    """Planned environment steps of each seed."""
    planned: tuple[int, ...] = ()
    """Planned seeds."""
    seeds: tuple[SeedResult, ...] = ()
    """Results of the seeds that were run."""
    curve_of: str = "evaluation"
    """What the curves show: evaluation, or training (with exploration) in runs without evaluations."""
    machine: dict[str, Any] = field(default_factory=dict)
    """Processor, cores, GPU."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and the main packages."""
    wall_seconds: float = math.nan
    """Wall time of all seeds together."""
    peak_memory_bytes: float = math.nan
    """Peak memory of the GPU, or of the process on a CPU."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader."""

    def __post_init__(self) -> None:
        for name in ("task", "method"):
            if not getattr(self, name):
                raise ValueError(f"a result needs a {name}; it is empty")
        numbers = [seed.seed for seed in self.seeds]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"seeds {numbers} of {self.method} on {self.task} have duplicates")

    @property
    def scores(self) -> NDArray[np.float64]:
        """The final score of each seed, NaN if unknown, (P,)."""
        return np.array([seed.score for seed in self.seeds], np.float64)

    @property
    def cores(self) -> str:
        """A text for the number of cores; empty if unknown."""
        count = self.machine.get("cores")
        if not count:
            return ""
        if count == 1:
            return "1 core"
        return f"{count} cores"

    @property
    def finished(self) -> bool:
        """Whether every planned seed took all its steps."""
        return not self._missing and not self._stopped

    @property
    def _missing(self) -> list[int]:
        started = {seed.seed for seed in self.seeds if seed.steps or seed.final}
        return sorted(set(self.planned) - started)

    @property
    def _stopped(self) -> list[SeedResult]:
        return [seed for seed in self.seeds if seed.last < self.steps and seed.seed not in self._missing]

    @property
    def gaps(self) -> tuple[str, ...]:
        """Texts on what this result lacks; empty if it is complete."""
        missing, stopped = self._missing, self._stopped
        unevaluated = [seed for seed in self.seeds if seed.steps and not seed.final and seed not in stopped]
        gaps = []
        if missing:
            gaps.append(f"{seeds_in_words(missing)} not run")
        if stopped:
            last = min(seed.last for seed in stopped)
            gaps.append(f"{_in_words(stopped)} stopped at {last:,} of {self.steps:,} steps")
        if unevaluated:
            text = "without a final evaluation: the last point of the curve is taken"
            gaps.append(f"{_in_words(unevaluated)} {text}")
        return tuple(gaps)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Texts on unusual values of this result."""
        remarks = list(self.notes)
        diverged = [seed for seed in self.seeds if not np.isfinite([*seed.returns, *seed.final]).all()]
        if diverged:
            remarks.append(f"{_in_words(diverged)} with values that are not finite (null)")
        ends = {seed.steps[-1] for seed in self.seeds if seed.steps}
        if len(ends) > 1:
            remarks.append(f"curves of different lengths: from {min(ends):,} to {max(ends):,} steps")
        episodes = {len(seed.final) for seed in self.seeds if seed.final} - {FINAL_EPISODES}
        if episodes:
            counts = ", ".join(map(str, sorted(episodes)))
            remarks.append(f"final evaluation over {counts} episodes, not {FINAL_EPISODES}")
        return tuple(remarks)

    @property
    def file(self) -> Path:
        """Its path in the folder of its plan: TASK/METHOD-DIGEST.json.

        The digest is of the names, the commit and the settings, but not of seeds or the machine.
        """
        settings = dict(self.config)
        for name in (*IGNORED_SETTINGS, "device"):
            settings.pop(name, None)
        key = json.dumps(plain([self.task, self.method, self.commit, settings]), sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        return Path(slug(self.task)) / f"{slug(self.method)}-{digest}.json"

    def to_json(self) -> dict[str, Any]:
        """Plain data without NaN, for `from_json`."""
        seeds = [vars(seed) for seed in self.seeds]
        data: dict[str, Any] = plain({"kind": KIND, "version": VERSION, **vars(self), "seeds": seeds})
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        """A result from plain data, under its present name; an error names a part that is wrong."""
        if data.get("kind") != KIND:
            raise ValueError(f"kind={data.get('kind')!r} is not {KIND!r}: this is not a result")
        if data.get("version") != VERSION:
            raise ValueError(
                f"format version {data.get('version')!r}, but this sasr reads version {VERSION}; "
                "read it with the sasr that wrote it, or run `sasr compare --save` again"
            )
        parts = dict(data)
        del parts["kind"], parts["version"]
        check_names(cls, parts, "a result")
        if not isinstance(parts.get("seeds", []), list):
            raise ValueError("seeds is not a list")
        parts["seeds"] = tuple(map(seed_from_json, parts.get("seeds", [])))
        for name in ("notes", "planned"):
            parts[name] = tuple(parts.get(name, ()))
        for name in ("wall_seconds", "peak_memory_bytes"):
            parts[name] = number(parts.get(name))
        parts["method"] = _present_name(parts["method"], parts.get("config", {}))
        return cls(**parts)


def _present_name(method: str, config: Mapping[str, Any]) -> str:
    """A method's name; `sasr` and `sac` had the paper's agent before agents had the setting `critic_norm`."""
    first, comma, rest = method.partition(",")
    agent = config.get("agent_config") or {}
    is_old_sac = bool(agent) and "critic_norm" not in agent and config.get("agent") in ("auto", "sac")
    if not is_old_sac or "paper's agent" in method:
        return method
    renamed = {"sac": "sac-paper", "sasr": "sasr, paper's agent"}
    return renamed.get(first, first) + comma + rest


def _in_words(seeds: Sequence[SeedResult]) -> str:
    return seeds_in_words([seed.seed for seed in seeds])


def cut_short(result: Result) -> Result | None:
    """The curves of stopped runs up to the last step that every planned seed has; None without one.

    The result has that number of planned steps, so that others are compared with it up to there; a note says so.
    """
    curves = {seed.seed: set(seed.steps) for seed in result.seeds}
    steps_by_seed = [curves.get(seed, set()) for seed in result.planned] or [set()]
    shared = set.intersection(*steps_by_seed)
    if not shared:
        return None
    return cut_at(result, max(shared), note=" that were stopped")


def cut_at(result: Result, end: int, *, note: str = "") -> Result:
    """The curves up to a step that every seed has, without the final evaluation after it."""
    seeds = []
    for seed in result.seeds:
        points = seed.steps.index(end) + 1
        changes: dict[str, Any] = {"taken": end, "final": (), "final_success": math.nan}
        for name in ("steps", *BY_POINT):
            changes[name] = getattr(seed, name)[:points]
        seeds.append(replace(seed, **changes))
    cut = f"the first {end:,} steps of runs of {result.steps:,}{note}"
    return replace(result, steps=end, seeds=tuple(seeds), notes=(*result.notes, cut))


class Problem(NamedTuple):
    """A file or folder that could not be read."""

    path: str
    text: str


class Reading(NamedTuple):
    """The results in a folder, and the files that could not be read."""

    results: list[Result]
    problems: list[Problem]


def slug(name: str) -> str:
    """A name as part of a path, with characters that are safe in every file system and shell.

    >>> slug("φ=1"), slug("h=0.5→0.1"), slug("my_package:MyTask-v0"), slug("sac, time limits terminal")
    ('phi-1', 'h-0.5-to-0.1', 'my_package-MyTask-v0', 'sac-time-limits-terminal')
    """
    for sign, word in _IN_ASCII.items():
        name = name.replace(sign, word)
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "unnamed"


def write_result(result: Result, folder: str | Path) -> Path:
    """Write a result into a plan's folder; one with the same names, commit and settings is replaced."""
    thinned = replace(result, seeds=tuple(seed.thinned() for seed in result.seeds))
    path = Path(folder) / result.file
    check_writable(path.parent, flag="--results")
    write_whole(path, json.dumps(thinned.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return path


def read_result(path: str | Path) -> Result:
    """Read one file of a store; an error names the file."""
    try:
        data = json.loads(read_regular(Path(path), FILE_BYTES), parse_constant=_refuse_constant)
        if not isinstance(data, dict):
            raise ValueError("this is not a result")
        return Result.from_json(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def read_results(folder: str | Path) -> Reading:
    """All results in a store or in a part of one, sorted by task and method."""
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give the folder that `sasr compare --save` wrote to")
    return read_files(sorted(place.rglob("*.json")), place)


def read_files(paths: Iterable[Path], root: Path) -> Reading:
    """The results among these files, and problems with unreadable ones; other JSON is ignored."""
    results, problems = [], []
    for path in paths:
        name = str(path.relative_to(root))
        try:
            text = read_regular(path, FILE_BYTES).decode(errors="replace")
        except OSError as error:
            problems.append(Problem(name, f"cannot be read: {error}"))
            continue
        if is_result(text):
            try:
                results.append(read_result(path))
            except ValueError as error:
                problems.append(Problem(name, str(error).removeprefix(f"{path}: ")))
        elif not _is_json(text):
            problems.append(Problem(name, "is not JSON: it was cut off or changed by hand"))
    return Reading(sorted(results, key=lambda result: (result.task, result.method)), problems)


def check_store(folder: Path) -> None:
    """Raise if a store cannot be written to, or has files of another version, which might be overwritten."""
    check_writable(folder, flag="--results")
    for problem in read_results(folder).problems:
        raise ValueError(
            f"{folder / problem.path}: {problem.text}; move it away, or choose another store with --results"
        )


def is_result(text: str) -> bool:
    """Whether a file's text begins as a result, even a damaged one."""
    return re.match(rf'\s*\{{\s*"kind"\s*:\s*"{KIND}"', text) is not None


def _refuse_constant(word: str) -> Any:
    """Raise for NaN and infinities, which are not JSON but which Python's reader accepts."""
    raise ValueError(f"{word} is not JSON; values that are not finite are null here")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
