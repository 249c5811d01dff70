"""What can be set of a task: the arguments of its constructor, by name and type."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from sasr.tasks.environment import TaskLike, resolve

DECIDED_ELSEWHERE = ("render_mode", "max_episode_steps", "profile", "game")
"""Arguments that are no settings: a flag has them, or the task's name stands for them."""
SCALAR = bool | int | float | None | str
"""What a setting of a task can be; the type of an argument that does not say its own."""


def setting_types(task: TaskLike) -> dict[str, Any] | None:
    """The type of each setting that a task has; None where its constructor takes arguments of any name.

    >>> setting_types("MountainCar")
    {'reward_scale': <class 'float'>}
    """
    constructor = _constructor(task)
    types: dict[str, Any] = {}
    for part in _parts(constructor):
        hints = _hints(part)
        for name, parameter in inspect.signature(part).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            kind = _type(hints.get(name), parameter.default)
            if name != "self" and name not in DECIDED_ELSEWHERE and kind is not None:
                types.setdefault(name, kind)
        if not _is_open(part):
            return types
    return types if _is_ours(constructor) else None


def _constructor(task: TaskLike) -> Callable[..., Any]:
    """The class of a task, or the function that makes it."""
    found = resolve(task)
    if isinstance(found, str):
        found = gym.spec(found)
    if not isinstance(found, EnvSpec):
        return found
    entry_point = found.entry_point
    if isinstance(entry_point, str):
        return load_env_creator(entry_point)
    assert entry_point is not None
    return entry_point


def _parts(constructor: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The functions that arguments go to: a class hands those that it does not name to the class it derives from."""
    if not inspect.isclass(constructor):
        yield constructor
        return
    for base in constructor.__mro__:
        # A task of ours replaces the rewards of the simulation it derives from, so that most arguments of that are
        # without effect.
        if _is_ours(constructor) and not _is_ours(base):
            return
        if "__init__" in vars(base) and base is not object:
            yield vars(base)["__init__"]


def _is_ours(constructor: Callable[..., Any]) -> bool:
    return constructor.__module__.startswith("sasr.tasks.")


def _is_open(function: Callable[..., Any]) -> bool:
    """Whether a function takes arguments of any name."""
    return any(own.kind is own.VAR_KEYWORD for own in inspect.signature(function).parameters.values())


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # names that only a type checker imports
        return {}


def _type(hint: Any, default: Any) -> Any:
    """The type of an argument from its annotation, else from its default; None where text can't give its value."""
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
