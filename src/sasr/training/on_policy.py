"""One training step of an agent that learns from its newest steps alone: collect a rollout, shape, update."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from sasr.agents.ppo import Minibatch, Ppo
from sasr.experience.rollout_buffer import Rollouts
from sasr.experience.types import Batch, Host, Transition
from sasr.shaping.base import RewardShaper, check_bonus
from sasr.training.base import Learner, Saved, bonus_figures, named


class Acted(NamedTuple):
    """What was done last, on the CPU; what it led to is not known yet."""

    obs: Tensor  # (P, E, …) as the policy saw it
    action: Tensor  # (P, E, *action_shape) as drawn, before clipping to the space
    log_prob: Tensor  # (P, E)


class OnPolicy(Learner):
    """Collects a rollout, shapes its rewards, learns from it in several passes, and drops it.

    The step under way while a rollout is learned from was chosen by the policy before; it is the first of the next
    rollout, with the likelihood that policy gave it, so the environments need not wait.
    """

    agent: Ppo

    def __init__(
        self, host: Host, agent: Ppo, *, shaper: RewardShaper | None = None, truncation_is_terminal: bool = False
    ) -> None:
        """Allocate the rollouts and bind the shaper.

        Args:
            host: What the agent was made for.
            agent: Learns from rollouts.
            shaper: Adds to the rewards of a rollout, or is a reward stream of its own where the agent has two value
                heads; None is the plain agent.
            truncation_is_terminal: Stop bootstrapping at time limits, as the authors' code does.
        """
        if agent.heads == 2 and shaper is None:
            raise ValueError("value_heads=2 is for a shaper's bonus, but there is no shaper; name one, or use one head")
        super().__init__(host, agent, shaper)
        self.truncation_is_terminal = truncation_is_terminal
        self.rollouts = Rollouts(host, rows=agent.rows)
        self.experience = self.rollouts
        if self.shaper is not None:
            self.shaper.bind(dataclasses.replace(host, separate_stream=agent.heads == 2))
        P, N = host.members, agent.steps_per_rollout
        # What is learned from, at addresses that a captured graph can rely on.
        self.advantage = torch.zeros((P, N), device=host.device)
        self.value, self.target = torch.zeros((2, P, N, agent.heads), device=host.device)
        order = (agent.config.minibatches, P, agent.batch_size)
        self.order = torch.zeros(order, dtype=torch.int64, device=host.device)
        self.next_minibatch = torch.zeros(1, dtype=torch.int64, device=host.device)
        self.acted: Acted | None = None
        self.complete = False  # whether all rows of the rollouts hold a step, of this rollout or the one before

    # ------------------------------------------------------------------- act

    def act(self, obs: Tensor) -> Tensor:
        """Exploring actions (P, E, *action_shape); what they were drawn as is remembered until `store`."""
        obs = self.seen(obs)
        in_space, action, log_prob = self.draw(obs)
        self.acted = Acted(obs, action, log_prob)
        return in_space

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Actions in the space, the same as drawn, and their log-probabilities: from the CPU and back to it."""
        in_space, action, log_prob = self.agent.explore(obs.to(self.device))
        return in_space.cpu(), action.cpu(), log_prob.cpu()

    # ----------------------------------------------------------------- learn

    def store(self, step: Transition) -> None:
        """Append a step to the rollout."""
        if self.acted is None:
            raise RuntimeError("a step without an action of this learner's: call `act` before each `store`")
        as_drawn = step._replace(obs=self.acted.obs, action=self.acted.action)
        self.rollouts.add(as_drawn, log_prob=self.acted.log_prob)
        self.keep(step)
        self.acted = None

    def learn(self, updates: int) -> Mapping[str, Tensor]:
        """Let the shaper observe the newest step; then, if that filled the rollout, learn from all of it.

        How many updates that takes is the agent's to decide, whatever `updates` is.
        """
        self.observe_newest()
        if not self.rollouts.full or self.acted is None:
            return {}
        figures = self.prepare(self.acted.obs.to(self.device))
        for _ in range(self.agent.config.epochs):
            self.order.copy_(self.agent.draw_order())
            for _ in range(self.agent.config.minibatches):
                figures |= self.update()
        self.rollouts.clear()
        self.complete = True
        self.agent.finish()
        # Copies: they stand until the next rollout, and a shaper may return what it counts in and goes on counting.
        return {name: value.clone() for name, value in figures.items()}

    @torch.no_grad()
    def prepare(self, following: Tensor) -> dict[str, Tensor]:
        """Shape the stored rollout and estimate its advantages.

        Args:
            following: What the policy sees now, (P, E, …).
        """
        rollout = self.rollouts
        figures: dict[str, Tensor] = {}
        bonus = torch.zeros_like(rollout.reward)  # (P, n, E)
        if self.shaper is not None:
            steps = self.steps()
            bonus_of_step = self.shaper.shape(steps)
            check_bonus(steps, bonus_of_step)
            bonus = bonus_of_step.view_as(bonus)
            figures |= bonus_figures(steps.reward, bonus_of_step)

        # Before the first update and not after it, or what it learned would be about observations on another scale.
        # The policy moves a little by this; the likelihoods stay those of the one that acted.
        self.agent.net.update_normaliser(rollout.obs.flatten(1, 2))
        terminated = rollout.terminated
        if self.truncation_is_terminal:
            terminated = terminated | rollout.truncated
        estimates = self.agent.estimate(
            rollout.obs,
            rollout.led_to(),
            following,
            rollout.reward,
            bonus,
            terminated,
            rollout.cut(following),
        )
        self.advantage.copy_(estimates.advantage.flatten(1, 2))
        self.value.copy_(estimates.value.flatten(1, 2))
        self.target.copy_(estimates.target.flatten(1, 2))
        unexplained = (self.target - self.value).var(1) / self.target.var(1).clamp(min=1e-12)
        return figures | {"train/explained_variance": 1.0 - unexplained[:, 0]}

    def update(self) -> dict[str, Tensor]:
        """One update from the next minibatch in order, nothing but tensor work; figures to log, each (P,)."""
        index = self.order.index_select(0, self.next_minibatch)[0]
        self.next_minibatch.copy_((self.next_minibatch + 1) % len(self.order))
        rollout = self.rollouts
        minibatch = Minibatch(
            obs=rollout.take("obs", index),
            action=rollout.take("action", index),
            log_prob=rollout.take("log_prob", index),
            advantage=self.advantage.gather(1, index),
            value=_rows(self.value, index),
            target=_rows(self.target, index),
        )
        figures = named("train", self.agent.learn(minibatch))

        if self.shaper is not None:
            batch = Batch(
                obs=rollout.newest(minibatch.obs),
                action=self.agent.policy.in_space(minibatch.action),
                reward=rollout.take("reward", index),
                next_obs=rollout.take("next_obs", index),
                terminated=rollout.take("terminated", index),
                success=rollout.take("success", index),
            )
            figures |= named("shaping", self.shaper.update(batch))
        return figures

    def steps(self) -> Batch:
        """All steps of the rollouts, with actions as the environments took them."""
        batch = self.rollouts.batch()
        return batch._replace(action=self.agent.policy.in_space(batch.action))

    def examples(self) -> Batch | None:
        """The newest steps, as many as a rollout has."""
        return self.steps() if self.complete else None

    def load(self, saved: Saved) -> None:
        """Go on from a saved state; without saved steps, a new rollout begins."""
        super().load(saved)
        if "replay" not in saved:
            self.rollouts.clear()
        self.acted = None
        self.next_minibatch.zero_()
        self.complete = "replay" in saved


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """Entries (P, B, H) of values (P, N, H) at steps (P, B)."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))
