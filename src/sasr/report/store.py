"""The results store: PLAN/TASK/METHOD-DIGEST.json, one small file for each result, written by `sasr compare --save`."""

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
from sasr.files import check_writable, read_regular, write_whole
from sasr.report.seeds import BY_POINT, SeedResult, check_names, number, seed_from_json

KIND = "sasr-result"
VERSION = 1
FILE_BYTES = 2**28
FINAL_EPISODES = 100
"""Episodes of each seed in the final evaluation, as in the paper's Table 1."""
INDIFFERENT = ("seeds", "workers", "checkpoint_minutes", "log_states")
"""Settings that don't change what comes out of a seed: seeds of one method may have been run with different ones."""
_IN_ASCII = {"φ": "phi", "λ": "lambda", "→": "-to-"}


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything that a report says about one method on one task."""

    task: str
    method: str
    commit: str = ""
    """Of the code that was run."""
    command: str = ""
    """The exact command that gives this result again."""
    config: dict[str, Any] = field(default_factory=dict)
    """All settings, as plain data."""
    steps: int = 0
    """Environment steps that each seed was to take."""
    planned: tuple[int, ...] = ()
    """Seeds that were to be run."""
    seeds: tuple[SeedResult, ...] = ()
    """Those that were."""
    curve_of: str = "evaluation"
    """What the curves show: evaluation, or training (episodes with exploration) where nothing was evaluated."""
    machine: dict[str, Any] = field(default_factory=dict)
    """Processor, cores, GPU."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and the packages that matter."""
    wall_seconds: float = math.nan
    """Time that all seeds together took, as one population or one after the other."""
    peak_memory_bytes: float = math.nan
    """Most memory in use at any time: the device's where there is one, else the process's."""
    notes: tuple[str, ...] = ()
    """What a reader must know besides."""

    def __post_init__(self) -> None:
        for name in ("task", "method"):
            if not getattr(self, name):
                raise ValueError(f"a result needs a {name}; it is empty")
        numbers = [seed.seed for seed in self.seeds]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"seeds {numbers} of {self.method} on {self.task} have duplicates")

    @property
    def scores(self) -> NDArray[np.float64]:
        """The final score of each seed, NaN where it is not known, (P,)."""
        return np.array([seed.score for seed in self.seeds], np.float64)

    @property
    def cores(self) -> str:
        """How many it was run on, in words; empty where that is not known."""
        count = self.machine.get("cores")
        if not count:
            return ""
        return "1 core" if count == 1 else f"{count} cores"

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
        """Why this result is not complete, in words; empty where it is."""
        missing, stopped = self._missing, self._stopped
        unjudged = [seed for seed in self.seeds if seed.steps and not seed.final and seed not in stopped]
        gaps = []
        if missing:
            gaps.append(f"{seeds_in_words(missing)} not run")
        if stopped:
            last = min(seed.last for seed in stopped)
            gaps.append(f"{_numbers(stopped)} stopped at {last:,} of {self.steps:,} steps")
        if unjudged:
            gaps.append(f"{_numbers(unjudged)} without a final evaluation: the last point of the curve is taken")
        return tuple(gaps)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is odd about the figures, though nothing is missing."""
        remarks = list(self.notes)
        bad = [seed for seed in self.seeds if not np.isfinite([*seed.returns, *seed.final]).all()]
        if bad:
            remarks.append(f"{_numbers(bad)} with figures that are not finite (null)")
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
        """Its place in the folder of its plan: TASK/METHOD-DIGEST.json.

        The digest is of the exact names, the commit and the settings, but not of seeds or the machine: what differs in
        any of these has another file.
        """
        left_out = (*INDIFFERENT, "device")
        settings = {name: value for name, value in self.config.items() if name not in left_out}
        key = json.dumps(_plain([self.task, self.method, self.commit, settings]), sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        return Path(slug(self.task)) / f"{slug(self.method)}-{digest}.json"

    def to_json(self) -> dict[str, Any]:
        """Plain data without NaN; `from_json` gives the same result back."""
        seeds = [vars(seed) for seed in self.seeds]
        data: dict[str, Any] = _plain({"kind": KIND, "version": VERSION, **vars(self), "seeds": seeds})
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        """A result from plain data, under the name that its settings have today.

        Another version, a missing or an unknown part is refused by name.
        """
        if data.get("kind") != KIND:
            raise ValueError(f"kind={data.get('kind')!r} is not {KIND!r}: this is no result")
        if data.get("version") != VERSION:
            raise ValueError(
                f"format version {data.get('version')!r}, but this sasr reads version {VERSION}; "
                "read it with the sasr that wrote it, or run `sasr compare --save` again"
            )
        parts = {name: value for name, value in data.items() if name not in ("kind", "version")}
        check_names(cls, parts, "a result")
        if not isinstance(parts.get("seeds", []), list):
            raise ValueError("seeds is not a list")
        parts["seeds"] = tuple(seed_from_json(seed) for seed in parts.get("seeds", []))
        for name in ("notes", "planned"):
            parts[name] = tuple(parts.get(name, ()))
        for name in ("wall_seconds", "peak_memory_bytes"):
            parts[name] = number(parts.get(name))
        parts["method"] = _name_today(parts["method"], parts.get("config", {}))
        return cls(**parts)


def _name_today(method: str, config: Mapping[str, Any]) -> str:
    """`sasr` and `sac` were trained with the paper's agent until agents had a setting `critic_norm`."""
    first, comma, rest = method.partition(",")
    agent = config.get("agent_config") or {}
    is_papers = bool(agent) and "critic_norm" not in agent and config.get("agent") in ("auto", "sac")
    if not is_papers or "paper's agent" in method:
        return method
    renamed = {"sac": "sac-paper", "sasr": "sasr, paper's agent"}
    return renamed.get(first, first) + comma + rest


def _numbers(seeds: Sequence[SeedResult]) -> str:
    return seeds_in_words([seed.seed for seed in seeds])


def cut_short(result: Result) -> Result | None:
    """What stopped runs have in common: their curves up to the last point that every planned seed has; None without.

    The result is one of runs of that length, so that others are compared with it up to there; a note says so.
    """
    end = _last_shared_step(result)
    if end == 0:
        return None
    seeds = []
    for seed in result.seeds:
        points = seed.steps.index(end) + 1
        curve: dict[str, Any] = {name: getattr(seed, name)[:points] for name in ("steps", *BY_POINT)}
        seeds.append(replace(seed, **curve, taken=end, final=(), final_success=math.nan))
    note = f"the first {end:,} steps of runs of {result.steps:,} that were stopped"
    return replace(result, steps=end, seeds=tuple(seeds), notes=(*result.notes, note))


def _last_shared_step(result: Result) -> int:
    curves = {seed.seed: seed.steps for seed in result.seeds}
    steps_by_seed = [set(curves.get(seed, ())) for seed in result.planned]
    if not steps_by_seed:
        return 0
    return max(set.intersection(*steps_by_seed), default=0)


class Problem(NamedTuple):
    """Something in a folder that could not be used as it is."""

    path: str
    text: str


class Reading(NamedTuple):
    """What a folder holds, the good and the bad."""

    results: list[Result]
    problems: list[Problem]


def slug(name: str) -> str:
    """A name as part of a path that every file system and shell takes.

    >>> slug("φ=1"), slug("h=0.5→0.1"), slug("my_package:MyTask-v0"), slug("sac, time limits terminal")
    ('phi-1', 'h-0.5-to-0.1', 'my_package-MyTask-v0', 'sac-time-limits-terminal')
    """
    spelt = "".join(_IN_ASCII.get(sign, sign) for sign in name)
    return re.sub(r"[^A-Za-z0-9._]+", "-", spelt).strip("-.") or "unnamed"


def write_result(result: Result, folder: str | Path) -> Path:
    """Put a result into a plan's folder, thinned; one with the same names, commit and settings is replaced."""
    slim = replace(result, seeds=tuple(seed.thinned() for seed in result.seeds))
    path = Path(folder) / result.file
    check_writable(path.parent, flag="--results")
    write_whole(path, json.dumps(slim.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return path


def read_result(path: str | Path) -> Result:
    """One file of a store; whatever is wrong with it is said with its name."""
    try:
        data = json.loads(read_regular(Path(path), FILE_BYTES), parse_constant=_refuse)
        if not isinstance(data, dict):
            raise ValueError("this is no result")
        return Result.from_json(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def read_results(folder: str | Path) -> Reading:
    """Every result in a store or in a part of one, by task and method."""
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give the one that `sasr compare --save` wrote to")
    return read_files(sorted(place.rglob("*.json")), place)


def read_files(paths: Iterable[Path], root: Path) -> Reading:
    """The results among these files; those that cannot be read are named, and other JSON files are passed over."""
    results, problems = [], []
    for path in paths:
        name = str(path.relative_to(root))
        try:
            text = read_regular(path, FILE_BYTES).decode(errors="replace")
        except OSError as error:
            problems.append(Problem(name, f"cannot be read: {error}"))
            continue
        if not is_result(text):
            if not _is_json(text):
                problems.append(Problem(name, "is not JSON: cut off while it was written, or changed by hand"))
            continue
        try:
            results.append(read_result(path))
        except ValueError as error:
            problems.append(Problem(name, str(error).removeprefix(f"{path}: ")))
    return Reading(sorted(results, key=lambda own: (own.task, own.method)), problems)


def check_store(folder: Path) -> None:
    """See that results can be added to a store: none of another version is in it, which this one might write over."""
    check_writable(folder, flag="--results")
    for problem in read_results(folder).problems:
        raise ValueError(
            f"{folder / problem.path}: {problem.text}; move it away, or choose another store with --results"
        )


def is_result(text: str) -> bool:
    """Whether a file's text means to be a result, whole or not."""
    return re.match(rf'\s*\{{\s*"kind"\s*:\s*"{KIND}"', text) is not None


def _refuse(word: str) -> Any:
    """Python's reader takes NaN and infinities, which are no JSON."""
    raise ValueError(f"{word} is no JSON; a figure that is not finite is null here")


def _plain(value: Any) -> Any:
    """What JSON can say: tuples are lists; NaN and infinities are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(own) for own in value]
    return value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
