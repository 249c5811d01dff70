"""Environments that step on a board and can come back: an episode is played again from how it began."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.envs.shared_memory import BUSY_WITH, IDLE, Arrays, Board, arrays_of
from sasr.tasks.environment import Env, close_environment

LONGEST = 1_000_000
"""Actions stored of one episode; the replay of a longer one would take minutes, so it restarts."""


_NUMBERS = ("seed", "length", "check")
_BYTES = ("began", "generator")


def check_saved(saved: Arrays, index: int) -> None:
    """Raise a ValueError unless this has the form of `Replayable.save`, so that `restore` cannot fail on it."""
    numbers = all(name in saved and saved[name].shape == () and saved[name].dtype == np.int64 for name in _NUMBERS)
    words = all(name in saved and saved[name].ndim == 1 and saved[name].dtype == np.uint8 for name in _BYTES)
    rest = "actions" in saved and saved["actions"].ndim >= 1 and "seeded" in saved and saved["seeded"].shape == ()
    if not (numbers and words and rest) or any(int(saved[name]) < 0 for name in _NUMBERS):
        raise ValueError(f"the memory of environment {index} is not one that a population saves")


def generator_state(env: Env) -> bytes:
    """The state of the random generator of `env` as JSON; empty if it can't be read."""
    try:
        return json.dumps(env.unwrapped.np_random.bit_generator.state, default=np.ndarray.tolist).encode()
    except (AttributeError, TypeError):  # not one of numpy's generators
        return b""


def set_generator(env: Env, state: bytes) -> None:
    """Set the state of the random generator of `env`; numpy raises for one of another type."""
    if state:
        env.unwrapped.np_random.bit_generator.state = json.loads(state)


class Replayable:
    """An environment that stores the start and the actions of its episode.

    What it has seen is remembered as a checksum over every observation and reward, so a replay that went another way
    anywhere is found out, even where it came back to the same place.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self.seed = 0  # of the last reset that was given one
        self.began: bytes | None = None  # the generator just before the episode's reset; None: the seed says it all
        self.discrete = isinstance(env.action_space, spaces.Discrete)
        self.actions = np.zeros((64, *(env.action_space.shape or ())), env.action_space.dtype)
        self.length = 0
        self.check = 0

    def reset(self, seed: int | None = None) -> Any:
        """Start an episode, from a seed or from the generator's state; returns its first observation."""
        if seed is None:
            self.began = generator_state(self.env)
        else:
            self.seed, self.began = seed, None
        observation, _ = self.env.reset(seed=seed)
        self.length = 0
        self.check = zlib.crc32(np.ascontiguousarray(observation).data)
        return observation

    def step(self, action: NDArray[Any]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and store the action."""
        if self.length < LONGEST:
            if self.length == len(self.actions):
                self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)])
            self.actions[self.length] = action
        self.length += 1
        # A copy, because an environment may keep the action, and this memory is reused for the next one.
        result = self.env.step(int(action) if self.discrete else action.copy())
        self.check = zlib.crc32(np.ascontiguousarray(result[0]).data, self.check)
        self.check = zlib.crc32(struct.pack("<d??", *result[1:4]), self.check)
        return result

    def close(self) -> None:
        """Close the environment."""
        close_environment(self.env)

    # ----------------------------------------------------------- there and back

    def save(self) -> dict[str, NDArray[Any]]:
        """What `restore` needs, as plain arrays."""
        return {
            "seed": np.array(self.seed, np.int64),
            "seeded": np.array(self.began is None),
            "began": np.frombuffer(self.began or b"", np.uint8),
            "actions": self.actions[: self.length if self.length <= LONGEST else 0].copy(),
            "length": np.array(self.length, np.int64),
            "check": np.array(self.check, np.int64),
            "generator": np.frombuffer(generator_state(self.env), np.uint8),
        }

    def restore(self, saved: Arrays) -> tuple[Any, bool]:
        """Return to a saved moment: the observation, and whether the episode had to restart from a new start."""
        seed, check = int(saved["seed"]), int(saved["check"])
        try:
            observation = self._replay(seed, saved)
            if (self.length, self.check) == (int(saved["length"]), check):
                # It stands there already, unless the environment left its seed to chance and never drew from it.
                set_generator(self.env, saved["generator"].tobytes())
                return observation, False
        except Exception:  # if the replay fails in any way, the episode can restart
            pass
        fresh = np.random.SeedSequence([seed, check, int(saved["length"])])
        return self.reset(int(fresh.generate_state(1, np.uint64)[0] >> np.uint64(1))), True

    def _replay(self, seed: int, saved: Arrays) -> Any:
        observation = self.reset(seed)
        if not saved["seeded"]:
            set_generator(self.env, saved["began"].tobytes())
            observation = self.reset()
        for action in saved["actions"]:
            observation, *_ = self.step(action)
        return observation


class Stepper:
    """Some environments of a population, and the board with their actions and results."""

    def __init__(
        self, build: Callable[[], Env], indices: Sequence[int], board: Board, info_keys: Sequence[str], worker: int = 0
    ) -> None:
        self.board = board
        self.indices = indices
        self.info_keys = info_keys
        self.status = board.line(worker)
        self.environments: list[Replayable] = []
        for index in indices:
            self._busy(index)
            self.environments.append(Replayable(build()))
        self._busy(IDLE)

    def reset(self) -> None:
        """Start every environment's stream of episodes from its seed."""
        board = self.board
        for index, env in zip(self.indices, self.environments, strict=True):
            self._busy(index)
            board.observation[index] = env.reset(int(board.seed[index]))
        self._busy(IDLE)

    def step(self) -> None:
        """One step of every environment; one whose episode ends starts the next in the same step."""
        board = self.board
        for index, env in zip(self.indices, self.environments, strict=True):
            self._busy(index)
            observation, reward, terminated, truncated, info = env.step(board.action[index])
            board.final_observation[index] = observation
            if terminated or truncated:
                observation = env.reset()
            board.observation[index] = observation
            board.reward[index] = reward
            board.terminated[index] = terminated
            board.truncated[index] = truncated
            board.success[index] = info.get("is_success", False)
            for k, key in enumerate(self.info_keys):
                board.info[k, index] = info.get(key, math.nan)
        self._busy(IDLE)

    def save(self) -> dict[str, NDArray[Any]]:
        """What `restore` needs, by environment and name."""
        return {
            f"{index}.{name}": array
            for index, env in zip(self.indices, self.environments, strict=True)
            for name, array in env.save().items()
        }

    def restore(self, saved: Arrays) -> None:
        """Restore every environment; the board has their observations, and which episodes had to restart."""
        board = self.board
        for index, env in zip(self.indices, self.environments, strict=True):
            self._busy(index)
            board.observation[index], board.restarted[index] = env.restore(arrays_of(saved, index))
        self._busy(IDLE)

    def close(self) -> None:
        """Close the environments."""
        for env in self.environments:
            env.close()

    def _busy(self, index: int) -> None:
        # When a process is killed, this shows which environment was running.
        self.status[BUSY_WITH] = index
