"""The prior of a state's success rate: pseudo-counts at the average rate of all retained states."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from sasr.experience.retained import SUCCESS

Background = float | Literal["fitted"]
SIZES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Pseudo-counts that `fitted` chooses from, in states."""
MEMORY = 0.99
"""Discount of older episodes, for each one that ended since: the last hundred or so decide."""
ENOUGH = 5.0
"""Episodes of either outcome among these before anything is chosen: while one in a hundred succeeds, the
likeliest prior is a large one, which would outweigh the few states that did."""


class FittedBackground(nn.Module):
    """The prior under which counts predicted best how the next episode would end, for each of P seeds.

    An episode is evaluated before it is counted, by the log likelihood of its outcome under each size, in the mean over
    its states: they share one outcome, so that they are one observation. Where neighbours do not predict
    the outcome, a large prior is the likelier one, and all states get the same bonus; where they do, a small one.
    """

    log_likelihood: Tensor  # (P, len(SIZES)) float64, of outcomes, older episodes discounted
    episodes: Tensor  # (P, 2) float64, episodes of either outcome, discounted as these
    chosen: Tensor  # (P,) float32
    sizes: Tensor  # (len(SIZES),) float64

    def __init__(self, members: int, device: torch.device | None = None) -> None:
        super().__init__()
        self.register_buffer("log_likelihood", torch.zeros((members, len(SIZES)), dtype=torch.float64, device=device))
        self.register_buffer("episodes", torch.zeros((members, 2), dtype=torch.float64, device=device))
        self.register_buffer("chosen", torch.zeros(members, device=device))
        self.register_buffer("sizes", torch.tensor(SIZES, dtype=torch.float64, device=device), persistent=False)

    def update(self, member: int, outcome: int, counts: Tensor, size: Tensor) -> None:
        """Take in how a trajectory ended whose states had these counts (n, 2), when so many (2,) were retained.

        Nothing here waits for the device. Until there are both successes and failures nothing is evaluated: under the
        first outcome alone, the other one would have a likelihood of nearly 0.
        """
        observed, prior = counts.double(), average(size)[SUCCESS] * self.sizes
        total = observed.sum(1, keepdim=True) + self.sizes
        rate = (observed[:, SUCCESS, None] + prior + 1.0) / (total + 2.0)  # (n, sizes)
        likelihood = (rate if outcome == SUCCESS else 1.0 - rate).log().mean(0)
        self.log_likelihood[member] = MEMORY * self.log_likelihood[member] + likelihood * (size > 0).all()
        self.episodes[member] *= MEMORY
        self.episodes[member, outcome] += 1.0
        best = self.sizes[self.log_likelihood[member].argmax()].float()
        self.chosen[member] = best * (self.episodes[member] >= ENOUGH).all()


def average(size: Tensor) -> Tensor:
    """The shares (…, 2) of successes and failures among so many (…, 2) retained states; 0 until one succeeded."""
    share = size / size.sum(-1, keepdim=True).clamp(min=1)
    return share * (size[..., SUCCESS, None] > 0)
