"""The one entry point for tasks: ours by short name, anybody's by Gymnasium id, brought to one form of observation."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from sasr.tasks import rendering
from sasr.tasks.catalogue import BY_NAME, VARIANTS, full_id, unknown
from sasr.tasks.modules import import_module, import_plugin

Env = gym.Env[Any, Any]
TaskLike = str | EnvSpec | Callable[..., Env]
"""A short name, a Gymnasium id (also `module:Id`), a Gymnasium spec, or a function that makes an environment."""

Predicate = Callable[[Env, Any, dict[str, Any]], bool]
"""`predicate(unwrapped_env, observation, info)`: has this step reached what the task is about?"""

_PLUGINS = ("gymnasium_robotics", "ale_py")  # their ids exist only after an import


def make(task: TaskLike, **kwargs: Any) -> Env:
    """Make a task: observations come as one float32 vector (or uint8 image), the reward as the environment has it.

    `kwargs` go to the environment, but for `max_episode_steps`, which cuts episodes there in place of the time limit
    that the environment is registered with.

    >>> make("MountainCar").reset(seed=0)[0].dtype
    dtype('float32')
    """
    if kwargs.get("render_mode"):
        rendering.choose()
    found = resolve(task)
    if isinstance(found, str):
        return gym.make(found, **kwargs)
    if isinstance(found, EnvSpec):
        build = partial(gym.make, found, disable_env_checker=True, **kwargs)
        return one_form(Contract(_constructed(found.id, build)))
    limit = kwargs.pop("max_episode_steps", None)
    env = Contract(_constructed(task_name(found), partial(found, **kwargs)))
    return one_form(env if limit is None else TimeLimit(env, limit))


def close_environment(env: Env) -> None:
    """Close an environment that has done its work; where it can't, that is a warning."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"{_name(env)}: close() raised {type(error).__name__}: {error}", stacklevel=2)


def resolve(task: TaskLike) -> TaskLike:
    """What another process can make the task from: the id of one of ours, the spec of another, or the function."""
    if not isinstance(task, str | EnvSpec) and not callable(task):
        raise TypeError(f"task={task!r} must be a name, a Gymnasium id or a function that makes an environment")
    if not isinstance(task, str):
        return task
    id = full_id(task)
    if id in VARIANTS:
        return id
    spec = _spec(id)
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
        # Another process has another __main__; the class itself can travel.
        spec = replace(spec, entry_point=cast(Any, load_env_creator(spec.entry_point)))
    return spec


def task_name(task: TaskLike) -> str:
    """How messages call the task."""
    if isinstance(task, EnvSpec):
        return task.id
    return full_id(task) if isinstance(task, str) else getattr(task, "__name__", repr(task))


def one_form(env: Env) -> Env:
    """Flatten what is no plain array, and make float64 float32; an image stays an image."""
    space = env.observation_space
    if isinstance(space, spaces.Box) and space.dtype in (np.float32, np.uint8):
        return env
    return Flat(env)


def sparse(env: Env, predicate: Predicate, *, end_on_success: bool = False) -> Env:
    """The same task paid 1.0 on each step for which `predicate(unwrapped_env, observation, info)` holds, else 0.0.

    >>> env = sparse(gym.make("Pendulum-v1"), lambda env, observation, info: observation[0] > 0.99)
    >>> _ = env.reset(seed=0)
    >>> env.step(env.action_space.sample())[1]
    0.0
    """
    return Sparse(env, predicate, end_on_success=end_on_success)


def _spec(id: str) -> EnvSpec:
    module, _, name = id.rpartition(":")
    if module:
        try:
            import_module(module)
        except ImportError as error:
            raise ImportError(f"task {id!r}: {error}") from error
    reasons = [import_plugin(plugin) for plugin in _PLUGINS] if name not in gym.registry else []
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        if name in gym.registry:
            raise
        raise unknown(id, [*BY_NAME, *gym.registry], "; ".join(filter(None, reasons))) from error


class Sparse(gym.Wrapper[Any, Any, Any, Any]):
    """Pays by a predicate; see `sparse`."""

    def __init__(self, env: Env, predicate: Predicate, *, end_on_success: bool = False) -> None:
        super().__init__(env)
        if not callable(predicate):
            raise TypeError(f"predicate={predicate!r} must be a function of (unwrapped_env, observation, info)")
        self.predicate = predicate
        self.end_on_success = end_on_success
        self.success_ever = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self.success_ever = False
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, then ask the predicate about where that led."""
        observation, _, terminated, truncated, info = self.env.step(action)
        success = self.predicate(self.env.unwrapped, observation, info)
        if not isinstance(success, bool | np.bool_):
            raise TypeError(f"the predicate must say True or False, it said {success!r}")
        self.success_ever |= bool(success)
        info = {**info, "is_success": bool(success), "success_ever": self.success_ever}
        ended = bool(terminated) or (self.end_on_success and bool(success))
        return observation, float(success), ended, truncated, info


class Flat(gym.ObservationWrapper[NDArray[Any], Any, Any]):
    """Observations as one float32 vector; a goal observation in the order observation, achieved goal, desired goal."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        space = env.observation_space
        if not space.is_np_flattenable:
            raise TypeError(f"{_name(env)}: observations of {space} have no fixed length, so they cannot be a vector")
        self._parts = self._order(space)
        flat = [spaces.flatten_space(part) for part in self._spaces()]
        boxes = [part for part in flat if isinstance(part, spaces.Box)]
        shape = space.shape if isinstance(space, spaces.Box) and space.shape else None
        low = np.concatenate([box.low.ravel() for box in boxes]).astype(np.float32)
        high = np.concatenate([box.high.ravel() for box in boxes]).astype(np.float32)
        self._shape = shape or low.shape
        self.observation_space = spaces.Box(low.reshape(self._shape), high.reshape(self._shape), dtype=np.float32)

    def observation(self, observation: Any) -> NDArray[Any]:
        """One vector."""
        if not self._parts:
            whole = spaces.flatten(self.env.observation_space, observation)
            return np.asarray(whole, np.float32).reshape(self._shape)
        told = [np.asarray(spaces.flatten(s, observation[k])) for k, s in zip(self._parts, self._spaces(), strict=True)]
        return np.concatenate(told).astype(np.float32)

    @staticmethod
    def _order(space: spaces.Space[Any]) -> tuple[str, ...]:
        goals = ("observation", "achieved_goal", "desired_goal")
        return goals if isinstance(space, spaces.Dict) and set(space.spaces) == set(goals) else ()

    def _spaces(self) -> list[spaces.Space[Any]]:
        space = self.env.observation_space
        return [space[part] for part in self._parts] if isinstance(space, spaces.Dict) and self._parts else [space]


class Contract(gym.Wrapper[Any, Any, Any, Any]):
    """Stops at the first breach of Gymnasium's contract and says which rule was broken."""

    def __init__(self, env: Env) -> None:
        if not isinstance(env, gym.Env):
            raise TypeError(f"a task must be a gymnasium.Env; {env!r} is a {type(env).__name__}")
        super().__init__(env)
        for attribute in ("observation_space", "action_space"):
            space = getattr(env, attribute, None)
            if not isinstance(space, spaces.Space):
                self._broken(f"{attribute} must be a gymnasium space, it is {space!r}")
        self._checked: set[str] = set()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and check what came back."""
        told = self.env.reset(seed=seed, options=options)
        if not isinstance(told, tuple) or len(told) != 2:
            self._broken(f"reset() must return (observation, info), it returned {_shortly(told)}")
        self._check_observation("reset()", told[0])
        self._check_info("reset()", told[1])
        return told

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and check what came back."""
        told = self.env.step(action)
        if not isinstance(told, tuple) or len(told) != 5:
            self._broken(
                f"step() must return (observation, reward, terminated, truncated, info), it returned {_shortly(told)}"
            )
        observation, reward, terminated, truncated, info = told
        self._check_observation("step()", observation)
        if not isinstance(reward, numbers.Real | np.number):
            self._broken(f"step() must return the reward as a number, it returned {_shortly(reward)}")
        if not math.isfinite(reward):
            self._broken(f"step() must return a finite reward, it returned {reward!r}")
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                self._broken(f"step() must return {name} as a bool, it returned {_shortly(flag)}")
        self._check_info("step()", info)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def _check_observation(self, method: str, observation: Any) -> None:
        space = self.env.observation_space
        # Whether a value lies in its space is asked once a method: on every step it could cost more than the step.
        if method not in self._checked and observation not in space:
            self._broken(f"{method} must return an observation in {space}, it returned {_shortly(observation)}")
        self._checked.add(method)
        if isinstance(space, spaces.Box) and np.shape(observation) != space.shape:
            self._broken(f"{method} must return observations of shape {space.shape}, not {np.shape(observation)}")

    def _check_info(self, method: str, info: Any) -> None:
        if not isinstance(info, dict):
            self._broken(f"{method} must return info as a dict, it returned {_shortly(info)}")

    def _broken(self, rule: str) -> None:
        raise ValueError(f"{_name(self.env)} breaks Gymnasium's contract: {rule}")


def _constructed(name: str, construct: Callable[[], Env]) -> Env:
    """What a constructor of others makes; whatever it raises becomes an error that names the task."""
    try:
        return construct()
    except gym.error.DependencyNotInstalled as error:
        raise ImportError(f"{name} needs a package that is missing: {error}") from error
    except Exception as error:
        raise ValueError(f"{name} can't be made: {type(error).__name__}: {error}") from error


def _name(env: Env) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def _shortly(value: Any) -> str:
    text = repr(value)
    kind = f"{type(value).__name__} of length {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
    return f"a {kind}: {text[:80] + '…' if len(text) > 80 else text}"
