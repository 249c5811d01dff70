"""Can anything count as a success here? A task that pays −1 and 0 gives SASR nothing to count, and no error says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENOUGH = 12
"""Terminated episodes without a success that are worth a warning."""


class SuccessWatch:
    """Sees every step until the first success, and warns once where a dozen episodes terminated without one.

    >>> watch = SuccessWatch()
    >>> told = [watch.observe(np.array([-1.0]), np.array([True])) for _ in range(20)]
    >>> [number for number, text in enumerate(told, start=1) if text]
    [12]
    """

    def __init__(self, reward_above: float = 0.0) -> None:
        """Watch for rewards above `reward_above`, which is the shaper's setting."""
        self.reward_above = reward_above
        self.lowest, self.highest = math.inf, -math.inf
        self.terminated = 0
        self.finished = False
        """Whether a success was seen or the warning was given: nothing is left to watch for."""

    def observe(
        self, reward: NDArray[Any], terminated: NDArray[np.bool_], success: NDArray[np.bool_] | None = None
    ) -> str:
        """Count one step of some environments; the warning if it is due now, otherwise an empty text.

        Args:
            reward: The environments' own rewards, of any shape.
            terminated: Where the task ended; a time limit is not in here.
            success: The environments' info["is_success"]; None where there is none.
        """
        if self.finished:
            return ""
        self.lowest = min(self.lowest, float(reward.min()))
        self.highest = max(self.highest, float(reward.max()))
        if self.highest > self.reward_above or (success is not None and success.any()):
            self.finished = True
            return ""
        self.terminated += int(terminated.sum())
        if self.terminated < ENOUGH:
            return ""
        self.finished = True
        return f"{self.terminated} episodes have terminated and {no_success(self)}"


def no_success(watch: SuccessWatch) -> str:
    """Why nothing has counted as a success so far, and what to do where that should have been one."""
    seen = f"{watch.lowest:g}"
    if watch.highest > watch.lowest:
        seen = f"{watch.lowest:g} to {watch.highest:g}"
    return (
        f"nothing has counted as a success: rewards were {seen}, never above reward_above={watch.reward_above:g}, and "
        'no info["is_success"] was true. If the task can reward no step above that, let the environment set '
        'info["is_success"], or lower the bar with --set shaper.reward_above=…'
    )
