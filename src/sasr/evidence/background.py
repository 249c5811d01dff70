"""How far to trust a state's neighbours: every state also counts as some of the average kind."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from sasr.experience.retained import SUCCESS

Background = float | Literal["fitted"]
SIZES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Backgrounds that `fitted` chooses from, in states."""
MEMORY = 0.99
"""What is left of an episode's say when the next one has ended: the last hundred or so decide."""
ENOUGH = 5.0
"""Episodes of either outcome among these before anything is chosen: while one in a hundred wins, all that fits is that
nothing does, and a large background would bury the few states that did."""


class FittedBackground(nn.Module):
    """The background under which counts have told best how the next episode would end, for each of P members.

    An episode is judged before it is counted, by the log likelihood of its outcome under each size, in the mean over
    its states: they share one outcome, so that they are one observation. Where neighbours tell nothing, a large
    background is the likelier one, and all states are paid alike; where they do, a small one.
    """

    said: Tensor  # (P, len(SIZES)) float64, log likelihoods, older episodes' discounted
    heard: Tensor  # (P, 2) float64, episodes of either outcome, discounted as these
    chosen: Tensor  # (P,) float32
    sizes: Tensor  # (len(SIZES),) float64

    def __init__(self, members: int, device: torch.device | None = None) -> None:
        super().__init__()
        self.register_buffer("said", torch.zeros((members, len(SIZES)), dtype=torch.float64, device=device))
        self.register_buffer("heard", torch.zeros((members, 2), dtype=torch.float64, device=device))
        self.register_buffer("chosen", torch.zeros(members, device=device))
        self.register_buffer("sizes", torch.tensor(SIZES, dtype=torch.float64, device=device), persistent=False)

    def judge(self, member: int, outcome: int, counts: Tensor, size: Tensor) -> None:
        """Hear how a trajectory ended whose states had these counts (n, 2), when so many (2,) were retained.

        Nothing here waits for the device. Until there are both successes and failures no average is worth judging: the
        first of either would make the next one of the other kind look all but impossible.
        """
        known, usual = counts.double(), average(size)[SUCCESS] * self.sizes
        rate = (known[:, SUCCESS, None] + usual + 1.0) / (known.sum(1, keepdim=True) + self.sizes + 2.0)  # (n, sizes)
        likelihood = (rate if outcome == SUCCESS else 1.0 - rate).log().mean(0)
        self.said[member] = MEMORY * self.said[member] + likelihood * (size > 0).all()
        self.heard[member] *= MEMORY
        self.heard[member, outcome] += 1.0
        best = self.sizes[self.said[member].argmax()].float()
        self.chosen[member] = best * (self.heard[member] >= ENOUGH).all()


def average(size: Tensor) -> Tensor:
    """What a state of the average kind counts as, (…, 2), where so many (…, 2) were retained; 0 until one was won."""
    share = size / size.sum(-1, keepdim=True).clamp(min=1)
    return share * (size[..., SUCCESS, None] > 0)
