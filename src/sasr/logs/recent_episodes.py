"""What the newest episodes of each member were like: the same figures for the console and for TensorBoard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

EPISODES = 100
"""As many as Stable-Baselines3 averages."""


class Window:
    """The last episodes of P members; `means` are NaN for a member that has not finished one.

    >>> window = Window(2)
    >>> window.add(0, ret=3.0, length=10, success=True)
    >>> window.means()["ep_rew_mean"]
    array([ 3., nan])
    """

    def __init__(self, members: int) -> None:
        self.kept: list[deque[tuple[float, int, bool]]] = [deque(maxlen=EPISODES) for _ in range(members)]

    def add(self, member: int, *, ret: float, length: int, success: bool) -> None:
        """Another episode ended."""
        self.kept[member].append((ret, length, success))

    def add_past(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Episodes of the metrics file, from before the run was resumed."""
        for event in events:
            if event["kind"] == "episode":
                ret = np.nan if event["return"] is None else event["return"]
                self.add(event["member"], ret=ret, length=event["length"], success=event["success"])

    def means(self) -> dict[str, NDArray[np.float64]]:
        """Return, length and success rate by Stable-Baselines3's names, each (P,)."""
        columns = [np.mean(own, axis=0) if own else np.full(3, np.nan) for own in self.kept]
        ret, length, success = np.array(columns, np.float64).T
        return {"ep_rew_mean": ret, "ep_len_mean": length, "success_rate": success}


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard error over the members that have a value; NaN where that is unknown.

    >>> mean_and_error(np.array([1.0, 3.0, np.nan]))
    (2.0, 1.0)
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    error = float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("nan")
    return float(known.mean()), error
