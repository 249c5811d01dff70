"""What rewards say about a task: whether they come one after another, and whether anything can count as a success.

A task that pays −1 and 0 gives SASR nothing to count, and no error says so: `SuccessWatch` does.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sasr.experience.types import Host, Transition

PaidEnd = Literal["goal", "lost", "stay"]
NOTICED = 0.01
"""A share that moved by less than this is not worth a copy to the device."""
ENOUGH = 12
"""Terminated episodes without a success that are worth a warning."""


class RewardRuns(nn.Module):
    """The share of each seed's rewarded steps that another one followed, among those whose episode went on.

    It distinguishes two kinds of episodes that end with a reward. Reaching a goal is rewarded once, and the end is the
    success. Where being somewhere is rewarded (standing, or being far away), rewards come one after another, and an end
    cuts them off. One reward that stood alone is counted beforehand: without data, an end with a reward is a success.
    """

    open_rewarded: Tensor  # (P, E) bool, the newest step was rewarded, no end; on the CPU, like all but one
    went_on: Tensor  # (P,) int64, rewarded steps that had a next one
    followed: Tensor  # (P,) int64, those whose next one was rewarded too
    on_cpu: Tensor  # (P,) float32, what is in force
    lasting: Tensor  # (P,) float32 the same on the host's device, where captured graphs read it

    def __init__(self, rule: PaidEnd, host: Host, *, reward_above: float) -> None:
        super().__init__()
        self.rule, self.reward_above = rule, reward_above
        self.register_buffer("open_rewarded", torch.zeros((host.members, host.envs), dtype=torch.bool))
        self.register_buffer("went_on", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("followed", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("on_cpu", torch.zeros(host.members))
        self.register_buffer("lasting", torch.zeros(host.members, device=host.device))

    def observe(self, step: Transition) -> None:
        """Take the rewards (P, E) of one step in."""
        before, rewarded = self.open_rewarded.numpy(), step.reward.numpy() > self.reward_above
        if not (before | rewarded).any():
            return
        goes_on = ~(step.terminated.numpy() | step.truncated.numpy())
        real: Any = True if step.valid is None else step.valid.numpy()
        counted = before & real
        np.copyto(before, rewarded & goes_on, where=real)
        if counted.any():
            self._count(counted, counted & rewarded)

    def _count(self, counted: NDArray[np.bool_], followed_now: NDArray[np.bool_]) -> None:
        """Add steps (P, E) that came after a rewarded one, and those of them that were rewarded too."""
        went_on, followed = self.went_on.numpy(), self.followed.numpy()
        in_force = self.on_cpu.numpy()
        went_on += counted.sum(1)
        followed += followed_now.sum(1)
        share = followed / (went_on + 1.0)
        moved = np.abs(share - in_force) > NOTICED
        if moved.any():
            in_force[moved] = share[moved]
            self.lasting.copy_(self.on_cpu)

    def worth(self, bonus: Tensor, low: float, high: float) -> Tensor:
        """What going on for ever behind an end with a reward is worth, of f from `low` to `high`; `bonus` is (P, B)."""
        cut_off = low if self.rule == "lost" else bonus
        return high - self.lasting[:, None] * (high - cut_off)

    def drop(self, interrupted: Tensor) -> None:
        """Do not count what follows the last step of interrupted episodes (P, E)."""
        self.open_rewarded[interrupted] = False


class SuccessWatch:
    """Sees every step until the first success, and warns once where a dozen episodes terminated without one.

    >>> watch = SuccessWatch()
    >>> texts = [watch.observe(np.array([-1.0]), np.array([True])) for _ in range(20)]
    >>> [number for number, text in enumerate(texts, start=1) if text]
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
