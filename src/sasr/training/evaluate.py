"""How good a learner is: episodes with fixed seeds, without exploration, without shaping, without learning."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.envs.population import Population

STREAM = "evaluation"
"""Evaluations start from a stream of their own: episodes that training never sees."""


PATIENCE = 60.0
"""Seconds after which an evaluation says what it waits for."""


class Evaluation(NamedTuple):
    """The same n episodes of each of P seeds."""

    returns: NDArray[np.float64]  # (P, n) the environment's
    lengths: NDArray[np.int64]  # (P, n)
    success: NDArray[np.bool_]  # (P, n) ever rewarded above 0, or by info["is_success"]


def evaluate(
    population: Population,
    act: Callable[[Tensor], Tensor],
    *,
    stream: str = STREAM,
    progress: Callable[[int], None] | None = None,
    watch: Callable[[NDArray[np.generic]], None] | None = None,
    warn: Callable[[str], None] = warnings.warn,
) -> Evaluation:
    """One episode in each of a population's P × n environments.

    Args:
        population: Environments that nothing else steps.
        act: Actions (P, n, *action_shape) for observations (P, n, *obs_shape), both on the CPU.
        stream: Whose random numbers the episodes start from; another one gives other episodes.
        progress: Called with the number of episodes that have ended.
        watch: Called with the observations of every round.
        warn: Called once where episodes may never end: a minute has passed, and the environment has no time limit.
    """
    look_at = math.inf if population.time_limit else time.monotonic() + PATIENCE
    obs = population.reset(stream)
    shape = (population.members, population.environments)
    returns, lengths = np.zeros(shape), np.zeros(shape, np.int64)
    success, running = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
    while running.any():
        if watch:
            watch(obs)
        step = population.step(act(torch.from_numpy(obs)).numpy())
        returns += np.where(running, step.reward, 0.0)
        lengths += running
        success |= running & (step.success | (step.reward > 0.0))
        running &= ~(step.terminated | step.truncated)
        obs = step.observation
        if progress:
            progress(int(running.size - running.sum()))
        if running.any() and time.monotonic() >= look_at:
            look_at = math.inf
            warn(_without_end(population, running, lengths))
    return Evaluation(returns, lengths, success)


def _without_end(population: Population, running: NDArray[np.bool_], lengths: NDArray[np.int64]) -> str:
    p, e = np.argwhere(running)[0].tolist()
    return (
        f"{population.task}: {running.sum()} of {running.size} episodes of an evaluation have not ended after "
        f"{PATIENCE:g} seconds; seed {population.seeds[p]}, environment {e} is at step "
        f"{lengths[p, e]:,}. This environment has no time limit: --max-episode-steps sets one"
    )
