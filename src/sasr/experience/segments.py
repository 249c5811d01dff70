"""Trajectories are cut into segments that succeeded or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sasr.errors import unknown_name
from sasr.experience.growing import GrowingModule
from sasr.experience.transition import Transition

RuleName = Literal["episode", "segments", "authors"]
FIRST_CAPACITY = 64


class Moment(NamedTuple):
    """What a rule sees of every open segment just after a step; all (P, E)."""

    hit: Tensor  # bool, this step was rewarded
    hit_before: Tensor  # bool, an earlier step of the segment was rewarded
    idle: Tensor  # bool, this step's reward was exactly the threshold (0: neither goal nor cost)
    full: Tensor  # bool, the segment has reached the longest length allowed
    done: Tensor  # bool, the episode ended, for whatever reason


class Verdict(NamedTuple):
    """Which segments end with this step, and which of those succeeded; all (P, E) bool."""

    close: Tensor
    success: Tensor


def by_episode(now: Moment) -> Verdict:
    """A whole episode is one segment; it succeeded if it was ever rewarded (paper, "Defining Success and Failure")."""
    return Verdict(close=now.done, success=now.hit | now.hit_before)


def by_segments(now: Moment) -> Verdict:
    """A reward closes a success; running past the longest length, or into the episode's end, closes a failure."""
    return Verdict(close=now.hit | now.full | now.done, success=now.hit)


def by_authors(now: Moment) -> Verdict:
    """The released code: a success ends at the first zero reward after positive ones, that step included."""
    return Verdict(close=(now.idle & now.hit_before) | now.done, success=now.hit | now.hit_before)


RULES: dict[str, Callable[[Moment], Verdict]] = {
    "episode": by_episode,
    "segments": by_segments,
    "authors": by_authors,
}


class Segment(NamedTuple):
    """A finished piece of one environment's trajectory."""

    member: int
    success: bool
    steps: Tensor  # (length, *item_shape) what was recorded for each step


class Segmenter(GrowingModule):
    """Records an item per step for each of P × E environments and hands out the segments that finished.

    An item is a state, or only the slot where a replay buffer keeps it.
    """

    open_items: Tensor  # (P, E, T, *item_shape)
    length: Tensor  # (P, E) int64
    was_hit: Tensor  # (P, E) bool

    def __init__(
        self,
        rule: RuleName,
        *,
        members: int,
        envs: int,
        item_shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
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
        self.register_growing(
            "open_items", torch.zeros((*shape, FIRST_CAPACITY, *item_shape), dtype=dtype, device=device), axis=2
        )
        self.register_buffer("length", torch.zeros(shape, dtype=torch.int64, device=device))
        self.register_buffer("was_hit", torch.zeros(shape, dtype=torch.bool, device=device))

    def add(self, step: Transition, items: Tensor) -> list[Segment]:
        """Record `items` (P, E, *item_shape) for this step and return the segments it closed."""
        valid = torch.ones_like(step.terminated) if step.valid is None else step.valid
        self._record(items, valid)
        hit = step.reward > self.reward_above
        if step.success is not None:
            hit = hit | step.success
        verdict = self.judge(
            Moment(
                hit=hit,
                hit_before=self.was_hit,
                idle=step.reward == self.reward_above,
                full=self.length >= self.max_steps,
                done=step.terminated | step.truncated,
            )
        )
        close = verdict.close & valid
        closed = [
            Segment(p, bool(verdict.success[p, e]), self.open_items[p, e, : int(self.length[p, e])].clone())
            for p, e in close.nonzero().tolist()
        ]
        self.was_hit = (self.was_hit | (hit & valid)) & ~close
        self.length = self.length.masked_fill(close, 0)
        return closed

    def _record(self, items: Tensor, valid: Tensor) -> None:
        """Append one item to the open segment of every environment that took a real step."""
        # Every segment grows by at most one item a step, so one look at the lengths is enough.
        self.grow("open_items", int(self.length.max()) + 1)
        p, e = valid.nonzero(as_tuple=True)
        self.open_items[p, e, self.length[p, e]] = items[p, e].to(self.open_items.dtype)
        self.length = self.length + valid
