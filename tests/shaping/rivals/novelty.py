"""What the tests of the novelty shapers share."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from sasr import Host
from sasr.shaping.base import Shaper
from sasr.shaping.rivals.drnd import DRND
from sasr.shaping.rivals.explo import Explo
from sasr.shaping.rivals.rnd import RND
from tests.conftest import box

SMALL = (101, 103, 107, 109)
KINDS: dict[str, Any] = {
    "rnd": lambda **options: RND(**{"hidden": (16, 16), "outputs": 8} | options),
    "drnd": lambda **options: DRND(**{"hidden": (16, 16), "outputs": 8} | options),
    "explo": lambda **options: Explo(**{"first_states": 20, "primes": SMALL, "bits": 8} | options),
}


def bind(shaper: Shaper, k: int = 4, *, space: gym.Space[Any] | None = None, **host: Any) -> Any:
    host = {"seeds": (0,)} | host
    shaper.bind(Host(observation_space=space or box(k), action_space=box(2), **host))
    return shaper


def clusters(P: int = 1, n: int = 256, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two Gaussian clusters (P, n, 8) at ±2 on the first axis, with a deviation of 0.3."""
    generator = torch.Generator().manual_seed(seed)
    both = 0.3 * torch.randn(2, P, n, 8, generator=generator)
    both[0, ..., 0] -= 2.0
    both[1, ..., 0] += 2.0
    return both[0], both[1]
