"""Everything that decides a run, as one value that goes to JSON and back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch

from sasr.agents.registry import agent_named
from sasr.errors import unknown_name
from sasr.evidence.bandwidth import LinearSchedule
from sasr.shaping.presets import SasrConfig, preset_config, refuse_removed
from sasr.shaping.registry import shaper_named
from sasr.shaping.settings import foreign_option
from sasr.tasks.environment import TaskLike, task_name
from sasr.tasks.settings import DECIDED_ELSEWHERE, SCALAR, setting_types

Mode = Literal["auto", "eager", "compile", "graph"]
"""How updates run."""
WHOLE_RUN = 2**62
"""Length of a schedule that was given as START,END: `TrainConfig` makes it as long as the run."""
MOST_SEEDS = 10_000
"""Independent runs that may be asked for at once."""
_LARGEST = 10**12  # of the whole numbers in an agent's or a shaper's settings
_MOST = {"steps": 10**12, "environments": 10**5, "eval_episodes": 10**5, "max_episode_steps": 10**12}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a run; those of the agent and the shaper are parts of it."""

    task: str
    """A task's name, any Gymnasium id, or module:function, which makes an environment."""
    agent: str = "auto"
    """sac, sac-paper, td3, sac_discrete or ppo; auto is sac, or sac_discrete where actions are discrete."""
    shaper: str = "sasr"
    """Name of the reward shaper; none is the plain agent."""
    preset: str = "auto"
    """Settings that SASR starts from: auto, paper or authors."""
    seeds: tuple[int, ...] = (0,)
    """One independent run for each, all in one process."""
    steps: int = 100_000
    """Environment steps of each seed."""
    environments: int = 1
    """Environments of each seed."""
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task by name, such as {"fixed": True}: arguments of its constructor."""
    max_episode_steps: int | None = None
    """Steps that an episode is cut after, in place of the environment's own time limit; None leaves that as it is."""
    workers: int | None = None
    """Processes that step the environments; None chooses by cost and cores, 0 steps in this process."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes CUDA where there is one."""
    accelerate: Mode = "auto"
    """How updates run: eager, compile, graph (CUDA graphs), or auto, the fastest known for the device."""
    capacity: int = 1_000_000
    """Steps that the replay buffer keeps for each seed; no more than `steps` are ever allocated."""
    discount: float = 0.99
    """γ of the agent and the shaper."""
    truncation_is_terminal: bool | None = None
    """Stop bootstrapping at time limits, as the authors' code does; None leaves it to the shaper's preset."""
    eval_every: int | None = None
    """Steps between evaluations; None is a fiftieth of the run, but not below 1,000; 0 is never."""
    eval_episodes: int = 5
    """Episodes of each seed in an evaluation, always the same ones, without exploration and without shaping."""
    log_every: int = 1_000
    """Steps between the figures of the agent and the shaper in the log."""
    log_states: int = 0
    """Steps of a period whose visited states are counted for the figures of `sasr report`; 0 counts none."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints; 0 writes only the last one."""
    checkpoint_replay: bool = True
    """Keep the replay buffer in checkpoints; without it a resumed run fills a new one."""
    agent_config: Any = None
    """Settings of the agent; None takes its defaults."""
    shaper_config: Any = None
    """Settings of the shaper; None takes its defaults, or those of the preset."""

    def __post_init__(self) -> None:
        _check_counts(self)
        _check_seeds(self.seeds)
        _check_task_settings(self.task_settings)
        if self.agent != "auto":
            _check_class("agent_config", self.agent_config, agent_named(self.agent)[1].config)
        shaper = shaper_named(self.shaper)
        if shaper is not None:
            _check_class("shaper_config", self.shaper_config, shaper.config)
        elif self.shaper_config is not None:
            raise ValueError("shaper_config is given, but shaper='none' has no settings; drop it, or name a shaper")
        preset_config(self.preset)
        _check_finite("", self)
        _check_finite("agent.", self.agent_config)
        _check_size("agent.", self.agent_config)
        _check_size("shaper.", self.shaper_config)
        _check_finite("shaper.", self.shaper_config, infinite=True)  # RND's clip may be: then nothing is clipped
        object.__setattr__(self, "shaper_config", _scheduled(self.shaper_config, self.steps))
        burn_in = getattr(self.agent_config, "burn_in", 0)
        if self.steps < burn_in:
            raise ValueError(
                f"steps={self.steps} is less than burn_in={burn_in}: the agent would never learn; train for longer, or "
                "set a shorter burn-in (--set agent.burn_in=…)"
            )

    @property
    def evaluation_period(self) -> int:
        """Steps between evaluations; 0 is never."""
        return max(1_000, self.steps // 50) if self.eval_every is None else self.eval_every

    @property
    def task_options(self) -> dict[str, Any]:
        """What `make` is given besides the task."""
        options = dict(self.task_settings)
        if self.max_episode_steps is not None:
            options["max_episode_steps"] = self.max_episode_steps
        return options

    @property
    def steps_kept(self) -> int:
        """The replay buffer's capacity: no longer than the run."""
        return min(self.capacity, max(self.steps, self.environments))

    def sasr_config(self) -> SasrConfig:
        """SASR's settings: those given, or the preset's."""
        config = self.shaper_config or preset_config(self.preset)
        assert isinstance(config, SasrConfig)
        return config

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same settings back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainConfig:
        """Settings from plain data; unknown names are rejected."""
        data = dict(data)
        shaper = shaper_named(data.get("shaper", "sasr"))
        if data.get("agent_config") is not None:
            config_class = agent_named(data["agent"])[1].config
            _check_complete(config_class, data["agent_config"])
            data["agent_config"] = _read("agent", config_class, data["agent_config"])
        if shaper is not None and data.get("shaper_config") is not None:
            data["shaper_config"] = _read("shaper", shaper.config, data["shaper_config"])
        config: TrainConfig = _read("", cls, data)
        return config


class SettingError(ValueError):
    """A setting that is unknown or has a wrong value; `part` and `name` say which."""

    def __init__(self, part: str, name: str, message: str) -> None:
        super().__init__(message)
        self.part, self.name = part, name


def with_settings(part: str, config: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass with some fields replaced by values as `--set`, a plan file or config.json gives them.

    >>> with_settings("shaper", preset_config("paper"), {"retention": "0.5", "sample": "mean"}).retention
    0.5
    """
    return dataclasses.replace(config, **typed_settings(part, [type(config)], values))


def typed_settings(part: str, config_classes: Sequence[type[Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of settings as these dataclasses have them; a `SettingError` names one that is wrong."""
    types: dict[str, Any] = {}
    for config_class in reversed(config_classes):
        types |= field_types(config_class)
    found = {}
    for name, value in values.items():
        try:
            refuse_removed({name: value}, config_classes[0])
        except ValueError as error:
            raise SettingError(part, name, str(error)) from None
        if name not in types:
            raise SettingError(part, name, str(_unknown_setting(part, config_classes[0], name, types)))
        found[name] = _typed_setting(part, name, value, types[name])
    return found


def typed_task_settings(task: TaskLike, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a task's settings as its constructor takes them; a `SettingError` names one that is wrong.

    >>> typed_task_settings("MountainCar", {"reward_scale": "1"})
    {'reward_scale': 1.0}
    """
    if not values:
        return {}
    types = setting_types(task)
    found = {}
    for name, value in values.items():
        if name in DECIDED_ELSEWHERE:
            raise SettingError("task", name, f"task.{name} is no setting: the task's name or a flag decides it")
        if types is not None and name not in types:
            raise SettingError("task", name, _unknown_task_setting(task_name(task), name, types))
        found[name] = _typed_setting("task", name, value, types[name] if types else SCALAR)
    return found


def _unknown_task_setting(task: str, name: str, known: Iterable[str]) -> str:
    if not known:
        return f"setting of {task} {name!r} is unknown: this task has none"
    return str(unknown_name(f"setting of {task}", name, known))


def _typed_setting(part: str, name: str, value: Any, hint: Any) -> Any:
    try:
        return typed(value, hint)
    except ValueError as error:
        full_name = f"{part}.{name}" if part else name
        raise SettingError(part, name, f"{full_name}={str(value)[:80]} is {error}") from None


def typed(value: Any, hint: Any) -> Any:
    """A value as a field of this type has it: from text (`--set`), TOML (plan files) or JSON (config.json) alike.

    >>> typed("64,64", tuple[int, ...]), typed([64, 64], tuple[int, ...]), typed("none", float | None), typed(1, float)
    ((64, 64), (64, 64), None, 1.0)

    A ValueError says what the value is not.
    """
    options = sorted(_options(hint), key=lambda option: option is str)  # every text is a string: try that last
    for option in options:
        try:
            return _as(value, option)
        except (TypeError, ValueError, OverflowError):  # the last: a whole number that no float can hold
            continue
    raise ValueError(f"not {' or '.join(map(_in_words, options))}")


def shown(value: Any) -> str:
    """A value as `--set` takes it.

    >>> shown((256, 256)), shown(None), shown(True)
    ('256,256', 'none', 'true')
    """
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    if isinstance(value, LinearSchedule):
        return f"{value.start:g},{value.end:g},{value.steps}"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


@cache
def field_types(config_class: type[Any]) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    return get_type_hints(config_class)


def first_seeds(number: int) -> tuple[int, ...]:
    """Seeds 0, 1, … of so many runs.

    >>> first_seeds(3)
    (0, 1, 2)
    """
    if number > MOST_SEEDS:
        raise ValueError(f"seeds={number} must be at most {MOST_SEEDS:,}; it is how many independent runs to train")
    return tuple(range(number))


def check_seed(seed: int) -> None:
    """Raise for a number that is no seed."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed} must be at least 0 and below 2**63")


def choose_device(name: str) -> torch.device:
    """The device that a name stands for; an error says what to use where it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r} is not a device; use cpu, cuda, cuda:1 or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        build = "this build of torch has no CUDA" if torch.version.cuda is None else "torch finds no CUDA device"
        raise ValueError(f"device={name!r}, but {build}; use device='cpu', or install torch for CUDA")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name!r}, but there are {torch.cuda.device_count()} CUDA devices; count from cuda:0")
    return device


def _check_counts(config: TrainConfig) -> None:
    for name in ("steps", "environments", "capacity", "eval_episodes", "log_every"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)} must be at least 1")
    for name, most in _MOST.items():
        if (getattr(config, name) or 0) > most:
            raise ValueError(f"{name}={getattr(config, name)} must be at most {most:,}")
    if config.max_episode_steps is not None and config.max_episode_steps < 1:
        raise ValueError(f"max_episode_steps={config.max_episode_steps} must be at least 1; None sets no limit")
    if config.eval_every is not None and config.eval_every < 0:
        raise ValueError(f"eval_every={config.eval_every} must not be negative; 0 never evaluates")
    if config.log_states < 0:
        raise ValueError(f"log_states={config.log_states} must not be negative; 0 counts no states")
    if not config.checkpoint_minutes >= 0.0:
        raise ValueError(f"checkpoint_minutes={config.checkpoint_minutes} must not be negative; 0 writes the last one")


def _check_seeds(seeds: tuple[int, ...]) -> None:
    if not seeds:
        raise ValueError("seeds=() is empty; give at least one seed")
    for seed in seeds:
        check_seed(seed)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={seeds} has duplicates; runs of the same seed would be identical")


def _check_task_settings(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        if name in DECIDED_ELSEWHERE:
            raise ValueError(f"task_settings has {name!r}, which is no setting of a task; leave it out")
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"task_settings[{name!r}]={value!r} must be a number, a text, True, False or None")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"task.{name}={value} is not a finite number")


def _check_class(name: str, config: Any, config_class: type[Any]) -> None:
    if config is not None and not isinstance(config, config_class):
        raise TypeError(f"{name} is a {type(config).__name__}, but must be a {config_class.__name__}")


def _check_finite(part: str, config: Any, *, infinite: bool = False) -> None:
    if config is None:
        return
    for setting in dataclasses.fields(config):
        value = getattr(config, setting.name)
        if isinstance(value, float) and (math.isnan(value) or (math.isinf(value) and not infinite)):
            raise ValueError(f"{part}{setting.name}={value} is not a finite number")


def _check_size(part: str, config: Any) -> None:
    if config is None:
        return
    for setting in dataclasses.fields(config):
        value = getattr(config, setting.name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and abs(number) > _LARGEST:
                raise ValueError(f"{part}{setting.name}={shown(value)} is too large; at most {_LARGEST:,}")


def _scheduled(config: Any, steps: int) -> Any:
    """The same with every schedule that was given without a length as long as the run."""
    if config is None:
        return None
    changed = {}
    for name, value in vars(config).items():
        if isinstance(value, LinearSchedule) and value.steps == WHOLE_RUN:
            changed[name] = dataclasses.replace(value, steps=steps)
    return dataclasses.replace(config, **changed)


def _check_complete(agent_class: type[Any], data: Mapping[str, Any]) -> None:
    """All settings of an agent must be there: a default may mean something else than when they were written."""
    missing = sorted({setting.name for setting in dataclasses.fields(agent_class)} - data.keys())
    if missing:
        raise ValueError(
            f"{agent_class.__name__} lacks {missing[0]!r}: an older sasr wrote it, whose agent was another; train again"
        )


def _read(part: str, config_class: type[Any], data: Mapping[str, Any]) -> Any:
    refuse_removed(data, config_class)
    names = {setting.name for setting in dataclasses.fields(config_class)}
    unknown = sorted(data.keys() - names)
    if unknown:
        raise ValueError(
            f"{config_class.__name__} has no setting {unknown[0]!r}; it was written by another version of sasr"
        )
    try:
        return config_class(**typed_settings(part, [config_class], data))
    except SettingError as error:
        raise ValueError(f"{error}; the file was damaged, or changed by hand") from None


def _unknown_setting(part: str, config_class: type[Any], name: str, known: Iterable[str]) -> ValueError:
    if part == "shaper":
        return foreign_option(config_class, name)
    return unknown_name(f"setting of the {part}" if part else "setting", name, known)


def _options(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, UnionType):
        return get_args(hint)
    return (hint,)


def _as(value: Any, kind: Any) -> Any:
    """A value as this type and no other; raises a TypeError or ValueError where it is none."""
    is_text = isinstance(value, str)
    word = value.strip().lower() if is_text else value
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        return _only(value, value in get_args(kind))
    if kind is NoneType:
        return _only(None, word in (None, "none", "null"))
    if kind is bool:
        word = _BOOLEANS.get(word) if is_text else word
        return _only(word, isinstance(word, bool))
    if kind in (int, float):
        value = kind(value) if is_text else value
        if value != value:  # NaN
            raise ValueError
        return kind(_only(value, isinstance(value, int | kind) and not isinstance(value, bool)))
    if get_origin(kind) is Mapping:
        return dict(_only(value, isinstance(value, dict)))
    if get_origin(kind) is tuple:
        entry_type = get_args(kind)[0]
        return tuple(typed(entry, entry_type) for entry in _entries(value))
    if kind is LinearSchedule and not isinstance(value, LinearSchedule):
        return _schedule(value)
    return _only(value, isinstance(value, kind))


def _only(value: Any, fits: bool) -> Any:
    if not fits:
        raise ValueError
    return value


def _entries(value: Any) -> Sequence[Any]:
    """The entries of a list, which text separates by commas, with or without brackets around it."""
    if isinstance(value, str):
        return [entry for entry in value.strip("()[] ").split(",") if entry.strip()]
    entries: Sequence[Any] = _only(value, isinstance(value, list | tuple))
    return entries


def _schedule(value: Any) -> LinearSchedule:
    """From START,END (as long as the run) or START,END,STEPS; config.json has the names as well."""
    if isinstance(value, dict):
        return LinearSchedule(**value)
    start, end, *length = _entries(value)
    (steps,) = length or [WHOLE_RUN]
    return LinearSchedule(typed(start, float), typed(end, float), typed(steps, int))


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return "a list such as 64,64"
    return _WORDS.get(kind, str(kind))


_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "none",
    LinearSchedule: "a schedule START,END or START,END,STEPS",
}
