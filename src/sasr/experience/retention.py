"""Which states of a finished segment are kept as evidence: a share φ of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from sasr.experience.retained import FAILURE, SUCCESS

RetentionName = Literal["random", "strided", "authors", "adaptive"]


def keep_random(length: int, share: float, generator: torch.Generator) -> Tensor:
    """A uniform subset without replacement; the fractional part of φ·length is rounded up by chance, so φ is exact."""
    device = generator.device
    wanted = share * length
    chance = torch.rand((), generator=generator, device=device)
    count = min(length, int(wanted) + int(chance < wanted - int(wanted)))
    return torch.randperm(length, generator=generator, device=device)[:count].sort().values


def keep_strided(length: int, share: float, generator: torch.Generator) -> Tensor:
    """Every round(1/φ)-th state from the first.

    >>> keep_strided(25, 0.1, torch.Generator()).tolist()
    [0, 10, 20]
    """
    return torch.arange(0, length, round(1.0 / share), device=generator.device)


def keep_as_authors(length: int, share: float, generator: torch.Generator) -> Tensor:
    """The released code: stride int(1/φ) + 1, and a segment no longer than the stride is dropped.

    >>> keep_as_authors(11, 0.1, torch.Generator()).tolist(), keep_as_authors(12, 0.1, torch.Generator()).tolist()
    ([], [0, 11])
    """
    stride = int(1.0 / share) + 1
    return torch.arange(0, length if length > stride else 0, stride, device=generator.device)


RETENTION: dict[str, Callable[[int, float, torch.Generator], Tensor]] = {
    "random": keep_random,
    "strided": keep_strided,
    "authors": keep_as_authors,
    "adaptive": keep_random,  # of a share that `Balance` adapts
}


def balanced_share(share: float, own: int, other: int) -> float:
    """φ for an outcome that `own` states had so far where the other one had `other`: the rarer one is kept more fully.

    φ·other/own of `own` states is φ·other: as many as are kept of the other outcome, once there are that many.

    >>> [balanced_share(0.1, own, 1000) for own in (10, 100, 200, 1000, 5000)]
    [1.0, 1.0, 0.5, 0.1, 0.1]
    """
    return min(1.0, share * max(1.0, other / own))


class Balance(nn.Module):
    """The share of a segment that is kept so that both outcomes become equally large evidence."""

    seen: Tensor  # (P, 2) int64 on the CPU, states of finished segments by outcome, kept or not

    def __init__(self, share: float, members: int) -> None:
        super().__init__()
        self.share = share
        self.register_buffer("seen", torch.zeros((members, 2), dtype=torch.int64))

    def share_of(self, member: int, outcome: int, length: int) -> float:
        """Count a segment and say how much of it to keep."""
        self.seen[member, outcome] += length
        other = FAILURE if outcome == SUCCESS else SUCCESS
        return balanced_share(self.share, int(self.seen[member, outcome]), int(self.seen[member, other]))
