"""Where the range of f lies, chosen from how episodes ended so far."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sasr.experience.types import Host, Transition

RangeRule = Literal["fixed", "observed"]


def range_shift(succeeded: NDArray[np.int64], failed: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far below [0, 1] the success rate is moved, in [−1, 0], after so many true ends in success and in failure.

    A range below 0 makes every step a cost and rewards ending the episode: right where success ends it, wrong where
    failure does. A range above 0 rewards staying: the other way round. So the shift is the share of
    true ends that were successes. Time limits do not count: the agent can't cause them. One success is counted
    beforehand: before the first end there is none to avoid, and below 0 untried actions have the highest values for a
    critic that starts near 0.

    >>> range_shift(np.array([0, 5, 0]), np.array([0, 0, 9])).tolist()
    [-1.0, -1.0, -0.1]
    """
    return -(succeeded + 1.0) / (succeeded + failed + 1.0)


class ObservedRange(nn.Module):
    """Counts how the episodes of each seed end, and moves its range accordingly.

    An end is a success if its last step was rewarded, as under the absorbing rule: an episode that was
    rewarded on the way and then failed did not end in success.
    """

    succeeded: Tensor  # (P,) int64, on the CPU like the next
    failed: Tensor  # (P,) int64
    shift: Tensor  # (P,) float32 on the host's device, where captured graphs read it

    def __init__(self, host: Host, *, reward_above: float) -> None:
        super().__init__()
        self.reward_above = reward_above
        self.register_buffer("succeeded", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("failed", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("shift", torch.full((host.members,), -1.0, device=host.device))

    def observe(self, step: Transition) -> None:
        """Count the episodes that truly ended with this step."""
        ended = step.terminated.numpy()
        if step.valid is not None:
            ended = ended & step.valid.numpy()
        if not ended.any():
            return
        succeeded, failed = self.succeeded.numpy(), self.failed.numpy()
        rewarded = step.reward.numpy() > self.reward_above
        succeeded += (ended & rewarded).sum(1)
        failed += (ended & ~rewarded).sum(1)
        self.shift.copy_(torch.from_numpy(range_shift(succeeded, failed)))
