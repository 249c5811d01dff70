"""How much each retained state counts: all alike, or the more the closer it came to the reward."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

WeightingName = Literal["uniform", "discounted"]


def discounted_weights(steps: Tensor, last_hit: int, discount: float) -> Tensor:
    """Weights of the steps (n,) of a success: discount^t, t steps away from the last one that was rewarded.

    Steps after it had no part in it either, so they count for less as well.

    >>> discounted_weights(torch.tensor([0, 2, 3, 4]), 3, 0.5).tolist()
    [0.125, 0.5, 1.0, 0.5]
    """
    return torch.pow(discount, (steps - last_hit).abs().float())
