"""Steps in a row, whose rewards are added up before a critic estimates the rest: n-step returns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sasr.experience.types import Batch


class Window(NamedTuple):
    """B sampled steps of each of P seeds, each with the n − 1 steps after it.

    Where an episode or the stored steps end early, the last step is repeated and does not count.
    """

    steps: Batch
    """(P, n·B, …): the B sampled steps, then the B steps after them, and so on."""
    counts: Tensor
    """(P, n, B) bool: False for repeated steps."""

    def total(self, values: Tensor, discount: float) -> Tensor:
        """Discounted sums (P, B) of what each step brings (P, n·B)."""
        P, n, B = self.counts.shape
        if n == 1:
            return values
        power = discount ** torch.arange(n, device=values.device, dtype=values.dtype)
        return (values.view(P, n, B) * self.counts * power[:, None]).sum(1)

    def first(self) -> Batch:
        """The sampled steps themselves."""
        steps, B = self.steps, self.counts.shape[2]
        return Batch(
            obs=steps.obs[:, :B],
            action=steps.action[:, :B],
            reward=steps.reward[:, :B],
            next_obs=steps.next_obs[:, :B],
            terminated=steps.terminated[:, :B],
            slot=None if steps.slot is None else steps.slot[:, :B],
        )

    def batch(self, discount: float) -> Batch:
        """The sampled steps, as if each led over n steps at once."""
        n, B = self.counts.shape[1:]
        if n == 1:
            return self.steps
        return self.first()._replace(
            reward=self.total(self.steps.reward, discount),
            next_obs=self.steps.next_obs[:, -B:],
            terminated=self.steps.terminated[:, -B:],
            discount=discount ** self.counts.sum(1).to(self.steps.reward.dtype),
        )
