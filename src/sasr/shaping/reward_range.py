"""Where the range of f lies, chosen from how episodes were seen to end."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sasr.experience.transition import Host, Transition

RangeRule = Literal["fixed", "observed"]


def range_shift(won: NDArray[np.int64], lost: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far below [0, 1] the success rate is moved, in [−1, 0], after so many true ends in success and in failure.

    A range below 0 makes every step a cost and an end a relief: right where success ends the episode, an invitation to
    die where failure does. A range above 0 is a wage for staying: the other way round. So the shift is the share of
    true ends that were successes. Time limits do not count: the agent can't bring them on. One success is counted
    beforehand: until something ends there is no end to push towards, and below 0 whatever was not tried yet looks good
    to a critic that starts near 0.

    >>> range_shift(np.array([0, 5, 0]), np.array([0, 0, 9])).tolist()
    [-1.0, -1.0, -0.1]
    """
    return -(won + 1.0) / (won + lost + 1.0)


class ObservedRange(nn.Module):
    """Counts how each member's episodes end, and moves its range accordingly.

    An end is a success if its last step was rewarded, which is also what the absorbing rule asks: an episode that was
    rewarded on the way and then failed did not end in success.
    """

    won: Tensor  # (P,) int64, on the CPU like the next
    lost: Tensor  # (P,) int64
    shift: Tensor  # (P,) float32 on the host's device, where captured graphs read it

    def __init__(self, host: Host, *, reward_above: float) -> None:
        super().__init__()
        self.reward_above = reward_above
        self.register_buffer("won", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("lost", torch.zeros(host.members, dtype=torch.int64))
        self.register_buffer("shift", torch.full((host.members,), -1.0, device=host.device))

    def observe(self, step: Transition) -> None:
        """Count the episodes that truly ended with this step."""
        ended = step.terminated.numpy()
        if step.valid is not None:
            ended = ended & step.valid.numpy()
        if not ended.any():
            return
        won, lost = self.won.numpy(), self.lost.numpy()
        hit = step.reward.numpy() > self.reward_above
        won += (ended & hit).sum(1)
        lost += (ended & ~hit).sum(1)
        self.shift.copy_(torch.from_numpy(range_shift(won, lost)))
