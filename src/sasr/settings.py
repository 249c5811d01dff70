"""Everything that decides a run, as one value that goes to JSON and back."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch

from sasr.agents.registry import agent_named
from sasr.evidence.bandwidth import LinearSchedule
from sasr.shaping.presets import SasrConfig, preset_config, refuse_removed
from sasr.shaping.registry import shaper_named

Mode = Literal["auto", "eager", "compile", "graph"]
"""How updates run."""
_MOST = {"steps": 10**12, "environments": 10**5, "eval_episodes": 10**5, "max_episode_steps": 10**12}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a run; those of the agent and the shaper are parts of it."""

    task: str
    """A task's name, or any Gymnasium id."""
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
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints; 0 writes only the last one."""
    checkpoint_replay: bool = True
    """Keep the replay buffer in checkpoints; without it a resumed run fills a new one."""
    agent_config: Any = None
    """Settings of the agent; None takes its defaults."""
    shaper_config: Any = None
    """Settings of the shaper; None takes its defaults, or those of the preset."""

    def __post_init__(self) -> None:
        for name in ("steps", "environments", "capacity", "eval_episodes", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name, most in _MOST.items():
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"{name}={getattr(self, name)} is more than {most:,}, which no machine can do")
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ValueError(f"max_episode_steps={self.max_episode_steps} must be at least 1; None sets no limit")
        if self.eval_every is not None and self.eval_every < 0:
            raise ValueError(f"eval_every={self.eval_every} must not be negative; 0 never evaluates")
        if not self.checkpoint_minutes >= 0.0:
            raise ValueError(
                f"checkpoint_minutes={self.checkpoint_minutes} must not be negative; 0 writes the last one"
            )
        if not self.seeds:
            raise ValueError("seeds=() has no runs; give at least one seed")
        for seed in self.seeds:
            if not 0 <= seed < 2**63:
                raise ValueError(f"seed={seed} must be at least 0 and below 2**63")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds={self.seeds} has one twice; runs of one seed would be the same run")
        if self.agent != "auto":
            _check_kind("agent_config", self.agent_config, agent_named(self.agent)[1].config)
        kind = shaper_named(self.shaper)
        if kind is None and self.shaper_config is not None:
            raise ValueError("shaper_config is given, but shaper='none' has no settings; drop it, or name a shaper")
        if kind is not None:
            _check_kind("shaper_config", self.shaper_config, kind.config)
        preset_config(self.preset)
        _check_numbers("", self, infinite=False)
        _check_numbers("agent.", self.agent_config, infinite=False)
        _check_numbers("shaper.", self.shaper_config, infinite=True)  # RND's clip may be: then nothing is clipped
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
        return {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}

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
        """Settings from plain data; unknown names are refused."""
        data = dict(data)
        if data.get("agent_config") is not None:
            data["agent_config"] = _read_agent(agent_named(data["agent"])[1].config, data["agent_config"])
        kind = shaper_named(data.get("shaper", "sasr"))
        if kind is not None and data.get("shaper_config") is not None:
            data["shaper_config"] = _read(kind.config, data["shaper_config"])
        config: TrainConfig = _read(cls, data)
        return config


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


def _check_kind(name: str, value: Any, kind: type[Any]) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}, but a {kind.__name__} belongs here")


def _check_numbers(part: str, config: Any, *, infinite: bool) -> None:
    for field in dataclasses.fields(config) if config is not None else ():
        value = getattr(config, field.name)
        if isinstance(value, float) and (math.isnan(value) or (math.isinf(value) and not infinite)):
            raise ValueError(f"{part}{field.name}={value} is not a finite number")


def _read_agent(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """An agent's settings; all must be there, as a default may mean something else than when they were written."""
    missing = sorted(set(get_type_hints(kind)) - data.keys())
    if missing:
        raise ValueError(
            f"{kind.__name__} lacks {missing[0]!r}: an older sasr wrote it, whose agent was another; train again"
        )
    return _read(kind, data)


def _read(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """A dataclass from what JSON made of it: lists become tuples again, and a schedule its class."""
    refuse_removed(data, kind)
    hints = get_type_hints(kind)
    unknown = sorted(data.keys() - hints.keys())
    if unknown:
        raise ValueError(f"{kind.__name__} has no setting {unknown[0]!r}; it was written by another version of sasr")
    return kind(**{name: _restored(name, value, hints[name]) for name, value in data.items()})


def _restored(name: str, value: Any, hint: Any) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if isinstance(value, dict) and LinearSchedule in options:
        return LinearSchedule(**value)
    value = tuple(value) if isinstance(value, list) else value
    if not any(_fits(value, option) for option in options):
        raise ValueError(f"{name}={str(value)[:80]!r} is no value of this setting; it was damaged, or changed by hand")
    return value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value that JSON gave is of a type."""
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(own, get_args(kind)[0]) for own in value)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return not isinstance(kind, type) or isinstance(value, kind)
