"""What is to be run: a plan of cells, each a task, a method, seeds and steps."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from sasr.agents.registry import AGENTS, agent_named
from sasr.api import agent_for, default_steps
from sasr.errors import unknown_name
from sasr.evidence.bandwidth import LinearSchedule
from sasr.settings import WHOLE_RUN, SettingError, TrainConfig, first_seeds, typed_settings, typed_task_settings
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import NONE, SHAPERS, shaper_named
from sasr.tasks.catalogue import full_id
from sasr.tasks.environment import resolve


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: some seeds of a method on a task, as one population."""

    task: str
    method: Method
    seeds: tuple[int, ...]
    steps: int
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task that are not its defaults."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "task_settings", typed_task_settings(self.task, self.task_settings))

    @property
    def id(self) -> str:
        """A name for its folder that depends on nothing but its content."""
        words = (full_id(self.task).removeprefix("SASR/").removesuffix("-v0"), self.method.name)
        readable = "-".join(re.sub(r"[^A-Za-z0-9._=+-]+", "_", word).strip("_") for word in words)
        return f"{readable[:80]}-{self._digest(seeds=self.seeds)[:8]}"

    @property
    def kind(self) -> str:
        """The same for cells that differ in nothing but their seeds, whatever their methods are called."""
        return self._digest()

    def config(self, **more: Any) -> TrainConfig:
        """The settings of its run."""
        return self.method.config(
            self.task, seeds=self.seeds, steps=self.steps, task_settings=self.task_settings, **more
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same cell back."""
        method = {"name": self.method.name, **self.method.content()}
        data: dict[str, Any] = plain({**_fields(self), "method": method})
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        """A cell from plain data."""
        return cls(**{**data, "method": Method(**data["method"]), "seeds": tuple(data["seeds"])})

    def __str__(self) -> str:
        return f"{self.method.name} on {self.task}, {seeds_in_words(self.seeds)}"

    def _digest(self, **more: Any) -> str:
        content = {"task": full_id(self.task), "steps": self.steps, **self.method.content(), **more}
        if self.task_settings:
            content["task_settings"] = self.task_settings
        content["settings"] = {name: value for name, value in content["settings"].items() if name not in _INDIFFERENT}
        return hashlib.sha256(json.dumps(plain(content), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """Cells in the order to run them; no run is in it twice."""

    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        if not self.cells:
            raise ValueError("this plan has no cells; give it tasks and methods")
        first: dict[tuple[str, int], Cell] = {}
        for cell in self.cells:
            for seed in cell.seeds:
                other = first.setdefault((cell.kind, seed), cell)
                if other is not cell:
                    raise DuplicateError(cell, other, seed)

    def split(self, most: Callable[[Cell], int], begun: Callable[[Cell], Sequence[Cell]] = lambda cell: ()) -> Plan:
        """The same runs with no more than `most(cell)` seeds in a population, as even as can be.

        Args:
            most: Seeds that one process takes.
            begun: Parts of a cell that are under way; they stay as they are, and what is left is split.
        """
        parts: list[Cell] = []
        for cell in self.cells:
            of_cell = list(begun(cell))
            begun_seeds = {seed for part in of_cell for seed in part.seeds}
            left = tuple(seed for seed in cell.seeds if seed not in begun_seeds)
            if left:
                of_cell += _parts(replace(cell, seeds=left), max(1, most(cell)))
            parts += sorted(of_cell, key=lambda part: cell.seeds.index(part.seeds[0]))
        return Plan(tuple(parts))


class DuplicateError(ValueError):
    """A run that a plan has twice."""

    def __init__(self, cell: Cell, other: Cell, seed: int) -> None:
        again = "twice"
        if other.method.name != cell.method.name:
            again = f"as {other.method.name} and as {cell.method.name}"
        super().__init__(f"seed {seed} of {cell.method.name} on {cell.task} is in the plan {again}; drop one of them")
        self.cell, self.other = cell, other


def grid(
    tasks: Sequence[str],
    methods: Sequence[str | Method],
    *,
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    described: Mapping[str, Method] | None = None,
) -> list[Cell]:
    """A cell for each task and method.

    >>> [cell.method.name for cell in grid(["Pendulum-v1"], ["sasr", "sac"], seeds=2, steps=100)]
    ['sasr', 'sac']

    Args:
        tasks: Names of tasks, or any Gymnasium ids.
        methods: Methods, or their names.
        seeds: How many (0, 1, …), or the seeds themselves.
        steps: Environment steps of each seed; None is what suits the task.
        described: Methods by name besides the built-in ones.
    """
    known = {**built_in_methods(), **(described or {})}
    numbers = numbered(seeds)
    if steps is not None and steps < 1:
        raise ValueError(f"steps = {steps} must be at least 1")
    cells = []
    for task in tasks:
        resolve(task)  # raises with the closest name
        for method in methods:
            if isinstance(method, str):
                if method not in known:
                    raise unknown_name("method", method, known)
                method = known[method]
            length = default_steps(task) if steps is None else steps
            cells.append(Cell(task=task, method=method, seeds=numbers, steps=length))
    return cells


def changed(
    cells: Iterable[Cell],
    *,
    agent: Mapping[str, Any] | None = None,
    shaper: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Cells with some settings of the agent, the shaper, the task or the run replaced; all of them must have these."""
    replaced = []
    for cell in cells:
        try:
            method = replace(
                cell.method,
                agent_settings={**cell.method.agent_settings, **(agent or {})},
                shaper_settings={**cell.method.shaper_settings, **(shaper or {})},
                settings={**cell.method.settings, **(settings or {})},
            )
            replaced.append(replace(cell, method=method, task_settings={**cell.task_settings, **(task or {})}))
        except SettingError as error:
            if error.part == "task":
                raise ValueError(f"{cell.task}: {error}; narrow --tasks to tasks that have it") from None
            raise ValueError(
                f"{cell.method.name}: {error}; what not all methods have is set in a plan file, under "
                "[methods.NAME.set]"
            ) from None
    return replaced


def numbered(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds that a count or a list stands for."""
    numbers = first_seeds(seeds) if isinstance(seeds, int) else tuple(seeds)
    if not numbers:
        raise ValueError(f"seeds = {seeds!r} has no runs; give at least one")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"seeds = {seeds!r} has duplicates; runs of one seed would be the same run")
    return numbers


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Short, for people.

    >>> seeds_in_words((0, 1, 2)), seeds_in_words((4,)), seeds_in_words((1, 5))
    ('seeds 0–2', 'seed 4', 'seeds 1, 5')
    """
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    row = list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"seeds {seeds[0]}–{seeds[-1]}" if row else f"seeds {', '.join(map(str, seeds))}"


def _parts(cell: Cell, most: int) -> list[Cell]:
    count = -(-len(cell.seeds) // most)
    ends = [round(len(cell.seeds) * part / count) for part in range(count + 1)]
    return [replace(cell, seeds=cell.seeds[first:last]) for first, last in itertools.pairwise(ends)]


def _fields(cell: Cell) -> dict[str, Any]:
    return {entry.name: getattr(cell, entry.name) for entry in dataclasses.fields(cell)}


_INDIFFERENT = ("checkpoint_minutes",)  # settings that do not change what comes out of a run
_OF_THE_CELL = (
    "task",
    "task_settings",
    "agent",
    "shaper",
    "preset",
    "seeds",
    "steps",
    "device",
    "workers",
    "agent_config",
    "shaper_config",
)
SETTINGS = tuple(entry.name for entry in dataclasses.fields(TrainConfig) if entry.name not in _OF_THE_CELL)
"""Settings of a run that a plan may set besides: those that neither the grid nor the runner decides."""
_PLAIN = ("sac", "sac_discrete")  # what the agent "auto" stands for


@dataclass(frozen=True, kw_only=True)
class Method:
    """One column of a comparison; all names and values are checked when it is made."""

    name: str
    """What tables call it."""
    agent: str = "auto"
    """sac, td3, …; auto is SAC, in its discrete form where actions are discrete."""
    shaper: str = NONE
    """Name of the reward shaper; none is the plain agent."""
    preset: str = "auto"
    """Settings that SASR starts from."""
    agent_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the agent that are not its defaults."""
    shaper_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the shaper that are not its defaults, or the preset's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of the run, see `SETTINGS`."""

    def __post_init__(self) -> None:
        shaper = shaper_named(self.shaper)
        if shaper is None and self.shaper_settings:
            name = next(iter(self.shaper_settings))
            raise SettingError("shaper", name, f"shaper.{name}: shaper=none has no settings; name a shaper, or drop it")
        for name in self.settings:
            if name not in SETTINGS:
                raise SettingError("", name, str(unknown_name("setting", name, SETTINGS)))
        agents = _PLAIN if self.agent == "auto" else (agent_named(self.agent)[0],)
        agent_classes = [AGENTS[agent].config for agent in agents]
        self._set("agent_settings", typed_settings("agent", agent_classes, self.agent_settings))
        self._set("settings", typed_settings("", [TrainConfig], self.settings))
        if shaper is not None:
            self._set("shaper_settings", typed_settings("shaper", [shaper.config], self.shaper_settings))
        self._shaper_config()  # raises on settings that can't be together

    def config(
        self,
        task: str,
        *,
        seeds: Iterable[int],
        steps: int,
        task_settings: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> TrainConfig:
        """The settings of this method's run on a task."""
        given = typed_task_settings(task, task_settings or {})
        agent, agent_config = self.agent, None
        if self.agent_settings:
            agent = _agent_for(task, agent, **given)
            known = typed_settings("agent", [AGENTS[agent].config], self.agent_settings)
            agent_config = AGENTS[agent].settings(**known)
        return TrainConfig(
            task=task,
            task_settings=given,
            agent=agent,
            shaper=self.shaper,
            preset=self.preset,
            seeds=tuple(seeds),
            steps=steps,
            agent_config=agent_config,
            shaper_config=self._shaper_config(),
            **{**self.settings, **more},
        )

    def content(self) -> dict[str, Any]:
        """What it is, whatever its name, as plain data."""
        return {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self) if entry.name != "name"}

    def _shaper_config(self) -> Any:
        """Settings of the shaper; None where its defaults, or the preset's, are to be taken."""
        base, shaper = preset_config(self.preset), shaper_named(self.shaper)
        if shaper is None or not self.shaper_settings:
            return None
        return dataclasses.replace(base if self.shaper == "sasr" else shaper.config(), **self.shaper_settings)

    def _set(self, name: str, value: Mapping[str, Any]) -> None:
        object.__setattr__(self, name, value)


def built_in_methods() -> dict[str, Method]:
    """The methods that a plan can name without saying more.

    >>> [built_in_methods()[name].shaper for name in ("sasr", "sasr-authors", "sac", "td3", "rnd-ppo")]
    ['sasr', 'sasr', 'none', 'none', 'rnd']
    """
    methods = [Method(name=name, shaper=name) for name in SHAPERS]
    methods += [Method(name=name, agent="auto" if name == "sac" else name) for name in AGENTS]
    for preset in ("paper", "authors"):
        methods.append(Method(name=f"sasr-{preset}", agent="sac-paper", shaper="sasr", preset=preset))
    methods.append(Method(name="noisynet", agent="sac", agent_settings={"exploration": "noisy"}))
    for shaper in ("rnd", "drnd"):  # as published: a value head for the bonus alone
        separate = {"separate_stream": True}
        methods.append(Method(name=f"{shaper}-ppo", agent="ppo", shaper=shaper, shaper_settings=separate))
    return {method.name: method for method in methods}


@lru_cache(maxsize=256)
def _agent_for(task: str, agent: str, **task_settings: Any) -> str:
    return agent_for(task, agent, **task_settings)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, LinearSchedule):
        ends = [value.start, value.end]
        return ends if value.steps == WHOLE_RUN else [*ends, value.steps]
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
