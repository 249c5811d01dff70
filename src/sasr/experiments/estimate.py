"""What a cell will take: a look at its parts before anything starts, and a short trial for `--dry-run`."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

from torch import Tensor

from sasr.api import complete
from sasr.experience.replay import Replay
from sasr.experiments.plan import Cell
from sasr.logs.metrics import PeakMemory
from sasr.settings import TrainConfig
from sasr.training.trainer import Trainer

_OVERHEAD = 2**30  # of a process with torch, or of a context on a GPU
_EVIDENCE = 1.25  # shapers keep some of the steps besides
_TRIAL_CAPACITY = 10_000
_LEAST = 20  # turns that a trial takes the time of


class Footprint(NamedTuple):
    """Memory of one seed, in bytes."""

    learned: int
    """Everything that is learned or counted, before the first step."""
    per_step: float
    """Of each step that the replay buffer keeps."""
    kept: int
    """Steps that it keeps."""

    def of(self, seeds: int) -> int:
        """Memory of a population, about."""
        # Twice what is learned: gradients and what lies between layers.
        return int(_OVERHEAD + seeds * (2 * self.learned + _EVIDENCE * self.per_step * self.kept))

    def seeds_within(self, room: int) -> int:
        """How many seeds fit, at least one."""
        return max(1, int((room - _OVERHEAD) / max(1, self.of(1) - _OVERHEAD)))


class Estimate(NamedTuple):
    """What a cell will take, from a trial."""

    seconds: float
    bytes: int


def examine(cell: Cell) -> Footprint:
    """Make one seed of a cell, on the CPU and without a first step: what can't work raises here, not hours later."""
    config = complete(cell.config(device="cpu", workers=0))
    with Trainer(_smaller(config, seeds=config.seeds[:1], accelerate="eager")) as trainer:
        saved = trainer.learner.save(replay=False)
        learned = sum(_bytes(own) for part in saved.values() for own in part.values())
        return Footprint(learned, _bytes_of_a_step(trainer), config.steps_kept)


def measure(cell: Cell, *, device: str, workers: int | None, final_episodes: int, seconds: float = 2.0) -> Estimate:
    """Try a cell out for some seconds of learning and one evaluation."""
    whole = complete(cell.config(device=device, workers=workers))
    agent = whole.agent_config
    if hasattr(agent, "burn_in"):
        agent = dataclasses.replace(agent, burn_in=min(agent.burn_in, max(agent.batch_size, whole.environments)))
    short = _smaller(whole, agent_config=agent)
    with Trainer(short) as trainer:
        memory = PeakMemory(trainer.device)
        first, later = seconds_per_step(trainer, seconds)
        began = time.monotonic()
        evaluation = trainer.evaluate()
        judging = (time.monotonic() - began) / evaluation.returns.shape[1]
        peak = memory.bytes() or 0
        peak += int(len(whole.seeds) * _bytes_of_a_step(trainer) * max(0, whole.steps_kept - short.steps_kept))
    evaluations = whole.steps // whole.evaluation_period if whole.evaluation_period else 0
    episodes = evaluations * whole.eval_episodes + final_episodes
    random = min(whole.steps, int(getattr(whole.agent_config, "burn_in", 0)))
    return Estimate(first * random + later * (whole.steps - random) + judging * episodes, peak)


def seconds_per_step(trainer: Trainer, seconds: float) -> tuple[float, float]:
    """Of a random one, of which a run begins with many, and of one that is learned from."""
    loop = trainer.loop
    # An agent that learns by rollouts does nothing in between: whole rollouts are taken.
    rollout = int(getattr(getattr(trainer.learner, "agent", None), "steps_per_rollout", 0))
    began = time.monotonic()
    while loop.steps < trainer.learner.burn_in:
        loop.turn()
    at_random = (time.monotonic() - began) / max(1, loop.steps)
    for _ in range(1 if rollout else 5):
        loop.turn()
    first, began, turns = loop.steps, time.monotonic(), 0
    while True:
        loop.turn()
        turns += 1
        enough = turns >= _LEAST and time.monotonic() - began >= seconds
        if loop.steps - first >= rollout if rollout else enough:
            return at_random, (time.monotonic() - began) / (loop.steps - first)


def _bytes_of_a_step(trainer: Trainer) -> float:
    """Of one seed's step in the replay buffer; 0 where there is none."""
    replay = getattr(trainer.learner, "replay", None)
    return (
        sum(map(_bytes, replay.buffers())) / (replay.members * replay.capacity) if isinstance(replay, Replay) else 0.0
    )


def _smaller(config: TrainConfig, **changes: Any) -> TrainConfig:
    """The same with a small replay buffer."""
    batch = int(getattr(config.agent_config, "batch_size", 0))
    least = max(_TRIAL_CAPACITY, 2 * batch, 4 * config.environments)
    return dataclasses.replace(config, capacity=min(config.capacity, least), **changes)


def _bytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size() if isinstance(tensor, Tensor) else 0
