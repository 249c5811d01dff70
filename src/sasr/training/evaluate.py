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
from sasr.experience.flatten import state_dtype
from sasr.experience.frames import FrameHistory, StackLayout

STREAM = "evaluation"
"""Evaluations start from a stream of their own: episodes that training never sees."""
SCORE = "game_score"
"""The name in `info` under which a game has its score so far."""
PATIENCE = 60.0
"""Seconds after which an evaluation says what it waits for."""


class Evaluation(NamedTuple):
    """The same n episodes of each of P seeds."""

    returns: NDArray[np.float64]  # (P, n) the environment's
    lengths: NDArray[np.int64]  # (P, n)
    success: NDArray[np.bool_]  # (P, n) ever rewarded above 0, or by info["is_success"]
    scores: NDArray[np.float64] = np.zeros((0, 0))  # (P, n) the last info["game_score"]; (P, 0) where a task has none


def evaluate(
    population: Population,
    act: Callable[[Tensor], Tensor],
    *,
    frame_stack: int = 1,
    stream: str = STREAM,
    progress: Callable[[int], None] | None = None,
    watch: Callable[[NDArray[np.generic]], None] | None = None,
    warn: Callable[[str], None] = warnings.warn,
) -> Evaluation:
    """One episode in each of a population's P × n environments.

    Args:
        population: Environments that nothing else steps.
        act: Actions (P, n, *action_shape) for what the policy sees (P, n, …), both on the CPU.
        frame_stack: Newest images of an episode that the policy sees at once.
        stream: Whose random numbers the episodes start from; another one gives other episodes.
        progress: Called with the number of episodes that have ended.
        watch: Called with the observations of every round.
        warn: Called once where episodes may never end: a minute has passed, and the environment has no time limit.
    """
    warn_at = math.inf if population.time_limit else time.monotonic() + PATIENCE
    obs = population.reset(stream)
    shape = (population.members, population.environments)
    returns, lengths = np.zeros(shape), np.zeros(shape, np.int64)
    success, running = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
    scores = np.full(shape, np.nan)
    frames = _frames(population, frame_stack)
    while running.any():
        if watch:
            watch(obs)
        frame = torch.from_numpy(obs)
        seen = frame if frames is None else frames.seen(frame)
        step = population.step(act(seen).numpy())
        if frames is not None:
            frames.add(frame, torch.from_numpy(step.terminated | step.truncated))
        returns += np.where(running, step.reward, 0.0)
        lengths += running
        success |= running & (step.success | (step.reward > 0.0))
        if SCORE in step.info:
            scores = np.where(running, step.info[SCORE], scores)
        running &= ~(step.terminated | step.truncated)
        obs = step.observation
        if progress:
            progress(int(running.size - running.sum()))
        if running.any() and time.monotonic() >= warn_at:
            warn_at = math.inf
            warn(_without_end(population, running, lengths))
    if np.isnan(scores).any():
        scores = scores[:, :0]
    return Evaluation(returns, lengths, success, scores)


def _frames(population: Population, frame_stack: int) -> FrameHistory | None:
    if frame_stack == 1:
        return None
    space = population.observation_space
    layout = StackLayout(space, frame_stack)
    return FrameHistory(layout, population.members, population.environments, state_dtype(space))


def _without_end(population: Population, running: NDArray[np.bool_], lengths: NDArray[np.int64]) -> str:
    p, e = np.argwhere(running)[0].tolist()
    return (
        f"{population.task}: {running.sum()} of {running.size} episodes of an evaluation have not ended after "
        f"{PATIENCE:g} seconds; seed {population.seeds[p]}, environment {e} is at step "
        f"{lengths[p, e]:,}. This environment has no time limit: --max-episode-steps sets one"
    )
