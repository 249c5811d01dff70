"""A method: a name for a pair of agent and shaper with their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_type_hints

from sasr.agents.registry import AGENTS, agent_named
from sasr.api import agent_for
from sasr.errors import unknown_name
from sasr.evidence.bandwidth import LinearSchedule
from sasr.experiments.values import WHOLE_RUN, typed
from sasr.settings import TrainConfig
from sasr.shaping.presets import preset_config, refuse_removed
from sasr.shaping.registry import NONE, SHAPERS, shaper_named

_CELLS_OWN = (
    "task",
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
SETTINGS = tuple(own.name for own in dataclasses.fields(TrainConfig) if own.name not in _CELLS_OWN)
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
        if self.agent != "auto":
            agent_named(self.agent)
        kind = shaper_named(self.shaper)
        if kind is None and self.shaper_settings:
            name = next(iter(self.shaper_settings))
            raise SettingError("shaper", name, f"shaper.{name}: {self.name} has no shaper; name one, or drop it")
        base = preset_config(self.preset)
        agents = _PLAIN if self.agent == "auto" else (self.agent,)
        checked = {
            "agent_settings": _typed("agent", self.agent_settings, [AGENTS[own].config for own in agents]),
            "settings": _typed("settings", self.settings, [TrainConfig], SETTINGS),
        }
        if kind is not None:
            checked["shaper_settings"] = _typed("shaper", self.shaper_settings, [kind.config])
            plain = {name: _scheduled(value, 1) for name, value in checked["shaper_settings"].items()}
            dataclasses.replace(base if self.shaper == "sasr" else kind.config(), **plain)  # raises on what can't be
        for name, values in checked.items():
            object.__setattr__(self, name, values)

    def config(self, task: str, *, seeds: Iterable[int], steps: int, **more: Any) -> TrainConfig:
        """The settings of this method's run on a task."""
        agent, agent_config = self.agent, None
        if self.agent_settings:
            agent = _agent_for(task, agent)
            agent_config = AGENTS[agent].settings(**self.agent_settings)
        shaper_config, kind = None, shaper_named(self.shaper)
        if kind is not None and self.shaper_settings:
            base = preset_config(self.preset) if self.shaper == "sasr" else kind.config()
            changed = {name: _scheduled(value, steps) for name, value in self.shaper_settings.items()}
            shaper_config = dataclasses.replace(base, **changed)
        return TrainConfig(
            task=task,
            agent=agent,
            shaper=self.shaper,
            preset=self.preset,
            seeds=tuple(seeds),
            steps=steps,
            agent_config=agent_config,
            shaper_config=shaper_config,
            **{**self.settings, **more},
        )

    def content(self) -> dict[str, Any]:
        """What it is, whatever its name, as plain data."""
        return {own.name: getattr(self, own.name) for own in dataclasses.fields(self) if own.name != "name"}


class SettingError(ValueError):
    """A setting that is unknown or has a wrong value; `part` and `setting` say which."""

    def __init__(self, part: str, setting: str, message: str) -> None:
        super().__init__(message)
        self.part, self.setting = part, setting


def built_in_methods() -> dict[str, Method]:
    """The methods that a plan can name without saying more.

    >>> [built_in_methods()[name].shaper for name in ("sasr", "sasr-authors", "sac", "td3")]
    ['sasr', 'sasr', 'none', 'none']
    """
    found = [Method(name="sasr", shaper="sasr")]
    for preset in ("paper", "authors"):
        found.append(Method(name=f"sasr-{preset}", agent="sac-paper", shaper="sasr", preset=preset))
    found += [Method(name=name, shaper=name) for name in SHAPERS if name != "sasr"]
    found += [Method(name=name, agent="auto" if name == "sac" else name) for name in AGENTS]
    return {method.name: method for method in found}


@lru_cache(maxsize=256)
def _agent_for(task: str, agent: str) -> str:
    return agent_for(task, agent)


@lru_cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Every method of every plan asks, and evaluating annotations is slow."""
    return get_type_hints(kind)


def _typed(
    part: str, settings: Mapping[str, Any], kinds: list[type[Any]], allowed: Iterable[str] | None = None
) -> dict[str, Any]:
    """Settings as their dataclasses have them; one that is in none of `kinds` is refused."""
    hints: dict[str, Any] = {}
    for kind in reversed(kinds):
        hints |= _hints(kind)
    known = list(allowed or hints)
    found = {}
    for name, value in settings.items():
        try:
            refuse_removed({name: value}, kinds[0])
        except ValueError as error:
            raise SettingError(part, name, str(error)) from None
        if name not in known:
            what = "setting" if part == "settings" else f"setting of the {part}"
            raise SettingError(part, name, str(unknown_name(what, name, known)))
        try:
            found[name] = typed(value, hints[name])
        except ValueError as error:
            raise SettingError(part, name, f"{name} = {value!r}: {error}") from None
    return found


def _scheduled(value: Any, steps: int) -> Any:
    """A schedule that was given without its length takes as long as the run."""
    if isinstance(value, LinearSchedule) and value.steps == WHOLE_RUN:
        return dataclasses.replace(value, steps=steps)
    return value
