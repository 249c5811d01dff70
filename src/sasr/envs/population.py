"""A population of environments: P members with E environments each, stepped in worker processes or in this one."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.envs import shared_memory as shared
from sasr.envs.replayable import Stepper, check_memory
from sasr.envs.shared_memory import Bell, Board, BoardShape
from sasr.envs.worker import Brief
from sasr.randomness import stream_seed
from sasr.tasks.environment import Env, TaskLike, close_environment, make, picklable, resolve, task_name

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from sasr.envs.worker import main; main()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

PATIENCE = 60.0
"""Seconds after which an environment or a worker that does not answer is named."""
_LOOK = 1.0  # seconds between looks

# A round that is cheaper than this is stepped in this process: handing it over would cost as much.
_CHEAP_ROUND = 200e-6


class PopulationError(RuntimeError):
    """An environment raised or its worker died; the message has the task, the member and the worker's traceback."""


class Step(NamedTuple):
    """What one action each led to. P members, E environments each."""

    observation: NDArray[Any]  # (P, E, *shape) where each environment stands now: after an end, a new episode's start
    reward: NDArray[np.float32]  # (P, E)
    terminated: NDArray[np.bool_]  # (P, E) the task ended; a time limit is not in here
    truncated: NDArray[np.bool_]  # (P, E) the time limit cut the episode
    final_observation: NDArray[Any]  # (P, E, *shape) where the action led; differs from `observation` only at an end
    success: NDArray[np.bool_]  # (P, E) info["is_success"], False where a task has none
    info: Mapping[str, NDArray[np.float64]]  # key: (P, E), of the keys asked for; NaN where a step had none


class Population:
    """P x E environments of one task that step together: `send` actions, learn meanwhile, `receive` what happened.

    An environment draws from a stream of its own, derived from its member's seed and its place within the member, so
    what a member lives through depends neither on the other members nor on the number of workers.

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
            seeds: One for each member.
            environments: E, for each member.
            workers: Processes; 0 steps in this process, None chooses by what a step costs and by the cores.
            info_keys: Numbers of `info` to deliver with each step, such as "game_score".
            kwargs: Arguments of the task, as for `make`.
        """
        self.seeds = _checked_seeds(seeds)
        self.members, self.environments = len(self.seeds), _at_least(environments, 1, "environments", "each member")
        self.info_keys = tuple(info_keys)
        self.task = task_name(task)
        build = partial(make, resolve(task), **kwargs)
        probe = build()
        self.observation_space, self.action_space = _checked_spaces(self.task, probe)
        registered = probe.spec.max_episode_steps if probe.spec else None
        self.time_limit: int | None = kwargs.get("max_episode_steps", registered)
        """Steps that episodes are cut after; None where that is not known."""
        self.workers = self._choose_workers(workers, probe)
        close_environment(probe)
        self.pending = self._started = self._watched = False
        self._closed = ""
        self._request = 0
        self._next_look = 0.0
        self._open(build)

    def reset(self, stream: str = "environment") -> NDArray[Any]:
        """Start all environments from their seeds; (P, E, *shape). Another `stream` gives other starts, as fixed."""
        self._check_open()
        if self.pending:
            self._await()
        self._board.seed[:] = [
            stream_seed(seed, f"{stream}/{place}") for seed in self.seeds for place in range(self.environments)
        ]
        self._started = True
        self._command(shared.RESET)
        self._await()
        return self._told(self._board.observation)

    def send(self, actions: NDArray[Any]) -> None:
        """Give every environment its action, (P, E, *shape), and come back while they step."""
        self._check_open()
        if not self._started:
            raise RuntimeError("send() before reset(): call reset() once, it gives the first observations")
        if self.pending:
            raise RuntimeError("send() twice: call receive() for the step that is under way first")
        checked = self._checked_actions(actions)
        self._board.action[:] = checked.reshape(self._board.action.shape)
        self._command(shared.STEP)

    def receive(self) -> Step:
        """Wait for the step that `send` began; the arrays are the caller's own."""
        self._check_open()
        if not self.pending:
            raise RuntimeError("receive() without send(): there is no step to wait for")
        self._await()
        board = self._board
        return Step(
            self._told(board.observation),
            self._told(board.reward),
            self._told(board.terminated),
            self._told(board.truncated),
            self._told(board.final_observation),
            self._told(board.success),
            {key: self._told(board.info[k]) for k, key in enumerate(self.info_keys)},
        )

    def step(self, actions: NDArray[Any]) -> Step:
        """`send`, then `receive`."""
        self.send(actions)
        return self.receive()

    def save(self) -> dict[str, NDArray[Any]]:
        """What `restore` brings the environments back from, as plain arrays: how episodes began and what was done."""
        self._check_quiet("save()")
        if not self.workers:
            with self._blame():
                return self._only_stepper().save()
        self._command(shared.SAVE)
        self._await()
        return {key: array for letter in self._letters for key, array in shared.read_letter(letter).items()}

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Go back to a saved moment by playing the episodes under way again; `observation` tells where they stand.

        (P, E): the episodes that had to restart, because what was seen did not come again.
        """
        self._check_saved(saved)
        self._started = True
        self._check_quiet("restore()")
        if not self.workers:
            with self._blame():
                self._only_stepper().restore(dict(saved))
        else:
            for letter, indices in zip(self._letters, self._share, strict=True):
                own = {key: saved[key] for key in saved if int(key.partition(".")[0]) in indices}
                shared.write_letter(letter, own)
            self._command(shared.RESTORE)
            self._await()
        return self._told(self._board.restarted)

    @property
    def observation(self) -> NDArray[Any]:
        """Where each environment stands, (P, E, *shape)."""
        self._check_quiet("observation")
        return self._told(self._board.observation)

    def close(self) -> None:
        """Close the environments and end the workers; harmless when done twice."""
        if self._closed:
            return
        self._closed = "it was closed"
        if self.stepper:
            self.stepper.close()
        for index, process in enumerate(self.processes):
            if process.poll() is None:
                self._board.request([index], shared.CLOSE, self._request + 1, self._bells)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(0.001)
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose_workers(self, asked: int | None, probe: Env) -> int:
        total = self.members * self.environments
        if asked is None:
            here = cores()
            cheap = total == 1 or here == 1 or sys.platform == "win32"
            return 0 if cheap or total * _step_seconds(probe) < _CHEAP_ROUND else min(total, here)
        _at_least(asked, 0, "workers", "the population; 0 steps in this process")
        if asked > total:
            warnings.warn(f"workers={asked} is more than the {total} environments; {total} are started", stacklevel=3)
        return min(asked, total)

    def _open(self, build: partial[Env]) -> None:
        total = self.members * self.environments
        observation, action = self.observation_space, self.action_space
        shape = BoardShape(
            total,
            max(self.workers, 1),
            observation.shape,
            np.dtype(observation.dtype).str,
            action.shape or (),
            np.dtype(action.dtype).str,
            len(self.info_keys),
        )
        self.stepper: Stepper | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        self._files: list[int] = []
        self._finalizer = weakref.finalize(self, _end, self.processes, self._files, os.getpid())
        if self.workers:
            self._start_workers(shape, picklable(build))
            return
        self._board = Board(shape)
        with self._blame():
            self.stepper = Stepper(build, range(total), self._board, self.info_keys)

    def _start_workers(self, shape: BoardShape, build: bytes) -> None:
        n, total = self.workers, shape.environments
        self._share = [range(total * k // n, total * (k + 1) // n) for k in range(n)]
        self._spin = _spin_seconds(n)
        board_file = shared.anonymous_file(shape.offsets()[1])
        self._board = Board(shape, board_file)
        self._bell = Bell.new()
        self._bells: list[Bell] = []
        self._reports: list[int] = []
        self._letters: list[int] = []
        self._files += [board_file, self._bell.sleeper_end, self._bell.ringer_end]
        try:
            for index, indices in enumerate(self._share):
                self._board.write(index, shared.DONE, -1)
                bell, report, letter = Bell.new(), shared.anonymous_file(), shared.anonymous_file()
                self._bells.append(bell)
                self._reports.append(report)
                self._letters.append(letter)
                self._files += [bell.sleeper_end, bell.ringer_end, report, letter]
                ends = (board_file, report, letter, bell.sleeper_end, self._bell.ringer_end)
                brief = Brief(index, indices, shape, *ends, self.info_keys, self._spin, os.getpid(), build)
                self.processes.append(_start(brief))
            self._await_workers(0)
        except BaseException:
            self._finalizer()
            raise

    def silent(self) -> tuple[int, str]:
        """The request that is being carried out, counted from 1, and by whom; empty where nothing is waited for."""
        if self._closed or not self.pending:
            return self._request, ""
        if not self.workers:
            busy = self._board.read(0, shared.BUSY_WITH)
            return self._request, "" if busy == shared.IDLE else self._who(busy)
        late = [k for k in range(self.workers) if self._board.read(k, shared.DONE) < self._request]
        return self._request, f"worker {late[0]}, {self._busy(late[0])}," if late else ""

    @property
    def closed(self) -> bool:
        """Whether it can't be used any more."""
        return bool(self._closed)

    def _busy(self, worker: int) -> str:
        busy = self._board.read(worker, shared.BUSY_WITH)
        return (
            f"which steps {self._whose(self._share[worker])}" if busy == shared.IDLE else f"busy with {self._who(busy)}"
        )

    def _command(self, command: int) -> None:
        if not self._watched:
            self._watched = True
            threading.Thread(target=_report_silence, args=(weakref.ref(self),), daemon=True).start()
        self.pending = True
        self._request += 1
        if self.workers:
            self._board.request(range(self.workers), command, self._request, self._bells)
        self._in_process = command

    def _await(self) -> None:
        if self.stepper:
            with self._blame():
                (self.stepper.step if self._in_process == shared.STEP else self.stepper.reset)()
        else:
            self._await_workers(self._request)
        self.pending = False

    def _await_workers(self, request: int) -> None:
        self._board.wait_for_all(request, self._bell, self._spin, self._watch)

    def _watch(self) -> None:
        """Raise for a worker that failed or is gone; asked often, it looks every 10 ms."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 0.01
        for index, process in enumerate(self.processes):
            failed = self._board.read(index, shared.FAILED)
            code = None if failed else process.poll()
            if failed or code is not None:
                self._fail(index, code)

    def _fail(self, index: int, code: int | None) -> None:
        report = self._reports[index]
        words = os.pread(report, os.fstat(report).st_size, 0).decode(errors="replace").strip()
        who = self._busy(index)
        if code is None:
            how = f"raised {words.splitlines()[-1]}" if words else "failed"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        self.close()
        self._closed = f"worker {index} {how}"
        trace = f"\n\nThe worker's traceback:\n{words}" if words else ", which leaves no traceback (out of memory?)"
        raise PopulationError(f"{self.task}: worker {index}, {who}, {how}{trace}")

    @contextmanager
    def _blame(self) -> Iterator[None]:
        """What an environment raises in this process becomes the error that a worker's would be."""
        try:
            yield
        except Exception as error:
            who = self._who(self._board.read(0, shared.BUSY_WITH))
            self.close()
            self._closed = how = f"raised {type(error).__name__}" + (f": {error}" if str(error) else "")
            # Not "from error": contextlib takes what a StopIteration has caused for that StopIteration.
            raise PopulationError(f"{self.task}: {who}, {how}")  # noqa: B904

    def _who(self, index: int) -> str:
        member, place = divmod(index, self.environments)
        return f"member {member} (seed {self.seeds[member]}), environment {place}"

    def _whose(self, indices: range) -> str:
        first, last = indices[0] // self.environments, indices[-1] // self.environments
        return f"member {first}" if first == last else f"members {first} to {last}"

    def _told(self, flat: NDArray[Any]) -> NDArray[Any]:
        return flat.reshape(self.members, self.environments, *flat.shape[1:]).copy()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"this population of {self.task} is closed: {self._closed}")

    def _check_quiet(self, name: str) -> None:
        self._check_open()
        if not self._started:
            raise RuntimeError(f"{name} before reset(): no episode is under way yet")
        if self.pending:
            raise RuntimeError(f"{name} in the middle of a step: call receive() for the one that is under way first")

    def _only_stepper(self) -> Stepper:
        assert self.stepper is not None  # there are no workers
        return self.stepper

    def _check_saved(self, saved: Mapping[str, NDArray[Any]]) -> None:
        total, found = self.members * self.environments, len({key.partition(".")[0] for key in saved})
        if found != total:
            raise ValueError(
                f"this is the memory of {found} environments, but the population has {total}: "
                "make it with the same seeds and environments as the saved one"
            )
        for index in range(total):
            check_memory(shared.belongings(dict(saved), index), index)

    def _checked_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        space = self.action_space
        actions = np.asarray(actions)
        expected = (self.members, self.environments, *(space.shape or ()))
        if actions.shape != expected:
            raise ValueError(
                f"actions have shape {actions.shape}, {self.task} needs {expected}: "
                "(members, environments, *action shape)"
            )
        kinds = "iu" if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else "iufb"
        if actions.dtype.kind not in kinds:
            raise TypeError(f"actions are {actions.dtype}, {self.task} needs {space.dtype}")
        actions = actions.astype(space.dtype, copy=False)  # before the comparison: 0.7 exceeds a bound of float32(0.7)
        low, high = _bounds(space)
        inside = (actions >= low) & (actions <= high)  # NaN is not
        if not inside.all():
            member, place, *rest = (int(i) for i in np.argwhere(~inside)[0])
            value = actions[(member, place, *rest)]
            at = tuple(rest)
            limits = f"[{np.broadcast_to(low, expected)[0, 0][at]}, {np.broadcast_to(high, expected)[0, 0][at]}]"
            where = f" at index {at[0] if len(at) == 1 else at}" if at else ""
            who = self._who(member * self.environments + place)
            fix = "the agent that chose it has diverged" if np.isnan(value) else "clipping is the agent's job"
            raise ValueError(f"the action of {who} is {value!s}{where}, outside {limits}; {fix}")
        return actions


def _report_silence(reference: weakref.ref[Population]) -> None:
    """Warn of a request that nobody has answered for a while, as long as the population lives.

    From a thread of its own: the one that waits is in the environment's code, or may be.
    """
    seen, since = 0, time.monotonic()
    while True:
        time.sleep(_LOOK)
        population = reference()
        if population is None or population.closed:
            return
        request, who = population.silent()
        now = time.monotonic()
        if request != seen or not who:
            seen, since = request, now
        elif now - since >= PATIENCE:
            since = math.inf  # once is enough
            warnings.warn(f"{population.task}: {who} has not answered for {PATIENCE:g} seconds", stacklevel=1)
        del population


def _start(brief: Brief) -> subprocess.Popen[bytes]:
    # A fresh interpreter, because a fork of a process with threads or CUDA is not safe, and because multiprocessing's
    # spawn would run the user's script again. A session of its own, so that Ctrl-C reaches the population only.
    process = subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps([str(Path(path).absolute()) for path in sys.path])],
        stdin=subprocess.PIPE,
        pass_fds=(brief.board_file, brief.report_file, brief.letter_file, brief.own_bell, brief.population_bell),
        env=os.environ | _ONE_THREAD,
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it died at once, which the population notices and reports
        process.stdin.write(pickle.dumps(brief))
        process.stdin.flush()
    return process


def _end(processes: list[subprocess.Popen[bytes]], files: list[int], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the owner: the workers are not its own
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()
    for file in files:
        os.close(file)
    processes.clear()
    files.clear()


def _spin_seconds(workers: int) -> float:
    """How long a process that waits keeps a core busy before it sleeps."""
    # Spinning beside more processes than cores would take the time from those who work.
    return 20e-6 if workers + 1 > cores() else 1e-3


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _step_seconds(probe: Env) -> float:
    """What a step costs, on an instance that is thrown away."""
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
        raise TypeError(f"{task}: actions of {action} are no plain array; flatten them with a wrapper")
    return observation, action


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        raise TypeError(f"seeds={seeds} must be a list with one seed for each member, such as range({seeds})")
    _at_least(len(seeds), 1, "len(seeds)", "the population")
    for seed in seeds:
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seeds has {seed!r}; a seed is an integer that is not negative")
    return tuple(int(seed) for seed in seeds)


def _at_least(value: int, least: int, name: str, of: str) -> int:
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer of at least {least} for {of}")
    return int(value)
