"""Whether rewards come alone or one after another, estimated from what followed rewards so far."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sasr.experience.types import Host, Transition

PaidEnd = Literal["goal", "lost", "stay"]
NOTICED = 0.01
"""A share that moved by less than this is not worth a copy to the device."""


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
        if not (before.any() or rewarded.any()):
            return
        goes_on = ~(step.terminated.numpy() | step.truncated.numpy())
        real = np.ones_like(rewarded) if step.valid is None else step.valid.numpy()
        went_on, followed = self.went_on.numpy(), self.followed.numpy()
        went_on += (before & real).sum(1)
        followed += (before & real & rewarded).sum(1)
        before[real] = (rewarded & goes_on)[real]
        share, in_force = followed / (went_on + 1.0), self.on_cpu.numpy()
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
