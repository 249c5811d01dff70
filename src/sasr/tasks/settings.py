"""The settings of a task: the arguments of its constructor, by name and type."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from sasr.tasks.environment import TaskLike, resolve

DECIDED_ELSEWHERE = ("render_mode", "max_episode_steps", "profile", "game")
"""Arguments that cannot be set, because a flag or the task's name decides them."""
SCALAR = bool | int | float | None | str
"""The types of a task's settings, for arguments without a type."""


def setting_types(task: TaskLike) -> dict[str, Any] | None:
    """The type of each setting of a task; None if its constructor takes arguments of any name.

    >>> setting_types("MountainCar")
    {'reward_scale': <class 'float'>}
    """
    constructor = _constructor(task)
    types: dict[str, Any] = {}
    for part in _parts(constructor):
        hints, takes_any_name = _hints(part), False
        for name, parameter in inspect.signature(part).parameters.items():
            takes_any_name |= parameter.kind is parameter.VAR_KEYWORD
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            hint = _type(hints.get(name), parameter.default)
            if name != "self" and name not in DECIDED_ELSEWHERE and hint is not None:
                types.setdefault(name, hint)
        if not takes_any_name:
            return types
    if _is_ours(constructor):
        return types
    return None


def _constructor(task: TaskLike) -> Callable[..., Any]:
    """The class of a task, or the function that makes it."""
    source = resolve(task)
    if isinstance(source, str):
        source = gym.spec(source)
    if not isinstance(source, EnvSpec):
        return source
    entry_point = source.entry_point
    if isinstance(entry_point, str):
        return load_env_creator(entry_point)
    assert entry_point is not None
    return entry_point


def _parts(constructor: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The functions that take the arguments: a class passes those without a name in it to its base class."""
    if not inspect.isclass(constructor):
        yield constructor
        return
    for base in constructor.__mro__:
        # Our tasks replace the rewards of the simulation, so most arguments of its class have no effect.
        if _is_ours(constructor) and not _is_ours(base):
            return
        if "__init__" in vars(base) and base is not object:
            yield vars(base)["__init__"]


def _is_ours(constructor: Callable[..., Any]) -> bool:
    return constructor.__module__.startswith("sasr.tasks.")


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # names that only a type checker imports
        return {}


def _type(hint: Any, default: Any) -> Any:
    """The type of an argument from its annotation or default; None if text can't give its value."""
    if hint is not None:
        return hint if _is_scalar(hint) else None
    if isinstance(default, bool):
        return bool
    if isinstance(default, int | float):
        return int | float
    return SCALAR


def _is_scalar(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_scalar, get_args(hint)))
    return get_origin(hint) is Literal or hint in (bool, int, float, str, NoneType)
