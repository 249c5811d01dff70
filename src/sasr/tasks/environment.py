"""Making tasks, by name, Gymnasium id or function, with flat observations and checks of Gymnasium's contract."""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import numbers
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
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
TaskLike = str | EnvSpec | Env | Callable[..., Env]
"""A short name, a Gymnasium id, `module:Id`, `module:function`, a Gymnasium spec, an environment, or a function that
makes one."""
OBJECT = "()"
"""The end of a task's text if no text can make it again: a lambda or an environment."""

Predicate = Callable[[Env, Any, dict[str, Any]], bool]
"""`predicate(unwrapped_env, observation, info)`: whether this step is a success."""

GOAL_PARTS = ("observation", "achieved_goal", "desired_goal")
"""The parts of a goal observation, in the order that the authors' networks see them."""

_PLUGINS = ("gymnasium_robotics", "ale_py")  # their ids exist only after an import


def make(task: TaskLike, **kwargs: Any) -> Env:
    """Make a task; observations are one float32 vector or a uint8 image, and rewards are the environment's.

    `kwargs` go to the environment, except `max_episode_steps`, which replaces its registered time limit.

    >>> make("MountainCar").reset(seed=0)[0].dtype
    dtype('float32')
    """
    if kwargs.get("render_mode"):
        rendering.choose()
    source = resolve(task)
    if isinstance(source, str):
        return gym.make(source, **kwargs)
    if isinstance(source, EnvSpec):
        build = partial(gym.make, source, disable_env_checker=True, **kwargs)
        return flattened(Contract(_constructed(source.id, build)))
    time_limit = kwargs.pop("max_episode_steps", None)
    mode = kwargs.get("render_mode")
    if mode is not None and not _takes(source, "render_mode"):
        kwargs.pop("render_mode")
    env: Env = Contract(_constructed(task_name(source), partial(source, **kwargs)))
    if mode is not None and env.render_mode != mode:
        raise ValueError(
            f"{task_name(source)} makes an environment with render_mode={env.render_mode!r}, but {mode!r} is needed; "
            "give the function an argument render_mode and pass it on"
        )
    if time_limit is not None:
        env = TimeLimit(env, time_limit)
    return flattened(env)


def picklable(thing: Any) -> bytes:
    """An environment or a function as bytes; code from a script or a notebook is included."""
    import cloudpickle

    packed: bytes = cloudpickle.dumps(thing)
    return packed


def close_environment(env: Env) -> None:
    """Close an environment; an error in it is only a warning, since its work is done."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"{_name(env)}: close() raised {type(error).__name__}: {error}", stacklevel=2)


def resolve(task: TaskLike) -> str | EnvSpec | Callable[..., Env]:
    """From what another process can make the task: an id of the catalogue, a spec, or a function."""
    if isinstance(task, gym.Env):
        return Copies(task)
    if isinstance(task, EnvSpec):
        return task
    if not isinstance(task, str):
        if not callable(task):
            raise TypeError(
                f"task={task!r} must be a name, a Gymnasium id, an environment or a function that makes one"
            )
        return task
    id = full_id(task)
    if id in VARIANTS:
        return id
    source = _named(id)
    if not isinstance(source, EnvSpec):
        return resolve(source)
    if isinstance(source.entry_point, str) and source.entry_point.startswith("__main__:"):
        # Another process has another __main__, so the class itself is sent.
        return replace(source, entry_point=cast(Any, load_env_creator(source.entry_point)))
    return source


def task_name(task: TaskLike) -> str:
    """The task's name in messages."""
    if isinstance(task, EnvSpec):
        return task.id
    if isinstance(task, gym.Env):
        return _name(task)
    if isinstance(task, str):
        return full_id(task)
    return getattr(task, "__name__", type(task).__name__)


def task_text(task: TaskLike) -> str:
    """A task's text in a run's settings: one that can make it again, or a name followed by ().

    >>> task_text("MountainCar"), task_text(sparse), task_text(lambda: gym.make("Pendulum-v1"))
    ('MountainCar', 'sasr.tasks.environment:sparse', 'lambda()')
    """
    if isinstance(task, str):
        return task
    if isinstance(task, EnvSpec):
        if gym.registry.get(task.id) is task:
            return task.id
        return f"{task.id}{OBJECT}"
    name = task_name(task)
    module = sys.modules.get(getattr(task, "__module__", ""))
    if callable(task) and getattr(module, name, None) is task and _importable_name(module):
        return f"{_importable_name(module)}:{name}"
    return f"{name.strip('<>')}{OBJECT}"


def _importable_name(module: Any) -> str:
    """The name under which another process can import a module: for a script its file's; empty if there is none."""
    if module.__name__ != "__main__":
        return str(module.__name__)
    file = Path(getattr(module, "__file__", None) or "")
    if file.suffix == ".py" and file.stem.isidentifier():
        return file.stem
    return ""


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes an argument of this name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # raised for some functions written in C
        return True
    return name in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


class Copies:
    """A function that makes copies of an environment."""

    def __init__(self, env: Env) -> None:
        self.__name__ = _name(env)
        try:
            self.packed = picklable(env)
            self().close()
        except Exception as error:
            raise TypeError(
                f"this {self.__name__} can't be copied ({type(error).__name__}: {error}), and a run needs several; "
                "give a function that makes it, such as lambda: gym.make(…)"
            ) from error

    def __call__(self) -> Env:
        """Make a copy."""
        env: Env = pickle.loads(self.packed)
        return env


def flattened(env: Env) -> Env:
    """The environment with flat float32 observations; images stay as they are."""
    space = env.observation_space
    if isinstance(space, spaces.Box) and space.dtype in (np.float32, np.uint8):
        return env
    return Flat(env)


def sparse(env: Env, predicate: Predicate, *, end_on_success: bool = False) -> Env:
    """The same task with reward 1.0 on steps for which `predicate(unwrapped_env, observation, info)`, otherwise 0.0.

    >>> env = sparse(gym.make("Pendulum-v1"), lambda env, observation, info: observation[0] > 0.99)
    >>> _ = env.reset(seed=0)
    >>> env.step(env.action_space.sample())[1]
    0.0
    """
    return Sparse(env, predicate, end_on_success=end_on_success)


def _named(id: str) -> EnvSpec | Env | Callable[..., Env]:
    """The spec of a Gymnasium id, or the function or environment with a name in a module."""
    module, _, name = id.rpartition(":")
    if id.endswith(OBJECT):
        raise ValueError(
            f"the task {id} was given as an object, which a run folder cannot store: give it again, as in "
            "sasr.resume(run, task=…); commands need a function in a module: sasr train module:function"
        )
    if module:
        try:
            import_module(module)
        except ImportError as error:
            raise ImportError(f"task {id!r}: {error}") from error
        maker: Any = getattr(sys.modules[module], name, None)
        if name not in gym.registry and maker is not None:
            if not callable(maker) and not isinstance(maker, gym.Env):
                raise TypeError(f"{id} is {_shortly(maker)}, but must be a function that makes an environment")
            return cast(Env | Callable[..., Env], maker)
    reasons = []
    printed = io.StringIO()  # messages of plugins, shown only if the name is right
    with contextlib.redirect_stderr(printed):
        if name not in gym.registry:
            reasons += [import_plugin(plugin) for plugin in _PLUGINS]
    if module:
        file = getattr(sys.modules[module], "__file__", None) or f"the module {module}"
        reasons.append(f"{file} has no function of that name either")
    try:
        spec = gym.spec(name)
    except gym.error.Error as error:
        if name in gym.registry:
            raise
        raise unknown(id, [*BY_NAME, *gym.registry], "; ".join(filter(None, reasons))) from error
    sys.stderr.write(printed.getvalue())
    return spec


class Sparse(gym.Wrapper[Any, Any, Any, Any]):
    """Rewards by a predicate; see `sparse`."""

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
        """Step; the reward is the predicate of the new state."""
        observation, _, terminated, truncated, info = self.env.step(action)
        success = self.predicate(self.env.unwrapped, observation, info)
        if not isinstance(success, bool | np.bool_):
            raise TypeError(f"the predicate must return True or False, it returned {success!r}")
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
        self.has_goal = False
        if isinstance(space, spaces.Dict) and set(space.spaces) == set(GOAL_PARTS):
            self.has_goal = True
            space = spaces.Tuple([space[part] for part in GOAL_PARTS])
        flat = spaces.flatten_space(space)
        assert isinstance(flat, spaces.Box)
        self.space = space
        self.shape = space.shape if isinstance(space, spaces.Box) and space.shape else flat.shape
        low, high = (bound.astype(np.float32).reshape(self.shape) for bound in (flat.low, flat.high))
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: Any) -> NDArray[Any]:
        """One vector."""
        if self.has_goal:
            observation = tuple(observation[part] for part in GOAL_PARTS)
        return np.asarray(spaces.flatten(self.space, observation), np.float32).reshape(self.shape)


class Contract(gym.Wrapper[Any, Any, Any, Any]):
    """Raises at the first breach of Gymnasium's contract, with the broken rule."""

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
        """Reset, and check what it returns."""
        result = self.env.reset(seed=seed, options=options)
        if not isinstance(result, tuple) or len(result) != 2:
            self._broken(f"reset() must return (observation, info), it returned {_shortly(result)}")
        self._check_observation("reset()", result[0])
        self._check_info("reset()", result[1])
        return result

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and check what it returns."""
        result = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            self._broken(
                f"step() must return (observation, reward, terminated, truncated, info), it returned {_shortly(result)}"
            )
        observation, reward, terminated, truncated, info = result
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
        # Checked once for each method: on every step the check could cost more than the step.
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
    """Call a constructor; any exception of it becomes an error that names the task."""
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
    if len(text) > 80:
        text = f"{text[:80]}…"
    type_name = type(value).__name__
    if isinstance(value, tuple | list):
        type_name = f"{type_name} of length {len(value)}"
    return f"a {type_name}: {text}"
