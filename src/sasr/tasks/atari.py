"""The Atari tasks: one grey 84x84 frame, rewarded by events of the game (`event`) or by its score (`score`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sasr.tasks.screen import Screen

try:
    from ale_py import ALEInterface, AtariEnv, LoggerMode, roms
except ImportError as error:
    raise ImportError(f'the Atari tasks need ale-py: pip install "sasr[atari]" ({error})') from error

ALEInterface.setLoggerMode(LoggerMode.Error)  # else the first console of a process prints a banner

RewardMode = Literal["event", "score"]
Memory = NDArray[np.uint8]  # the console's 128 bytes; byte i is address 0x80 + i


class Moment(NamedTuple):
    """What a rule sees after an agent step."""

    memory: Memory
    score: float  # points scored in this step
    lives: int


class Events:
    """The rule of a game: how many events a step held, and whether the task ended with it."""

    def reset(self, start: Moment) -> None:
        """Begin an episode."""
        self.before = start

    def step(self, now: Moment) -> tuple[float, bool]:
        """Events in this step, and whether the episode ends by the task's own rule."""
        counted, ended = self.count(self.before, now)
        self.before = now
        return counted, ended

    def count(self, before: Moment, now: Moment) -> tuple[float, bool]:
        """Compare two moments."""
        raise NotImplementedError


class Treasures(Events):
    """Pitfall: byte 113 counts the treasures left; a hole costs 100 points or more, a log at most 4 a step."""

    def count(self, before: Moment, now: Moment) -> tuple[float, bool]:
        """Treasures taken; a lost life or a hole ends the episode."""
        # The counter holds treasures left - 1, so it wraps from 0 to 255 with the last one.
        taken = (int(before.memory[113]) - int(now.memory[113])) % 256
        return float(taken if taken < 32 else 0), now.lives < before.lives or now.score <= -100


class Homes(Events):
    """Frogger: the low five bits of byte 99 are the homes that hold a frog."""

    def count(self, before: Moment, now: Moment) -> tuple[float, bool]:
        """Homes newly filled; the fifth ends the episode."""
        held, holds = int(before.memory[99]) & 0x1F, int(now.memory[99]) & 0x1F
        # The board may be cleared in the step that fills it; a hop home pays far more than the 1 point of any other.
        cleared = held.bit_count() == 4 and holds == 0 and now.score >= 5
        filled = 1 if cleared else (holds & ~held).bit_count()
        return float(filled), cleared or holds == 0x1F


class Rooms(Events):
    """Montezuma's Revenge: byte 57 is the level, byte 3 the room."""

    def reset(self, start: Moment) -> None:
        """The room the episode starts in is no discovery."""
        super().reset(start)
        self.visited = {self._place(start)}

    def count(self, before: Moment, now: Moment) -> tuple[float, bool]:
        """One for a place that this episode has not seen."""
        place = self._place(now)
        new = place not in self.visited
        self.visited.add(place)
        return float(new), False

    @staticmethod
    def _place(moment: Moment) -> tuple[int, int]:
        return int(moment.memory[57]), int(moment.memory[3])


class Points(Events):
    """Solaris and Freeway: a step in which the score rises; Solaris' galaxies have no known byte yet."""

    def count(self, before: Moment, now: Moment) -> tuple[float, bool]:
        """One if points were scored."""
        return float(now.score > 0), False


RULES: dict[str, type[Events]] = {
    "Pitfall": Treasures,
    "Frogger": Homes,
    "MontezumaRevenge": Rooms,
    "Solaris": Points,
    "Freeway": Points,
}
PLACES: dict[str, Callable[[Memory], int]] = {
    # Byte 14: how far up the chicken is, in lines of the screen.
    "Freeway": lambda memory: int(memory[14]) // 4,
    # Byte 44: the row, 255 at the start and up by one with each hop; byte 48: the column, in pixels, eight for a hop.
    "Frogger": lambda memory: (int(memory[44]) + 1) % 256 * 32 + int(memory[48]) // 8,
}
"""Where the agent itself is, of the games whose memory says so: to check counts against, nothing learns from it."""
_ROMS = {"MontezumaRevenge": "montezuma_revenge"}


def _check_rom(name: str) -> None:
    """Raise an ImportError with what installs it where a game itself is missing: ale-py brings its games along."""
    try:
        path = roms.get_rom_path(name)
        reason = "" if path else "it has no such game"
    except OSError as error:  # the file or its folder is missing, or has other bytes
        reason = " ".join(str(error).split())
    if reason:
        raise ImportError(
            f'the game {name} is missing from ale-py ({reason}): pip install --force-reinstall "ale-py>=0.10"; where '
            "ALE_ROMS_DIR is set, unset it or put the game there"
        )


class Game(gym.Env[NDArray[Any], np.int64]):
    """A game with sticky actions (0.25), four frames a step, up to 30 no-ops at the start."""

    metadata = AtariEnv.metadata

    def __init__(
        self,
        *,
        game: str,
        reward_mode: RewardMode = "event",
        pooling: bool = True,
        scale: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if reward_mode not in ("event", "score"):
            raise ValueError(f"reward_mode={reward_mode!r} must be 'event' or 'score'")
        if game not in RULES:
            raise ValueError(f"game={game!r} has no event rule; there are rules for {', '.join(RULES)}")
        name = _ROMS.get(game, game.lower())
        _check_rom(name)
        # Without pooling the console skips the frames itself, as the authors' maker has it, and flicker stays.
        skip = 4 if pooling else 1
        console = AtariEnv(
            game=name,
            frameskip=4 // skip,
            repeat_action_probability=0.25,
            obs_type="grayscale",
            render_mode=render_mode,
        )
        self.screen = Screen(console, frame_skip=skip, scale=scale)
        self.ale = console.ale
        self.reward_mode = reward_mode
        self.render_mode = render_mode
        self.rule = RULES[game]()
        self.place_of = PLACES.get(game)
        self.game_score = 0.0
        self.success_ever = False
        self.action_space = console.action_space
        self.observation_space = self.screen.observation_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start a game."""
        if seed is None:
            # A seed for each game: the console draws for itself which actions stick, from a generator that a saved game
            # could not bring back, as it would have to trust a console's memory from a file.
            seed = int(self.np_random.integers(2**31))
        frame, _ = self.screen.reset(seed=seed, options=options)
        self._np_random = self.screen.unwrapped.np_random
        self.game_score = 0.0
        self.success_ever = False
        self.rule.reset(self._moment(0.0))
        return frame, {"game_score": 0.0, **self._place()}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Four frames with one action."""
        frame, points, game_over, cut, _ = self.screen.step(action)
        score = float(points)
        self.game_score += score
        events, ended = self.rule.step(self._moment(score))
        self.success_ever |= events > 0
        info = {
            "game_score": self.game_score,
            "is_success": events > 0,
            "success_ever": self.success_ever,
            **self._place(),
        }
        return frame, events if self.reward_mode == "event" else score, game_over or ended, cut, info

    def render(self) -> Any:
        """The console's picture."""
        return self.screen.render()

    def close(self) -> None:
        """Let the console go."""
        self.screen.close()

    def _place(self) -> dict[str, int]:
        return {} if self.place_of is None else {"place": self.place_of(self.ale.getRAM())}

    def _moment(self, score: float) -> Moment:
        return Moment(self.ale.getRAM(), score, self.ale.lives())
