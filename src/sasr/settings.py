"""The settings of a run, and their conversion from text, TOML and JSON."""

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
Precision = Literal["auto", "bf16"]
"""Of the agent's matrix products."""
WHOLE_RUN = 2**62
"""Length of a schedule START,END without a length: `TrainConfig` makes it as long as the run."""
MOST_SEEDS = 10_000
"""At most so many independent runs in one process."""
_LARGEST = 10**12  # of the whole numbers in an agent's or a shaper's settings
_LEAST = {
    **dict.fromkeys(("steps", "environments", "frame_stack", "capacity", "eval_episodes", "log_every"), (1, "")),
    "max_episode_steps": (1, "; None sets no limit"),
    "eval_every": (0, "; 0 never evaluates"),
    "log_states": (0, "; 0 counts no states"),
    "checkpoint_minutes": (0, "; 0 writes one at the end"),
}
_MOST = {"steps": 10**12, "environments": 10**5, "eval_episodes": 10**5, "max_episode_steps": 10**12}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a run, with those of its agent and shaper."""

    task: str
    """A task's name, any Gymnasium id, or module:function that makes an environment."""
    agent: str = "auto"
    """sac, sac-paper, td3, sac_discrete or ppo; auto is sac, or sac_discrete where actions are discrete."""
    shaper: str = "sasr"
    """Name of the reward shaper; none is the plain agent."""
    preset: str = "auto"
    """SASR's preset: auto, paper or authors."""
    seeds: tuple[int, ...] = (0,)
    """One independent run for each, all in one process."""
    steps: int = 100_000
    """Environment steps of each seed."""
    environments: int | None = None
    """Environments of each seed; None is 1, or 8 for PPO on images."""
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task by name, such as {"fixed": True}: arguments of its constructor."""
    max_episode_steps: int | None = None
    """Time limit of an episode in steps; None keeps the environment's."""
    workers: int | None = None
    """Processes that step the environments; None decides by their cost, 0 uses this process."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses CUDA if it is available."""
    accelerate: Mode = "auto"
    """How updates run: eager, compile, graph (CUDA graphs), or auto, the fastest on the device."""
    precision: Precision = "auto"
    """Precision of the agent's matrix products: auto is float32 (TF32 on CUDA); bf16 is faster on some CPUs."""
    frame_stack: int | None = None
    """Number of frames that the policy sees at once; None is 4 for single images, otherwise 1."""
    capacity: int = 1_000_000
    """Size of each seed's replay buffer in steps; at most `steps` are allocated."""
    discount: float = 0.99
    """γ of the agent and the shaper."""
    truncation_is_terminal: bool | None = None
    """Do not bootstrap at time limits, as in the authors' code; None follows the shaper's preset."""
    eval_every: int | None = None
    """Steps between evaluations; None is a fiftieth of the run, at least 1,000; 0 never evaluates."""
    eval_episodes: int = 5
    """Episodes of each seed in an evaluation, without exploration or shaping; the same ones each time."""
    log_every: int = 1_000
    """Steps between log entries of the agent's and the shaper's metrics."""
    log_states: int = 0
    """Count visited states in periods of this many steps, for the figures of `sasr report`; 0 counts none."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints; 0 writes one only at the end."""
    checkpoint_replay: bool = True
    """Save the replay buffer in checkpoints; without it a resumed run starts with an empty one."""
    agent_config: Any = None
    """Settings of the agent; None for its defaults."""
    shaper_config: Any = None
    """Settings of the shaper; None for its defaults, or the preset's."""

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
            raise ValueError(
                "shaper_config is given, but shaper='none' has no settings; leave it out, or name a shaper"
            )
        preset_config(self.preset)
        _check_numbers("", self, largest=math.inf)
        _check_numbers("agent.", self.agent_config)
        _check_numbers("shaper.", self.shaper_config, infinite=True)  # RND's clip may be: then nothing is clipped
        object.__setattr__(self, "shaper_config", _scheduled(self.shaper_config, self.steps))
        burn_in = getattr(self.agent_config, "burn_in", 0)
        if self.steps < burn_in:
            raise ValueError(
                f"steps={self.steps} is less than burn_in={burn_in}: the agent would never learn; train for more "
                "steps, or set a shorter burn-in (--set agent.burn_in=…)"
            )

    @property
    def evaluation_period(self) -> int:
        """Steps between evaluations; 0 is never."""
        if self.eval_every is None:
            return max(1_000, self.steps // 50)
        return self.eval_every

    @property
    def task_options(self) -> dict[str, Any]:
        """Arguments of `make` besides the task."""
        options = dict(self.task_settings)
        if self.max_episode_steps is not None:
            options["max_episode_steps"] = self.max_episode_steps
        return options

    @property
    def steps_kept(self) -> int:
        """The replay buffer's size: not longer than the run."""
        return min(self.capacity, max(self.steps, self.envs))

    @property
    def envs(self) -> int:
        """Environments of each seed: one, where no number is given."""
        return self.environments or 1

    def sasr_config(self) -> SasrConfig:
        """SASR's settings: `shaper_config`, or the preset's."""
        config = self.shaper_config or preset_config(self.preset)
        assert isinstance(config, SasrConfig)
        return config

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same settings back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainConfig:
        """Settings from plain data; unknown names are rejected."""
        data = {"frame_stack": 1, **data}  # older runs have none: their policies saw one frame
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

    >>> with_settings("shaper", preset_config("paper"), {"retention": "0.5", "sample": "ratio"}).retention
    0.5
    """
    return dataclasses.replace(config, **typed_settings(part, [type(config)], values))


def typed_settings(part: str, config_classes: Sequence[type[Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of settings as these dataclasses have them; a `SettingError` names one that is wrong."""
    types: dict[str, Any] = {}
    for config_class in reversed(config_classes):
        types |= field_types(config_class)
    converted = {}
    for name, value in values.items():
        try:
            refuse_removed({name: value}, config_classes[0])
        except ValueError as error:
            raise SettingError(part, name, str(error)) from None
        if name not in types:
            raise SettingError(part, name, str(_unknown_setting(part, config_classes[0], name, types)))
        converted[name] = _typed_setting(part, name, value, types[name])
    return converted


def typed_task_settings(task: TaskLike, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a task's settings as its constructor takes them; a `SettingError` names one that is wrong.

    >>> typed_task_settings("MountainCar", {"reward_scale": "1"})
    {'reward_scale': 1.0}
    """
    if not values:
        return {}
    types = setting_types(task)
    converted = {}
    for name, value in values.items():
        if name in DECIDED_ELSEWHERE:
            raise SettingError("task", name, f"task.{name} cannot be set: the task's name or a flag decides it")
        if types == {}:
            raise SettingError("task", name, f"setting of {task_name(task)} {name!r} is unknown: this task has none")
        if types and name not in types:
            raise SettingError("task", name, str(unknown_name(f"setting of {task_name(task)}", name, types)))
        converted[name] = _typed_setting("task", name, value, types[name] if types else SCALAR)
    return converted


def _typed_setting(part: str, name: str, value: Any, hint: Any) -> Any:
    try:
        return typed(value, hint)
    except ValueError as error:
        full_name = f"{part}.{name}" if part else name
        raise SettingError(part, name, f"{full_name}={str(value)[:80]} is {error}") from None


def typed(value: Any, hint: Any) -> Any:
    """A value converted to a field's type, from text (`--set`), TOML (plan files) or JSON (config.json).

    >>> typed("64,64", tuple[int, ...]), typed([64, 64], tuple[int, ...]), typed("none", float | None), typed(1, float)
    ((64, 64), (64, 64), None, 1.0)

    A ValueError names the types that the value does not fit.
    """
    options = [hint]
    if get_origin(hint) in (Union, UnionType):
        options = list(get_args(hint))
    options.sort(key=lambda option: option is str)  # every text is a string: try that last
    for option in options:
        try:
            return _as(value, option)
        except (TypeError, ValueError, OverflowError):  # OverflowError: an integer too large for a float
            continue
    raise ValueError(f"not {' or '.join(map(_in_words, options))}")


def setting_text(value: Any) -> str:
    """A value as text for `--set`.

    >>> setting_text((256, 256)), setting_text(None), setting_text(True)
    ('256,256', 'none', 'true')
    """
    if isinstance(value, tuple):
        return ",".join(map(setting_text, value))
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
    """The first seeds: 0, 1, ….

    >>> first_seeds(3)
    (0, 1, 2)
    """
    if number > MOST_SEEDS:
        raise ValueError(f"seeds={number} must be at most {MOST_SEEDS:,}; it is the number of independent runs")
    return tuple(range(number))


def check_seed(seed: int) -> None:
    """Raise for a number that is no seed."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed} must be at least 0 and below 2**63")


def choose_device(name: str) -> torch.device:
    """The device with this name; an error says what to use if it is missing."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r} is not a device; use cpu, cuda, cuda:1 or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        reason = "torch finds no CUDA device"
        if torch.version.cuda is None:
            reason = "this build of torch has no CUDA"
        raise ValueError(f"device={name!r}, but {reason}; use device='cpu', or install torch for CUDA")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name!r}, but there are {torch.cuda.device_count()} CUDA devices; count from cuda:0")
    return device


def _check_counts(config: TrainConfig) -> None:
    for name, (least, hint) in _LEAST.items():
        value = getattr(config, name)
        if value is not None and not value >= least:  # which NaN is not either
            raise ValueError(f"{name}={value} must be at least {least}{hint}")
        if name in _MOST and (value or 0) > _MOST[name]:
            raise ValueError(f"{name}={value} must be at most {_MOST[name]:,}")


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
            raise ValueError(f"task_settings has {name!r}, which cannot be set there; leave it out")
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"task_settings[{name!r}]={value!r} must be a number, a text, True, False or None")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"task.{name}={value} is not a finite number")


def _check_class(name: str, config: Any, config_class: type[Any]) -> None:
    if config is not None and not isinstance(config, config_class):
        raise TypeError(f"{name} is a {type(config).__name__}, but must be a {config_class.__name__}")


def _check_numbers(part: str, config: Any, *, infinite: bool = False, largest: float = _LARGEST) -> None:
    """Refuse a number that is not finite, and a whole one that is too large."""
    if config is None:
        return
    for name, value in vars(config).items():
        if isinstance(value, float) and (math.isnan(value) or (math.isinf(value) and not infinite)):
            raise ValueError(f"{part}{name}={value} is not a finite number")
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int) and abs(number) > largest for number in numbers):
            raise ValueError(f"{part}{name}={setting_text(value)} is too large; at most {_LARGEST:,}")


def _scheduled(config: Any, steps: int) -> Any:
    """The same settings, where a schedule without a length is as long as the run."""
    if config is None:
        return None
    changed = {}
    for name, value in vars(config).items():
        if isinstance(value, LinearSchedule) and value.steps == WHOLE_RUN:
            changed[name] = dataclasses.replace(value, steps=steps)
    return dataclasses.replace(config, **changed)


def _check_complete(agent_class: type[Any], data: Mapping[str, Any]) -> None:
    """All settings of an agent must be present: an earlier version may have had other defaults."""
    missing = sorted({setting.name for setting in dataclasses.fields(agent_class)} - data.keys())
    if missing:
        raise ValueError(
            f"{agent_class.__name__} lacks {missing[0]!r}: an older sasr with another agent wrote it; train again"
        )


def _read(part: str, config_class: type[Any], data: Mapping[str, Any]) -> Any:
    refuse_removed(data, config_class)
    unknown = sorted(data.keys() - {setting.name for setting in dataclasses.fields(config_class)})
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
    what = f"setting of the {part}" if part else "setting"
    return unknown_name(what, name, known)


def _as(value: Any, hint: Any) -> Any:
    """A value converted to one type; raises a TypeError or ValueError if it does not fit."""
    if isinstance(value, str):
        value = _from_text(value, hint)
    if hint is Any:
        return value
    if get_origin(hint) is Literal:
        return _require(value, value in get_args(hint))
    if hint in (int, float):
        # A bool is an int to Python, and NaN differs from itself.
        return hint(_require(value, isinstance(value, int | hint) and not isinstance(value, bool) and value == value))
    if get_origin(hint) is Mapping:
        return dict(_require(value, isinstance(value, dict)))
    if get_origin(hint) is tuple:
        entry_type = get_args(hint)[0]
        return tuple(typed(entry, entry_type) for entry in _entries(value))
    if hint is LinearSchedule and not isinstance(value, LinearSchedule):
        return _schedule(value)
    return _require(value, isinstance(value, hint))


def _from_text(text: str, hint: Any) -> Any:
    """None, a bool or a number from text; any other type keeps it."""
    word = text.strip().lower()
    if hint is NoneType and word in ("none", "null"):
        return None
    if hint is bool:
        return _BOOLEANS.get(word)
    if hint in (int, float):
        return hint(text)
    return text


def _require(value: Any, fits: bool) -> Any:
    if not fits:
        raise ValueError
    return value


def _entries(value: Any) -> Sequence[Any]:
    """The entries of a list; text has commas between them, with or without brackets around it."""
    if isinstance(value, str):
        return [entry for entry in value.strip("()[] ").split(",") if entry.strip()]
    entries: Sequence[Any] = _require(value, isinstance(value, list | tuple))
    return entries


def _schedule(value: Any) -> LinearSchedule:
    """A schedule from START,END (as long as the run), START,END,STEPS, or config.json's dict."""
    if isinstance(value, dict):
        return LinearSchedule(**value)
    start, end, *length = _entries(value)
    (steps,) = length or [WHOLE_RUN]
    return LinearSchedule(typed(start, float), typed(end, float), typed(steps, int))


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return "a list such as 64,64"
    return _WORDS.get(hint, str(hint))


_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "none",
    LinearSchedule: "a schedule START,END or START,END,STEPS",
}
