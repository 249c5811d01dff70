"""A population of environments: E for each of P seeds, stepped in worker processes or in this one."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.envs import shared_memory as shared
from sasr.envs.replayable import Stepper, check_saved
from sasr.envs.shared_memory import Arrays, Board, BoardShape
from sasr.envs.worker_pool import Build, Place, RunnerError, WorkerPool, cores
from sasr.randomness import stream_seed
from sasr.tasks.environment import Env, TaskLike, close_environment, make, resolve, task_name

PATIENCE = 60.0
"""Seconds after which a warning names an environment or a worker that does not answer."""

# A round of steps that takes fewer seconds is stepped in this process: workers would take as long.
_CHEAP_ROUND = 200e-6


class PopulationError(RuntimeError):
    """An environment raised or its worker died; the message has the task, the seed and the worker's traceback."""


class Step(NamedTuple):
    """The result of one action in each environment. P seeds, E environments each."""

    observation: NDArray[Any]  # (P, E, *shape) the current one: after the end of an episode, the start of the next
    reward: NDArray[np.float32]  # (P, E)
    terminated: NDArray[np.bool_]  # (P, E) the task ended; a time limit is not in here
    truncated: NDArray[np.bool_]  # (P, E) the time limit cut the episode
    final_observation: NDArray[Any]  # (P, E, *shape) before any reset; differs from `observation` only at an end
    success: NDArray[np.bool_]  # (P, E) info["is_success"], False where a task has none
    info: Mapping[str, NDArray[np.float64]]  # key: (P, E), of `info_keys`; NaN where a step had none


class InProcess:
    """Steps all environments in this process, when they are waited for."""

    def __init__(self, shape: BoardShape, build: Build, info_keys: tuple[str, ...]) -> None:
        self.board = Board(shape)
        self.environments = range(shape.environments)
        self.requests = 0
        self.processes: list[subprocess.Popen[bytes]] = []
        with self._errors_with_place():
            self.stepper = Stepper(build, self.environments, self.board, info_keys)

    def request(self, command: int) -> None:
        """Remember what `wait` will do."""
        self.requests += 1
        self._command = command

    def wait(self) -> None:
        """Carry out the request."""
        with self._errors_with_place():
            if self._command == shared.STEP:
                self.stepper.step()
            else:
                self.stepper.reset()

    def late(self) -> Place | None:
        """The environment that is being stepped."""
        place = self._place
        return None if place.busy_with == shared.IDLE else place

    def save(self) -> dict[str, NDArray[Any]]:
        """The memories of all environments."""
        with self._errors_with_place():
            return self.stepper.save()

    def restore(self, saved: Arrays) -> None:
        """Restore all environments."""
        with self._errors_with_place():
            self.stepper.restore(saved)

    def close(self) -> None:
        """Close the environments."""
        self.stepper.close()

    @property
    def _place(self) -> Place:
        return Place(None, self.environments, self.board.read(0, shared.BUSY_WITH))

    @contextmanager
    def _errors_with_place(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = f": {error}" if str(error) else ""
            raise RunnerError(self._place, f"raised {type(error).__name__}{text}") from error


class Population:
    """P x E environments of one task that step together: `send` actions, learn meanwhile, `receive` the results.

    Each environment has its random stream, derived from its seed and its index, so what a seed sees depends neither on
    the other seeds nor on the number of workers.

    >>> with Population("MountainCar", seeds=[0, 1], workers=0) as population:
    ...     start = population.reset()
    ...     step = population.step(np.zeros((2, 1, 1), np.float32))
    >>> start.shape, step.reward.shape
    ((2, 1, 2), (2, 1))
    """

    def __init__(
        self,
        task: TaskLike,
        *,
        seeds: Sequence[int],
        environments: int = 1,
        workers: int | None = None,
        info_keys: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        """Make the environments.

        Args:
            task: As for `make`.
            seeds: P seeds.
            environments: E, for each seed.
            workers: Processes; 0 steps in this process, None chooses by the cost of a step and the cores.
            info_keys: Numbers in `info` to return with each step, such as "game_score".
            kwargs: Arguments of the task, as for `make`.
        """
        self.seeds = _checked_seeds(seeds)
        self.members = len(self.seeds)
        self.environments = _at_least(environments, 1, "environments", "each seed")
        self.info_keys = tuple(info_keys)
        self.task = task_name(task)
        build = partial(make, resolve(task), **kwargs)
        probe = build()
        self.observation_space, self.action_space = _checked_spaces(self.task, probe)
        registered = probe.spec.max_episode_steps if probe.spec else None
        self.time_limit: int | None = kwargs.get("max_episode_steps", registered)
        """The time limit of episodes in steps; None if unknown."""
        self.workers = self._choose_workers(workers, probe)
        close_environment(probe)
        self.pending = False
        self._started = False
        self._watched = False
        self._closed_because = ""
        self.runner: InProcess | WorkerPool | None = None
        with self._errors_with_seed():
            self.runner = self._make_runner(build)
        self._board = self.runner.board

    def _make_runner(self, build: partial[Env]) -> InProcess | WorkerPool:
        observation, action = self.observation_space, self.action_space
        shape = BoardShape(
            environments=self.members * self.environments,
            workers=max(self.workers, 1),
            observation=observation.shape,
            observation_dtype=np.dtype(observation.dtype).str,
            action=action.shape or (),
            action_dtype=np.dtype(action.dtype).str,
            infos=len(self.info_keys),
        )
        if self.workers:
            return WorkerPool(self.workers, shape, build, self.info_keys)
        return InProcess(shape, build, self.info_keys)

    def reset(self, stream: str = "environment") -> NDArray[Any]:
        """Start all environments from their seeds; (P, E, *shape). Each `stream` gives other start states."""
        runner = self._open_runner()
        if self.pending:
            self._wait()
        streams = [f"{stream}/{environment}" for environment in range(self.environments)]
        self._board.seed[:] = [stream_seed(seed, name) for seed in self.seeds for name in streams]
        self._started = True
        self._request(runner, shared.RESET)
        self._wait()
        return self._by_seed(self._board.observation)

    def send(self, actions: NDArray[Any]) -> None:
        """Send every environment its action, (P, E, *shape), and return while they step."""
        runner = self._open_runner()
        if not self._started:
            raise RuntimeError("send() before reset(): call reset() first, it returns the first observations")
        if self.pending:
            raise RuntimeError("send() twice: call receive() for the step that is under way first")
        checked = self._checked_actions(actions)
        self._board.action[:] = checked.reshape(self._board.action.shape)
        self._request(runner, shared.STEP)

    def receive(self) -> Step:
        """Wait for the step that `send` began; the arrays are copies."""
        self._open_runner()
        if not self.pending:
            raise RuntimeError("receive() without send(): there is no step to wait for")
        self._wait()
        board = self._board
        return Step(
            observation=self._by_seed(board.observation),
            reward=self._by_seed(board.reward),
            terminated=self._by_seed(board.terminated),
            truncated=self._by_seed(board.truncated),
            final_observation=self._by_seed(board.final_observation),
            success=self._by_seed(board.success),
            info={key: self._by_seed(board.info[k]) for k, key in enumerate(self.info_keys)},
        )

    def step(self, actions: NDArray[Any]) -> Step:
        """`send`, then `receive`."""
        self.send(actions)
        return self.receive()

    def save(self) -> dict[str, NDArray[Any]]:
        """The start and the actions of the current episodes, as plain arrays; see `restore`."""
        runner = self._idle_runner("save()")
        with self._errors_with_seed():
            return runner.save()

    def restore(self, saved: Arrays) -> NDArray[np.bool_]:
        """Return to a saved moment by replaying the episodes; `observation` has the current observations then.

        Returns (P, E): the episodes that had to restart, because their replay gave other observations.
        """
        self._check_saved(saved)
        self._started = True
        runner = self._idle_runner("restore()")
        with self._errors_with_seed():
            runner.restore(saved)
        return self._by_seed(self._board.restarted)

    @property
    def observation(self) -> NDArray[Any]:
        """The current observation of each environment, (P, E, *shape)."""
        self._idle_runner("observation")
        return self._by_seed(self._board.observation)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The workers' processes."""
        return self.runner.processes if self.runner else []

    @property
    def closed(self) -> bool:
        """Whether it was closed, by `close` or after an error."""
        return bool(self._closed_because)

    def close(self) -> None:
        """Close the environments and end the workers; a second call does nothing."""
        if self.closed:
            return
        self._closed_because = "it was closed"
        if self.runner:
            self.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _choose_workers(self, asked: int | None, probe: Env) -> int:
        total = self.members * self.environments
        if asked is not None:
            _at_least(asked, 0, "workers", "the population; 0 steps in this process")
            if asked > total:
                warnings.warn(
                    f"workers={asked} is more than the {total} environments; {total} are started", stacklevel=3
                )
            return min(asked, total)
        available = cores()
        if total == 1 or available == 1 or sys.platform == "win32":
            return 0
        if total * _step_seconds(probe) < _CHEAP_ROUND:
            return 0
        return min(total, available)

    def _request(self, runner: InProcess | WorkerPool, command: int) -> None:
        if not self._watched:
            self._watched = True
            threading.Thread(target=_report_silence, args=(weakref.ref(self),), daemon=True).start()
        self.pending = True
        runner.request(command)

    def _wait(self) -> None:
        with self._errors_with_seed():
            self._open_runner().wait()
        self.pending = False

    @contextmanager
    def _errors_with_seed(self) -> Iterator[None]:
        """Close the population on an error, and add the task, the worker and the seed to its message."""
        try:
            yield
        except RunnerError as error:
            self.close()
            worker = error.place.worker
            self._closed_because = error.how if worker is None else f"worker {worker} {error.how}"
            where = f"{self.task}: {self._describe(error.place)}"
            raise PopulationError(f"{where}, {error.how}{error.details}") from error.__cause__

    def unanswered(self) -> tuple[int, str]:
        """The number of the last request, and which worker has not answered it yet; empty if none has to."""
        if self.closed or self.runner is None:
            return 0, ""
        late = self.runner.late() if self.pending else None
        return self.runner.requests, self._describe(late) if late else ""

    def _describe(self, place: Place) -> str:
        environment = ""
        if place.busy_with != shared.IDLE:
            environment = self._describe_environment(place.busy_with)
        if place.worker is None:
            return environment
        if environment:
            return f"worker {place.worker}, busy with {environment}"
        first = self._describe_environment(place.environments[0])
        last = self._describe_environment(place.environments[-1])
        return f"worker {place.worker}, which steps {first} to {last}"

    def _describe_environment(self, index: int) -> str:
        seed_index, environment = divmod(index, self.environments)
        return f"seed {self.seeds[seed_index]}, environment {environment}"

    def _by_seed(self, flat: NDArray[Any]) -> NDArray[Any]:
        """A copy with separate axes P and E."""
        return flat.reshape(self.members, self.environments, *flat.shape[1:]).copy()

    def _open_runner(self) -> InProcess | WorkerPool:
        if self.runner is None or self.closed:
            raise RuntimeError(f"this population of {self.task} is closed: {self._closed_because}")
        return self.runner

    def _idle_runner(self, name: str) -> InProcess | WorkerPool:
        runner = self._open_runner()
        if not self._started:
            raise RuntimeError(f"{name} before reset(): no episode is under way yet")
        if self.pending:
            raise RuntimeError(f"{name} in the middle of a step: call receive() for the one that is under way first")
        return runner

    def _check_saved(self, saved: Arrays) -> None:
        total = self.members * self.environments
        saved_total = len({key.partition(".")[0] for key in saved})
        if saved_total != total:
            raise ValueError(
                f"this is the memory of {saved_total} environments, but the population has {total}: "
                "make it with the same seeds and environments as the saved one"
            )
        for index in range(total):
            check_saved(shared.arrays_of(saved, index), index)

    def _checked_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        space = self.action_space
        actions = np.asarray(actions)
        expected = (self.members, self.environments, *(space.shape or ()))
        if actions.shape != expected:
            raise ValueError(
                f"actions have shape {actions.shape}, {self.task} needs {expected}: "
                "(seeds, environments, *action shape)"
            )
        integers = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        if actions.dtype.kind not in ("iu" if integers else "iufb"):
            raise TypeError(f"actions are {actions.dtype}, {self.task} needs {space.dtype}")
        # Before the comparison: 0.7 exceeds a bound of float32(0.7).
        actions = actions.astype(space.dtype, copy=False)
        low, high = _bounds(space)
        inside = (actions >= low) & (actions <= high)  # NaN is not
        if not inside.all():
            index = tuple(np.argwhere(~inside)[0].tolist())
            low, high = np.broadcast_to(low, expected), np.broadcast_to(high, expected)
            raise self._outside(actions[index], low[index], high[index], index)
        return actions

    def _outside(self, value: Any, low: Any, high: Any, index: tuple[int, ...]) -> ValueError:
        seed_index, environment, *entry = index
        who = self._describe_environment(seed_index * self.environments + environment)
        where = ""
        if entry:
            where = f" at index {entry[0] if len(entry) == 1 else tuple(entry)}"
        reason = "the agent has diverged" if np.isnan(value) else "the agent must clip it"
        return ValueError(f"the action of {who} is {value!s}{where}, outside [{low}, {high}]; {reason}")


def _report_silence(reference: weakref.ref[Population]) -> None:
    """Warn of a request without an answer for a while, as long as the population exists.

    It runs in a thread, since the waiting thread may be in the environment's code.
    """
    last_request = 0
    since = time.monotonic()
    while True:
        time.sleep(PATIENCE / 60)
        population = reference()
        if population is None or population.closed:
            return
        request, who = population.unanswered()
        now = time.monotonic()
        if request != last_request or not who:
            last_request = request
            since = now
        elif now - since >= PATIENCE:
            since = math.inf  # once is enough
            warnings.warn(f"{population.task}: {who} has not answered for {PATIENCE:g} seconds", stacklevel=1)
        del population


def _step_seconds(probe: Env) -> float:
    """The median seconds of a step, on an instance that is not used otherwise."""
    probe.reset(seed=0)
    probe.action_space.seed(0)
    seconds = []
    for _ in range(10):
        action = probe.action_space.sample()
        start = time.perf_counter()
        _, _, terminated, truncated, _ = probe.step(action)
        seconds.append(time.perf_counter() - start)
        if terminated or truncated:
            probe.reset()
    return statistics.median(seconds)


def _bounds(space: spaces.Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def _checked_spaces(task: str, env: Env) -> tuple[spaces.Box, spaces.Space[Any]]:
    observation, action = env.observation_space, env.action_space
    assert isinstance(observation, spaces.Box)  # `make` brings every observation to this form
    if not isinstance(action, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise TypeError(f"{task}: actions of {action} are not a plain array; flatten them with a wrapper")
    return observation, action


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        raise TypeError(f"seeds={seeds} must be a list of seeds, such as range({seeds})")
    _at_least(len(seeds), 1, "len(seeds)", "the population")
    for seed in seeds:
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seeds has {seed!r}; a seed is an integer that is not negative")
    return tuple(int(seed) for seed in seeds)


def _at_least(value: int, least: int, name: str, of: str) -> int:
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer of at least {least} for {of}")
    return int(value)
