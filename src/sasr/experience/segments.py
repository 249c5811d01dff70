"""Trajectories are cut into segments that succeeded or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.errors import unknown_name
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
    repeated: Flags  # the seed has seen a reward after which its episode went on, in this step or before


class Verdict(NamedTuple):
    """Which segments end with this step, and which of those succeeded; all (P, E)."""

    close: Flags
    success: Flags


def by_episode(now: Moment) -> Verdict:
    """A whole episode is one segment; it succeeded if it was ever rewarded."""
    return Verdict(close=now.done, success=now.hit | now.hit_before)


def by_segments(now: Moment) -> Verdict:
    """A reward closes a success; running past the longest length, or into the episode's end, closes a failure."""
    return Verdict(close=now.hit | now.full | now.done, success=now.hit)


def by_paper(now: Moment) -> Verdict:
    """Whole episodes while rewards only come at their end, segments from then on ("Defining Success and Failure")."""
    whole, cut = by_episode(now), by_segments(now)
    return Verdict(
        close=np.where(now.repeated, cut.close, whole.close),
        success=np.where(now.repeated, cut.success, whole.success),
    )


def by_authors(now: Moment) -> Verdict:
    """The released code: a success ends at the first zero reward after positive ones, that step included."""
    return Verdict(close=(now.idle & now.hit_before) | now.done, success=now.hit | now.hit_before)


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

    An item is a state, or only the slot where a replay buffer keeps it. Everything is on the CPU, in numpy: there are a
    dozen small operations for every step, and numpy's cost a fifth of torch's.
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
        if rule not in RULES:
            raise unknown_name("success rule", rule, RULES)
        if max_steps < 1:
            raise ValueError(f"segment_steps={max_steps} must be at least 1 step")
        self.judge = RULES[rule]
        self.reward_above = reward_above
        self.max_steps = max_steps
        shape = (members, envs)
        self.everyone = np.ones(shape, np.bool_).nonzero()
        self.register_growing("open_items", torch.zeros((*shape, FIRST_CAPACITY, *item_shape), dtype=dtype), axis=2)
        self.register_buffer("length", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("was_hit", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("repeated", torch.zeros((members, 1), dtype=torch.bool))

    def add(self, step: Transition, items: Tensor) -> list[Segment]:
        """Record `items` (P, E, *item_shape) for this step and return the segments it closed."""
        valid = None if step.valid is None else step.valid.numpy()
        length, was_hit, reward = self.length.numpy(), self.was_hit.numpy(), step.reward.numpy()
        self._record(items.numpy(), valid)
        hit = reward > self.reward_above
        if step.success is not None:
            hit = hit | step.success.numpy()
        done = step.terminated.numpy() | step.truncated.numpy()
        goes_on = hit & ~done if valid is None else hit & ~done & valid
        repeated = self.repeated.numpy()
        repeated |= goes_on.any(1, keepdims=True)
        verdict = self.judge(
            Moment(
                hit=hit,
                hit_before=was_hit,
                idle=reward == self.reward_above,
                full=length >= self.max_steps,
                done=done,
                repeated=np.broadcast_to(repeated, done.shape),
            )
        )
        close = verdict.close if valid is None else verdict.close & valid
        closed = []
        if close.any():
            for p, e in np.argwhere(close).tolist():
                items_of_segment = self.open_items[p, e, : int(length[p, e])].clone()
                closed.append(Segment(p, bool(verdict.success[p, e]), items_of_segment))
        was_hit |= hit if valid is None else hit & valid
        was_hit[close], length[close] = False, 0
        return closed

    def drop(self, broken: Tensor) -> None:
        """Forget the open segments of some environments (P, E)."""
        self.length[broken], self.was_hit[broken] = 0, False

    def _record(self, items: NDArray[np.generic], valid: Flags | None) -> None:
        """Append one item to the open segment of every environment that took a real step."""
        length = self.length.numpy()
        # Every segment grows by at most one item a step, so one look at the lengths is enough.
        self.grow("open_items", int(length.max()) + 1)
        p, e = self.everyone if valid is None else valid.nonzero()
        self.open_items.numpy()[p, e, length[p, e]] = items[p, e]
        length[p, e] += 1
