"""The size of the environment's rewards, as a unit for the bonus."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sasr.experience.types import Host, Transition

RewardScaleName = Literal["fixed", "mean", "largest"]
NOTICED = 0.01
"""A scale that moved by less than this share is not worth a copy to the device."""


class RewardScale(nn.Module):
    """The size of the rewards of each seed: the mean or the largest |reward| over its rewarded steps.

    A step is rewarded if its reward is above the threshold, as everywhere here, and not 0. Costs do not count: the
    small ones of an action are all there is until the first goal, and would take the bonus away just while it is
    needed. Before the first rewarded step the scale is 1. It is computed on the CPU, where steps come from, and
    copied to the device only when it has moved.
    """

    total: Tensor  # (P,) float64, the sum of |reward|, on the CPU like the next two
    steps: Tensor  # (P,) int64, rewarded steps
    largest: Tensor  # (P,) float64
    on_cpu: Tensor  # (P,) float32 on the CPU, what is in force
    in_force: Tensor  # (P,) float32 on the host's device, where captured graphs read it

    def __init__(self, rule: RewardScaleName, host: Host, *, reward_above: float) -> None:
        super().__init__()
        self.rule, self.reward_above = rule, reward_above
        self.register_buffer("total", torch.zeros(host.members, dtype=torch.float64))
        self.register_buffer("steps", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("largest", torch.zeros(host.members, dtype=torch.float64))
        self.register_buffer("on_cpu", torch.ones(host.members))
        self.register_buffer("in_force", torch.ones(host.members, device=host.device))

    def observe(self, step: Transition) -> None:
        """Take the rewards (P, E) of one step in."""
        reward = step.reward.numpy()
        hit = reward > self.reward_above
        if step.valid is not None:
            hit = hit & step.valid.numpy()
        if not hit.any():
            return
        size = np.where(hit, np.abs(reward), 0.0).astype(np.float64)
        total, steps, largest = self.total.numpy(), self.steps.numpy(), self.largest.numpy()
        total += size.sum(1)
        steps += np.count_nonzero(size, axis=1)
        np.maximum(largest, size.max(1), out=largest)
        scale = largest if self.rule == "largest" else total / np.maximum(steps, 1)
        in_force = self.on_cpu.numpy()
        moved = (steps > 0) & (np.abs(scale - in_force) > NOTICED * in_force)
        if moved.any():
            in_force[moved] = scale[moved]
            self.in_force.copy_(self.on_cpu)
