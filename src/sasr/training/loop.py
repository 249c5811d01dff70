"""The loop: act, send, learn while the environments step, receive, store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.envs.population import Population, Step
from sasr.experience.types import Transition
from sasr.shaping.base import check_finite
from sasr.shaping.reward_watch import SuccessWatch
from sasr.training.base import Learner


class Episode(NamedTuple):
    """One finished episode of training; its return is the environment's."""

    member: int
    environment: int
    ret: float
    length: int
    success: bool
    """Whether it was ever rewarded above 0 or the environment said so."""


class Loop:
    """P seeds with E environments each, and any learner; the reward that is stored is the environment's."""

    def __init__(self, population: Population, learner: Learner) -> None:
        """Start the environments, which whoever made them closes, for a learner that acts and learns."""
        self.population, self.learner = population, learner
        self.obs = population.reset()
        self.steps = 0  # of each seed, over its environments
        shape = (population.members, population.environments)
        self.open_return, self.open_length = np.zeros(shape), np.zeros(shape, np.int64)
        self.open_success = np.zeros(shape, np.bool_)
        self.figures: dict[str, Tensor] = {}
        """The newest of each figure of the learner, (P,)."""
        self.watch: SuccessWatch | None = None
        """Sees every step, to warn where nothing can count as a success."""
        self.warning = ""
        """What it has to say, until whoever runs the loop has passed it on."""

    def turn(self) -> list[Episode]:
        """One step of every environment, the updates that are due with it; the episodes that ended."""
        obs = torch.from_numpy(self.obs)
        if self.steps < self.learner.burn_in:
            action, updates = self.learner.act_randomly(), 0
        else:
            # By the steps so far, so that a resumed run updates when an uninterrupted one does.
            every, after = self.learner.update_every, self.steps + self.population.environments
            action, updates = self.learner.act(obs), after // every - self.steps // every
        self.population.send(action.numpy())
        self.figures |= self.learner.learn(updates)
        step = self.population.receive()
        self._check(step)
        self.learner.store(
            Transition(
                obs=obs,
                action=action,
                reward=torch.from_numpy(step.reward),
                next_obs=torch.from_numpy(step.final_observation),
                terminated=torch.from_numpy(step.terminated),
                truncated=torch.from_numpy(step.truncated),
                success=torch.from_numpy(step.success),
            )
        )
        self.obs = step.observation
        self.steps += self.population.environments
        return self._count(step)

    def run(self, steps: int) -> Mapping[str, Tensor]:
        """Go on for at least `steps` steps of each seed; the newest figures, each (P,)."""
        if steps < 1:
            raise ValueError(f"steps={steps} must be at least 1")
        end = self.steps + steps
        while self.steps < end:
            self.turn()
        return self.figures

    def _count(self, step: Step) -> list[Episode]:
        """Add a step to the episodes under way, and return those that ended with it."""
        if self.watch is not None:
            self.warning = self.watch.observe(step.reward, step.terminated, step.success) or self.warning
        self.open_return += step.reward
        self.open_length += 1
        self.open_success |= step.success | (step.reward > 0.0)
        done = step.terminated | step.truncated
        if not done.any():
            return []
        ended = []
        for p, e in np.argwhere(done).tolist():
            ret, length = float(self.open_return[p, e]), int(self.open_length[p, e])
            ended.append(Episode(p, e, ret, length, bool(self.open_success[p, e])))
        self.open_return[done] = 0.0
        self.open_length[done] = 0
        self.open_success[done] = False
        return ended

    def _check(self, step: Step) -> None:
        """Refuse a NaN with the place it came from: one seed would learn from it, and fail much later."""
        for name, array in (("observation", step.final_observation), ("reward", step.reward)):
            where = f"{self.population.task}, step {self.steps:,}: {name}"
            check_finite(where, torch.from_numpy(array), seeds=self.population.seeds)

    # ----------------------------------------------------------- checkpoints

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Counters of the episodes under way, and the newest figures, which the next line of a log may need."""
        figures = {f"figure.{k:03d}.{name}": f.cpu().numpy() for k, (name, f) in enumerate(self.figures.items())}
        return {
            "steps": np.array(self.steps),
            "open_return": self.open_return,
            "open_length": self.open_length,
            "open_success": self.open_success,
            **figures,
        }

    def load(self, saved: Mapping[str, NDArray[np.generic]], restarted: NDArray[np.bool_]) -> None:
        """Go on from saved counters where the environments stand; those that had to restart (P, E) begin anew."""
        self.obs = self.population.observation
        self.steps = int(saved["steps"])
        self.open_return = np.where(restarted, 0.0, saved["open_return"].astype(np.float64))
        self.open_length = np.where(restarted, 0, saved["open_length"].astype(np.int64))
        self.open_success = np.where(restarted, False, saved["open_success"].astype(np.bool_))
        names = sorted(name for name in saved if name.startswith("figure."))  # the order that they came in
        self.figures = {name.split(".", 2)[2]: torch.from_numpy(saved[name]) for name in names}
