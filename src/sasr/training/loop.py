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
from sasr.training.base import Learner


class Episode(NamedTuple):
    """One finished episode, as the environment paid for it."""

    member: int
    environment: int
    ret: float
    length: int
    success: bool
    """Whether it was ever rewarded above 0 or the environment said so."""


class Loop:
    """P members in P × E environments, with any learner; the reward that is stored is the environment's."""

    def __init__(self, population: Population, learner: Learner) -> None:
        """Start the environments.

        Args:
            population: The environments; whoever made them closes them.
            learner: Acts and learns.
        """
        self.population, self.learner = population, learner
        self.obs = population.reset()
        self.steps = 0  # of each member, over its environments
        shape = (population.members, population.environments)
        self.open_return, self.open_length = np.zeros(shape), np.zeros(shape, np.int64)
        self.open_success = np.zeros(shape, np.bool_)
        self.figures: dict[str, Tensor] = {}
        """The newest of each figure of the learner, (P,)."""

    def turn(self) -> list[Episode]:
        """One step of every environment, as many updates as a member took steps; the episodes that ended."""
        learning = self.steps >= self.learner.burn_in
        obs = torch.from_numpy(self.obs)
        action = self.learner.act(obs) if learning else self.learner.act_randomly()
        self.population.send(action.numpy())
        self.figures |= self.learner.learn(self.population.environments if learning else 0)
        told = self.population.receive()
        self._check(told)
        self.learner.store(
            Transition(
                obs=obs,
                action=action,
                reward=torch.from_numpy(told.reward),
                next_obs=torch.from_numpy(told.final_observation),
                terminated=torch.from_numpy(told.terminated),
                truncated=torch.from_numpy(told.truncated),
                success=torch.from_numpy(told.success),
            )
        )
        self.obs = told.observation
        self.steps += self.population.environments
        return self._count(told)

    def run(self, steps: int) -> Mapping[str, Tensor]:
        """Go on for at least `steps` steps of each member; the newest figures, each (P,)."""
        if steps < 1:
            raise ValueError(f"steps={steps} must be at least 1")
        end = self.steps + steps
        while self.steps < end:
            self.turn()
        return self.figures

    def _count(self, told: Step) -> list[Episode]:
        self.open_return += told.reward
        self.open_length += 1
        self.open_success |= told.success | (told.reward > 0.0)
        done = told.terminated | told.truncated
        if not done.any():
            return []
        ended = [
            Episode(
                p,
                e,
                float(self.open_return[p, e]),
                int(self.open_length[p, e]),
                bool(self.open_success[p, e]),
            )
            for p, e in np.argwhere(done).tolist()
        ]
        self.open_return[done], self.open_length[done], self.open_success[done] = 0.0, 0, False
        return ended

    def _check(self, told: Step) -> None:
        """A NaN would be learned by one member and found much later; it is told where it came from."""
        for name, array in (("observation", told.final_observation), ("reward", told.reward)):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                p, e, *rest = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
                where = f" at index {rest[0] if len(rest) == 1 else tuple(rest)}" if rest else ""
                raise ValueError(
                    f"{self.population.task}: the {name} of member {p} (seed {self.population.seeds[p]}), environment "
                    f"{e} is {array[(p, e, *rest)]}{where} after {self.steps:,} steps; mend the environment"
                )

    # ----------------------------------------------------------- checkpoints

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Counters of the episodes under way, and the newest figures, which the next line of a log may need."""
        figures = {f"figure.{k:03d}.{name}": own.cpu().numpy() for k, (name, own) in enumerate(self.figures.items())}
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
