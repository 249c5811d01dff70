"""Trajectories are cut into segments that succeeded or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.experience.checked_module import GrowingModule
from sasr.experience.types import Transition

RuleName = Literal["episode", "segments", "paper", "authors"]
Flags = NDArray[np.bool_]
FIRST_CAPACITY = 64


class Moment(NamedTuple):
    """What a rule sees of every open segment just after a step; all (P, E)."""

    hit: Flags  # this step was rewarded
    hit_before: Flags  # an earlier step of the segment was rewarded
    idle: Flags  # this step's reward was exactly the threshold (0: neither goal nor cost)
    full: Flags  # the segment has reached the longest length allowed
    done: Flags  # the episode ended, for whatever reason
    repeated: Flags  # (P, 1) the seed has seen a reward after which its episode went on, in this step or before


Verdict = tuple[Flags, Flags]
"""Which segments end with this step, and which of those succeeded; all (P, E)."""


def by_episode(now: Moment) -> Verdict:
    """A whole episode is one segment; it succeeded if it was ever rewarded."""
    return now.done, now.hit | now.hit_before


def by_segments(now: Moment) -> Verdict:
    """A reward closes a success; the longest length, or the episode's end, closes a failure."""
    return now.hit | now.full | now.done, now.hit


def by_paper(now: Moment) -> Verdict:
    """Whole episodes while rewards come at their end alone, then segments ("Defining Success and Failure")."""
    episode_ends, episode_succeeded = by_episode(now)
    segment_ends, segment_succeeded = by_segments(now)
    ends = np.where(now.repeated, segment_ends, episode_ends)
    return ends, np.where(now.repeated, segment_succeeded, episode_succeeded)


def by_authors(now: Moment) -> Verdict:
    """The released code: a success ends at the first zero reward after positive ones, that step included."""
    return (now.idle & now.hit_before) | now.done, now.hit | now.hit_before


RULES: dict[str, Callable[[Moment], Verdict]] = {
    "episode": by_episode,
    "segments": by_segments,
    "paper": by_paper,
    "authors": by_authors,
}


class Segment(NamedTuple):
    """A finished piece of one environment's trajectory."""

    member: int
    success: bool
    steps: Tensor  # (length, *item_shape) what was recorded for each step


class Segmenter(GrowingModule):
    """Records an item per step for each of P × E environments and hands out the segments that finished.

    An item is a state, or only the slot where a replay buffer keeps it. Everything is on the CPU, in numpy:
    there are a dozen small operations for every step, and numpy's cost a fifth of torch's.
    """

    open_items: Tensor  # (P, E, T, *item_shape)
    length: Tensor  # (P, E) int64
    was_hit: Tensor  # (P, E) bool
    repeated: Tensor  # (P, 1) bool, whether a seed has seen a reward after which its episode went on

    def __init__(
        self,
        rule: RuleName,
        *,
        members: int,
        envs: int,
        item_shape: tuple[int, ...],
        dtype: torch.dtype,
        reward_above: float = 0.0,
        max_steps: int = 200,
    ) -> None:
        super().__init__()
        self.rule = RULES[rule]
        self.reward_above, self.max_steps = reward_above, max_steps
        shape = (members, envs)
        self.all_valid, self.everywhere = np.ones(shape, np.bool_), np.ogrid[:members, :envs]
        open_items = torch.zeros((*shape, FIRST_CAPACITY, *item_shape), dtype=dtype)
        self.register_growing("open_items", open_items, axis=2)
        self.register_buffer("length", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("was_hit", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("repeated", torch.zeros((members, 1), dtype=torch.bool))

    def add(self, step: Transition, items: Tensor) -> list[Segment]:
        """Record `items` (P, E, *item_shape) for this step and return the segments it closed."""
        length, was_hit = self.length.numpy(), self.was_hit.numpy()
        valid = self.all_valid if step.valid is None else step.valid.numpy()
        self._record(items.numpy(), length, valid)
        reward = step.reward.numpy()
        hit = reward > self.reward_above
        if step.success is not None:
            hit = hit | step.success.numpy()
        done = step.terminated.numpy() | step.truncated.numpy()
        full = length >= self.max_steps
        if not (hit | was_hit | done | full).any():  # no rule closes anything here, and most steps are so
            return []
        repeated = self.repeated.numpy()
        repeated |= (hit & ~done & valid).any(1, keepdims=True)
        ends, succeeded = self.rule(Moment(hit, was_hit, reward == self.reward_above, full, done, repeated))
        close = ends & valid
        was_hit |= hit & valid
        open_items, closed = self.open_items.numpy(), []
        for p, e in np.argwhere(close).tolist():
            steps = torch.from_numpy(open_items[p, e, : length[p, e]].copy())
            closed.append(Segment(p, bool(succeeded[p, e]), steps))
        was_hit[close] = False
        length[close] = 0
        return closed

    def drop(self, interrupted: Tensor) -> None:
        """Forget the open segments of some environments (P, E)."""
        self.length[interrupted] = 0
        self.was_hit[interrupted] = False

    def _record(self, items: NDArray[np.generic], length: NDArray[np.int64], valid: Flags) -> None:
        """Append one item to the open segment of every environment that took a real step."""
        longest = int(length.max())
        if longest >= self.open_items.shape[2]:  # a segment grows by at most one item a step
            self.grow("open_items", longest + 1)
        # Where the step was not real the item lies beyond the segment's end, and the next one takes its place.
        p, e = self.everywhere
        self.open_items.numpy()[p, e, length] = items
        length += valid
