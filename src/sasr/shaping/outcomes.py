"""How well a state's neighbours predict what matters: if they don't, counting successes near it is no use."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.experience.random_rollout import RandomRollout

_NUMBERS = 2**23
"""Stored numbers times new states that are compared at a time: bounds the memory."""


def outcomes(rollout: RandomRollout, horizon: int) -> dict[str, NDArray[np.float64]]:
    """For each state, what its episode holds in the next `horizon` steps: the reward's sum, other numbers' means.

    Each is (n,), NaN where the rollout stopped before it could be known.
    """
    n = len(rollout.rewards)
    ended = np.flatnonzero(rollout.terminated | rollout.truncated) + 1
    end_of_episode = np.append(ended, n)[np.searchsorted(ended, np.arange(n), side="right")]
    stop = np.minimum(np.arange(n) + horizon, end_of_episode)
    known = (np.arange(n) + horizon <= n) | np.isin(end_of_episode, ended)
    outcome = {f"reward of the next {horizon} steps": _sums(rollout.rewards, stop)}
    for name, values in rollout.info.items():
        count = _sums(np.isfinite(values).astype(np.float64), stop)
        total = _sums(np.nan_to_num(values), stop)
        outcome[f"{name} in the next {horizon} steps"] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return {name: np.where(known, values, np.nan) for name, values in outcome.items()}


def explained(
    alike: Callable[[Tensor, Tensor], Tensor], stored: Tensor, new: Tensor, outcome: NDArray[np.float64]
) -> float:
    """R² of the neighbours' mean as a prediction for new states; NaN where the outcome is always the same.

    Args:
        alike: Weighs neighbours, (m, n) from m new states and n stored ones: a kernel.
        stored: States (n, k) as the kernel sees them.
        new: States (m, k), which come after them.
        outcome: Of the n + m states; those whose outcome is NaN are left out.
    """
    values = torch.from_numpy(outcome).double()
    known = values.isfinite()
    stored_known, new_known = known[: len(stored)], known[len(stored) :]
    neighbours, new = stored[stored_known], new[new_known]
    theirs, actual = values[: len(stored)][stored_known], values[len(stored) :][new_known]
    if len(neighbours) == 0 or len(new) == 0:
        return math.nan
    mean = theirs.mean()
    spread = (actual - mean).square().sum()
    if spread == 0.0:
        return math.nan
    rows = max(1, _NUMBERS // neighbours.numel())
    predicted = torch.cat([_mean(alike(part, neighbours).double(), theirs) for part in torch.split(new, rows)])
    return float(1.0 - (actual - predicted).square().sum() / spread)


def _mean(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted means, and the plain mean where there is no neighbour."""
    total = weights.sum(1)
    lonely = total < 1e-12
    return torch.where(lonely, values.mean(), (weights @ values) / torch.where(lonely, 1.0, total))


def _sums(values: NDArray[np.float64], stop: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each place, the sum of the values from there up to, and without, its stop."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[stop] - total[:-1])
