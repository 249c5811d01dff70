"""Whether a reward is an event or a state that lasts, seen from what followed rewards so far."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sasr.experience.transition import Host, Transition

PaidEnd = Literal["goal", "lost", "stay"]
NOTICED = 0.01
"""A share that moved by less than this is not worth a copy to the device."""


class RewardRuns(nn.Module):
    """The share of each member's rewarded steps that another one followed, among those whose episode went on.

    It tells two kinds of episodes apart that end with a reward. Reaching a goal pays once, and the end is the success.
    Where being somewhere is paid (standing, or being far away), rewards come one after another, and an end cuts them
    off. One reward that stood alone is counted beforehand: until something is known, an end with a reward is a success.
    """

    open_paid: Tensor  # (P, E) bool, the newest step was rewarded and its episode goes on; on the CPU, like all but one
    went_on: Tensor  # (P,) int64, rewarded steps that had a next one
    followed: Tensor  # (P,) int64, those whose next one was rewarded too
    told: Tensor  # (P,) float32, what is in force
    lasting: Tensor  # (P,) float32 the same on the host's device, where captured graphs read it

    def __init__(self, rule: PaidEnd, host: Host, *, reward_above: float) -> None:
        super().__init__()
        self.rule, self.reward_above = rule, reward_above
        self.register_buffer("open_paid", torch.zeros((host.members, host.envs), dtype=torch.bool))
        self.register_buffer("went_on", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("followed", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("told", torch.zeros(host.members))
        self.register_buffer("lasting", torch.zeros(host.members, device=host.device))

    def observe(self, step: Transition) -> None:
        """Take the rewards (P, E) of one step in."""
        before, paid = self.open_paid.numpy(), step.reward.numpy() > self.reward_above
        if not (before.any() or paid.any()):
            return
        goes_on = ~(step.terminated.numpy() | step.truncated.numpy())
        real = np.ones_like(paid) if step.valid is None else step.valid.numpy()
        went_on, followed = self.went_on.numpy(), self.followed.numpy()
        went_on += (before & real).sum(1)
        followed += (before & real & paid).sum(1)
        before[real] = (paid & goes_on)[real]
        share, told = followed / (went_on + 1.0), self.told.numpy()
        moved = np.abs(share - told) > NOTICED
        if moved.any():
            told[moved] = share[moved]
            self.lasting.copy_(self.told)

    def worth(self, bonus: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
        """What going on for ever behind an end with a reward is worth, of f from `low` to `high`; `bonus` is (P, B)."""
        cut_off = low if self.rule == "lost" else bonus
        return high - self.lasting[:, None] * (high - cut_off)

    def drop(self, broken: Tensor) -> None:
        """The episodes (P, E) under way ended without an end: what would have followed, nobody knows."""
        self.open_paid[broken] = False
