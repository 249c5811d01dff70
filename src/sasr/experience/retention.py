"""Which states of a finished segment are kept as evidence: a share φ of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

RetentionName = Literal["random", "authors"]


def keep_random(length: int, share: float, generator: torch.Generator) -> Tensor:
    """A uniform subset without replacement; the fractional part of φ·length is rounded up by chance, so φ is exact."""
    device = generator.device
    wanted = share * length
    chance = torch.rand((), generator=generator, device=device).item()
    # The fractional part in float32, as the chance is.
    count = min(length, int(wanted) + int(chance < np.float32(wanted - int(wanted))))
    kept = torch.randperm(length, generator=generator, device=device)[:count]
    if count == 0:  # most segments of a few steps
        return kept
    return kept.sort().values


def keep_as_authors(length: int, share: float, generator: torch.Generator) -> Tensor:
    """The released code: stride int(1/φ) + 1, and a segment no longer than the stride is dropped.

    >>> keep_as_authors(11, 0.1, torch.Generator()).tolist(), keep_as_authors(12, 0.1, torch.Generator()).tolist()
    ([], [0, 11])
    """
    stride = int(1.0 / share) + 1
    return torch.arange(0, length if length > stride else 0, stride, device=generator.device)


RETENTION: dict[str, Callable[[int, float, torch.Generator], Tensor]] = {
    "random": keep_random,
    "authors": keep_as_authors,
}
