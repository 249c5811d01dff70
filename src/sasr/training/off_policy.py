"""One training step of an agent that learns from a replay buffer: sample, shape, update."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from sasr.agents.base import OffPolicyAgent
from sasr.experience.replay import Replay, Window
from sasr.experience.types import Batch, Host, Transition
from sasr.shaping.base import RewardShaper, check_bonus
from sasr.training.base import Learner, Saved, bonus_figures, named, policy_view


class OffPolicy(Learner):
    """Stores steps as they were taken, and shapes their rewards when they are sampled: each time anew."""

    agent: OffPolicyAgent
    compilable = ("window_bonus",)

    def __init__(
        self,
        host: Host,
        agent: OffPolicyAgent,
        *,
        shaper: RewardShaper | None = None,
        capacity: int = 1_000_000,
        truncation_is_terminal: bool = False,
    ) -> None:
        """Allocate a replay buffer of `capacity` steps for each seed, and bind the shaper; None is the plain agent.

        `truncation_is_terminal` stops bootstrapping at time limits, as the authors' code does.
        """
        super().__init__(host, agent, shaper)
        self.burn_in, self.batch_size = agent.config.burn_in, agent.config.batch_size
        self.update_every = getattr(agent.config, "update_every", 1)
        for name, steps in (("burn_in", self.burn_in), ("capacity", capacity)):
            if steps < self.batch_size:
                raise ValueError(
                    f"{name}={steps} is less than batch_size={self.batch_size}: the first update would have too few "
                    "steps to sample; raise it, or take a smaller batch"
                )
        self.replay = Replay(host, capacity=capacity, truncation_is_terminal=truncation_is_terminal)
        self.experience = self.replay
        if self.shaper is not None:
            self.shaper.bind(dataclasses.replace(host, replay=self.replay, policy=policy_view(agent, host)))

    def act(self, obs: Tensor) -> Tensor:
        """Exploring actions (P, E, *action_shape)."""
        return self.agent.act(self.seen(obs).to(self.device)).cpu()

    def store(self, step: Transition) -> None:
        """Put a step into the replay buffer."""
        if self.shaper is not None:
            self.shaper.release(self.replay.next_released())
        self.keep(self.replay.add(step))

    def learn(self, updates: int) -> Mapping[str, Tensor]:
        """Run updates, then let the shaper observe the newest step: all of it while the environments step."""
        figures: dict[str, Tensor] = {}
        if len(self.replay) >= self.batch_size:
            for _ in range(updates):
                figures |= self.update(self.agent.count_update())
        self.observe_newest()
        return figures

    def update(self, update_actor: bool) -> dict[str, Tensor]:
        """One update, nothing but tensor work; figures to log, each (P,)."""
        window, batch = self.replay.windows(self.replay.draw(self.batch_size), self.agent.config.n_step)
        noise = self.agent.draw_noise(self.batch_size)

        bonus = self.shape(window.steps)
        bootstrap = self.agent.bootstrap(batch, noise)
        bonus_of_window, bonus_log = self.window_bonus(window, bonus)
        figures = named("train", self.agent.learn(batch, bonus_of_window, bootstrap, noise, update_actor))
        if self.shaper is not None:
            figures |= bonus_log | named("shaping", self.shaper.update(window.first()))
        return figures

    def window_bonus(self, window: Window, bonus: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The bonus that each n-step window adds up to, (P, B), and its figures for the log."""
        figures = {} if self.shaper is None else bonus_figures(window.steps.reward, bonus)
        return window.total(bonus, self.discount), figures

    def shape(self, steps: Batch) -> Tensor:
        """What the shaper adds to each step's reward, (P, B)."""
        if self.shaper is None:
            return torch.zeros_like(steps.reward)
        bonus = self.shaper.shape(steps)
        check_bonus(steps, bonus)
        return bonus

    def examples(self) -> Batch:
        """Steps that are spread evenly over the replay buffer."""
        places = (torch.arange(self.batch_size, dtype=torch.float64, device=self.device) + 0.5) / self.batch_size
        # As many as updates sample: compiled functions then serve both.
        return self.replay.windows(places.expand(self.members, -1), self.agent.config.n_step)[0].steps

    def load(self, saved: Saved) -> None:
        """Go on from a saved state; without a saved replay, the buffer fills anew."""
        super().load(saved)
        if "replay" not in saved and self.shaper is not None:
            self.observe_newest()  # before the slots are forgotten: this step's is gone too
            self.shaper.lose_replay()
