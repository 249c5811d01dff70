"""Plans: which runs to carry out, each a task, a method, seeds and steps."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeGuard

from sasr.agents.registry import AGENTS, agent_named
from sasr.api import default_steps, spaces_of
from sasr.errors import unknown_name
from sasr.evidence.bandwidth import LinearSchedule
from sasr.settings import WHOLE_RUN, SettingError, TrainConfig, first_seeds, typed_settings, typed_task_settings
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import NONE, SHAPERS, shaper_named, unknown_shaper
from sasr.tasks.catalogue import full_id
from sasr.tasks.environment import resolve


@dataclass(frozen=True, kw_only=True)
class GridRun:
    """One run: some seeds of a method on a task, as one population."""

    task: str
    method: Method
    seeds: tuple[int, ...]
    steps: int
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task that differ from its defaults."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "task_settings", typed_task_settings(self.task, self.task_settings))

    @property
    def id(self) -> str:
        """The name of its folder, from its settings alone."""
        task = full_id(self.task).removeprefix("SASR/").removesuffix("-v0")
        readable = f"{_path_part(task)}-{_path_part(self.method.name)}"
        return f"{readable[:80]}-{self._digest(seeds=self.seeds)[:8]}"

    @property
    def settings_digest(self) -> str:
        """Equal for runs that differ only in their seeds, even where their methods have different names."""
        return self._digest()

    def config(self, **more: Any) -> TrainConfig:
        """The training settings."""
        return self.method.config(
            self.task, seeds=self.seeds, steps=self.steps, task_settings=self.task_settings, **more
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same run back."""
        data: dict[str, Any] = json.loads(json_text({**vars(self), "method": vars(self.method)}))
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GridRun:
        """A run from plain data."""
        return cls(**{**data, "method": Method(**data["method"]), "seeds": tuple(data["seeds"])})

    def __str__(self) -> str:
        return f"{self.method.name} on {self.task}, {seeds_in_words(self.seeds)}"

    def _digest(self, **more: Any) -> str:
        content = {"task": full_id(self.task), "steps": self.steps, **self.method.content(), **more}
        if self.task_settings:
            content["task_settings"] = self.task_settings
        content["settings"] = {**self.method.settings}
        content["settings"].pop("checkpoint_minutes", None)  # it does not change the result
        return hashlib.sha256(json_text(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """Runs in the order to run them; no run is in it twice."""

    runs: tuple[GridRun, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("this plan has no runs; give it tasks and methods")
        first: dict[tuple[str, int], GridRun] = {}
        for run in self.runs:
            for seed in run.seeds:
                other = first.setdefault((run.settings_digest, seed), run)
                if other is not run:
                    raise DuplicateError(run, other, seed)

    def split(
        self, most_seeds: Callable[[GridRun], int], begun: Callable[[GridRun], Sequence[GridRun]] = lambda run: ()
    ) -> Plan:
        """The same plan with at most `most_seeds(run)` seeds in each run, split evenly.

        Args:
            most_seeds: How many seeds one process takes.
            begun: Parts of a run that were started before; they keep their seeds, and only the other seeds are split.
        """
        parts: list[GridRun] = []
        for run in self.runs:
            parts_of_run = list(begun(run))
            begun_seeds = {seed for part in parts_of_run for seed in part.seeds}
            seeds_left = tuple(seed for seed in run.seeds if seed not in begun_seeds)
            count = math.ceil(len(seeds_left) / max(1, most_seeds(run)))
            for part in range(count):
                first, end = (round(len(seeds_left) * edge / count) for edge in (part, part + 1))
                parts_of_run.append(replace(run, seeds=seeds_left[first:end]))
            parts += sorted(parts_of_run, key=lambda part: run.seeds.index(part.seeds[0]))
        return Plan(tuple(parts))


class DuplicateError(ValueError):
    """Two runs of a plan have a seed in common."""

    def __init__(self, run: GridRun, other: GridRun, seed: int) -> None:
        again = "twice"
        if other.method.name != run.method.name:
            again = f"as {other.method.name} and as {run.method.name}"
        super().__init__(f"seed {seed} of {run.method.name} on {run.task} is in the plan {again}; drop one of them")
        self.run, self.other = run, other


def grid(
    tasks: Sequence[str],
    methods: Sequence[str | Method],
    *,
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    described: Mapping[str, Method] | None = None,
) -> list[GridRun]:
    """One run for each task and method.

    >>> [run.method.name for run in grid(["Pendulum-v1"], ["sasr", "sac"], seeds=2, steps=100)]
    ['sasr', 'sac']

    Args:
        tasks: Names of tasks, or any Gymnasium ids.
        methods: Methods, or their names.
        seeds: How many (0, 1, …), or the seeds themselves.
        steps: Environment steps of each seed; None takes the task's default.
        described: More methods by name, besides the built-in ones.
    """
    known = {**built_in_methods(), **(described or {})}
    seed_list = list_seeds(seeds)
    if steps is not None and not (_is_whole(steps) and steps >= 1):
        raise SettingError("grid", "steps", f"steps = {steps!r} must be a whole number, at least 1")
    runs = []
    for task in tasks:
        resolve(task)  # raises with the closest name
        steps_of_task = steps or default_steps(task)
        for method in methods:
            if isinstance(method, str):
                if method not in known:
                    raise unknown_shaper(method, known, what="method")
                method = known[method]
            runs.append(GridRun(task=task, method=method, seeds=seed_list, steps=steps_of_task))
    return runs


def changed(
    runs: Iterable[GridRun],
    *,
    agent: Mapping[str, Any] | None = None,
    shaper: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[GridRun]:
    """Runs with some settings of agent, shaper, task or run replaced; all of them must have these."""
    replaced = []
    for run in runs:
        try:
            method = replace(
                run.method,
                agent_settings={**run.method.agent_settings, **(agent or {})},
                shaper_settings={**run.method.shaper_settings, **(shaper or {})},
                settings={**run.method.settings, **(settings or {})},
            )
            replaced.append(replace(run, method=method, task_settings={**run.task_settings, **(task or {})}))
        except SettingError as error:
            if error.part == "task":
                raise ValueError(f"{run.task}: {error}; narrow --tasks to tasks that have it") from None
            raise ValueError(
                f"{run.method.name}: {error}; what not all methods have is set in a plan file, under [methods.NAME.set]"
            ) from None
    return replaced


def list_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds that are meant: the first ones where their number is given."""
    seed_list: tuple[int, ...] = ()
    if _is_whole(seeds):
        seed_list = first_seeds(seeds)
    elif isinstance(seeds, Sequence) and all(map(_is_whole, seeds)):
        seed_list = tuple(seeds)
    if not seed_list:
        raise SettingError("grid", "seeds", f"seeds = {seeds!r} must be the number of seeds, or a list of them")
    if len(set(seed_list)) < len(seed_list):
        message = f"seeds = {seeds!r} has duplicates; runs of the same seed would be identical"
        raise SettingError("grid", "seeds", message)
    return seed_list


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def seeds_in_words(seeds: Sequence[int]) -> str:
    """A short text for seeds.

    >>> seeds_in_words((0, 1, 2)), seeds_in_words((4,)), seeds_in_words((1, 5))
    ('seeds 0–2', 'seed 4', 'seeds 1, 5')
    """
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]}–{seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def _path_part(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=+-]+", "_", name).strip("_")


_OF_THE_GRID = {"task", "task_settings", "seeds", "steps", "agent", "agent_config", "shaper", "shaper_config", "preset"}
_OF_THE_RUNNER = {"device", "workers"}
SETTINGS = tuple(
    entry.name for entry in dataclasses.fields(TrainConfig) if entry.name not in _OF_THE_GRID | _OF_THE_RUNNER
)
"""Further settings of a run that a plan may set: all that neither the grid nor the runner decides."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """An agent and a reward shaper with their settings: one column of a comparison."""

    name: str
    """Its name in tables."""
    agent: str = "auto"
    """sac, td3, …; auto is SAC, in its discrete form where actions are discrete."""
    shaper: str = NONE
    """Name of the reward shaper; none is the plain agent."""
    preset: str = "auto"
    """Settings that SASR starts from."""
    agent_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the agent that differ from its defaults."""
    shaper_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the shaper that differ from its defaults, or from the preset's."""
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
        agents = ["sac", "sac_discrete"]
        if self.agent != "auto":
            agents = [agent_named(self.agent)[0]]
        agent_classes = [AGENTS[agent].config for agent in agents]
        self._set("agent_settings", typed_settings("agent", agent_classes, self.agent_settings))
        self._set("settings", typed_settings("", [TrainConfig], self.settings))
        if shaper is not None:
            self._set("shaper_settings", typed_settings("shaper", [shaper.config], self.shaper_settings))
        self._shaper_config()  # raises on settings that contradict each other

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
        task_settings = typed_task_settings(task, task_settings or {})
        agent, agent_config = self.agent, None
        if self.agent_settings:
            observation_space, action_space = _spaces_of(task, **task_settings)
            agent, entry = agent_named(agent, action_space)
            known = typed_settings("agent", [entry.config], self.agent_settings)
            agent_config = entry.settings_for(observation_space, **known)
        return TrainConfig(
            task=task,
            task_settings=task_settings,
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
        """All of it but its name."""
        content = dict(vars(self))
        del content["name"]
        return content

    def _shaper_config(self) -> Any:
        """Settings of the shaper; None for its defaults, or the preset's."""
        preset = preset_config(self.preset)  # raises on an unknown name
        shaper = shaper_named(self.shaper)
        if shaper is None or not self.shaper_settings:
            return None
        if self.shaper == "sasr":
            return replace(preset, **self.shaper_settings)
        return replace(shaper.config(), **self.shaper_settings)

    def _set(self, name: str, value: Mapping[str, Any]) -> None:
        object.__setattr__(self, name, value)


def built_in_methods() -> dict[str, Method]:
    """The methods that a plan can name without describing them.

    >>> [built_in_methods()[name].shaper for name in ("sasr", "sasr-authors", "sac", "td3", "rnd-ppo")]
    ['sasr', 'sasr', 'none', 'none', 'rnd']
    """
    methods = [Method(name=name, shaper=name) for name in SHAPERS]
    agents = {name: name for name in AGENTS} | {"sac": "auto"}  # which is discrete SAC where actions are discrete
    methods += [Method(name=name, agent=agent) for name, agent in agents.items()]
    for preset in ("paper", "authors"):
        methods.append(Method(name=f"sasr-{preset}", agent="sac-paper", shaper="sasr", preset=preset))
    methods.append(Method(name="noisynet", agent="sac", agent_settings={"exploration": "noisy"}))
    for shaper in ("rnd", "drnd"):  # as published: a value head for the bonus alone
        methods.append(Method(name=f"{shaper}-ppo", agent="ppo", shaper=shaper))
    return {method.name: method for method in methods}


_spaces_of = lru_cache(maxsize=256)(spaces_of)


def json_text(value: Any, *, sort_keys: bool = False) -> str:
    """JSON in which a schedule is a list START, END, STEPS; without STEPS where it is as long as the run."""

    def as_list(schedule: LinearSchedule) -> list[float]:
        if schedule.steps == WHOLE_RUN:
            return [schedule.start, schedule.end]
        return [schedule.start, schedule.end, schedule.steps]

    return json.dumps(value, sort_keys=sort_keys, default=as_list)
