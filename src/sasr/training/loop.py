"""The loop: act, send, learn while the environments step, receive, store, observe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from sasr.agents.sac import Sac, SacConfig
from sasr.experience.replay import Replay
from sasr.experience.transition import Host, Transition
from sasr.shaping.protocol import RewardShaper
from sasr.shaping.sasr import SASR
from sasr.tasks.vector import Population


class Loop:
    """P agents in P × E environments, with any shaper or none; the reward that is stored is the environment's."""

    def __init__(
        self,
        population: Population,
        *,
        config: SacConfig | None = None,
        shaper: RewardShaper | None = None,
        capacity: int = 1_000_000,
        device: torch.device | None = None,
        discount: float = 0.99,
    ) -> None:
        """Build agent and replay, bind the shaper, and start the environments.

        Args:
            population: The environments; whoever made them closes them.
            config: Settings of the agent.
            shaper: Adds to the rewards of sampled steps; None is the plain agent.
            capacity: Steps kept for each member.
            device: Where everything is learned.
            discount: γ of the agent and the shaper.
        """
        config = config or SacConfig()
        for name, value in (("burn_in", config.burn_in), ("capacity", capacity)):
            if value < config.batch_size:
                raise ValueError(
                    f"{name}={value} is less than batch_size={config.batch_size}: the first update would have too few "
                    "steps to sample; raise it, or take a smaller batch"
                )
        host = Host(
            observation_space=population.observation_space,
            action_space=population.action_space,
            seeds=population.seeds,
            envs=population.environments,
            device=device or torch.device("cpu"),
            discount=discount,
        )
        self.population, self.config, self.shaper, self.device = population, config, shaper, host.device
        self.agent = Sac(host, config)
        self.replay = Replay(host, capacity=capacity)
        if shaper is not None:
            shaper.bind(dataclasses.replace(host, replay=self.replay))
        self.obs = self._tensor(population.reset())
        self.steps = 0
        self.open_return = np.zeros((host.members, host.envs))
        self.returns: list[list[float]] = [[] for _ in host.seeds]
        """The environment's return of every finished episode, by member."""

    def run(self, steps: int) -> Mapping[str, Tensor]:
        """Go on for at least `steps` steps of each member; the last update's figures, each (P,)."""
        if steps < 1:
            raise ValueError(f"steps={steps} must be at least 1")
        figures: dict[str, Tensor] = {}
        end = self.steps + steps
        while self.steps < end:
            figures |= self.turn()
        return figures

    def turn(self) -> Mapping[str, Tensor]:
        """One step of every environment, and as many updates as a member took steps."""
        learning = self.steps >= self.config.burn_in
        action = self.agent.act(self.obs) if learning else self.agent.act_randomly(self.population.environments)
        self.population.send(action.cpu().numpy())
        figures: dict[str, Tensor] = {}
        for _ in range(self.population.environments if learning else 0):
            figures |= self._learn()
        self._store(action)
        self.steps += self.population.environments
        return figures

    def _learn(self) -> dict[str, Tensor]:
        batch = self.replay.sample(self.config.batch_size)
        bonus = torch.zeros_like(batch.reward) if self.shaper is None else self.shaper.shape(batch)
        figures = dict(self.agent.update(batch, bonus, self.agent.draw_noise(self.config.batch_size)))
        if self.shaper is not None:
            learned = self.shaper.update(batch)
            figures |= {"bonus": bonus.mean(1)} | {f"shaping/{name}": value for name, value in learned.items()}
        return figures

    def _store(self, action: Tensor) -> None:
        """Wait for the environments and pass on what happened."""
        told = self.population.receive()
        step = Transition(
            obs=self.obs,
            action=action,
            reward=self._tensor(told.reward),
            next_obs=self._tensor(told.final_observation),
            terminated=self._tensor(told.terminated),
            truncated=self._tensor(told.truncated),
            success=self._tensor(told.success),
        )
        if isinstance(self.shaper, SASR):  # it may have marked the slots that this step takes
            self.shaper.release(self.replay.next_released())
        stored = self.replay.add(step)
        if self.shaper is not None:
            self.shaper.observe(stored)
        self.obs = self._tensor(told.observation)
        self.open_return += told.reward
        for p, e in np.argwhere(told.terminated | told.truncated).tolist():
            self.returns[p].append(float(self.open_return[p, e]))
            self.open_return[p, e] = 0.0

    def _tensor(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
        tensor = torch.as_tensor(array, device=self.device)
        return tensor.float() if tensor.dtype == torch.float64 else tensor
