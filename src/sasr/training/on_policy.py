"""Agent, rollouts and shaper of an agent that learns from its newest steps alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sasr.agents.ppo import Minibatch, Ppo, PpoConfig
from sasr.experience.rollout_buffer import Rollouts
from sasr.experience.types import Batch, Host, Transition
from sasr.settings import Mode
from sasr.shaping.base import RewardShaper, Shaper, adapt
from sasr.training.accelerate import (
    Captured,
    Fetched,
    can_compile,
    capture_absorb,
    compile_parts,
    fast_products,
    generators_of,
    resolve,
)
from sasr.training.base import Saved, finite_members, share_of_bonus
from sasr.training.onlooker import Onlooker


class Acted(NamedTuple):
    """What was done last, on the CPU; what it led to is not known yet."""

    obs: Tensor  # (P, E, *obs_shape)
    action: Tensor  # (P, E, *action_shape) as drawn, before clipping to the space
    log_prob: Tensor  # (P, E)


class OnPolicy:
    """Collects a rollout, asks the shaper for its bonuses, learns from it in several passes, and drops it.

    The step under way while a rollout is learned from was chosen by the policy before; it is the first of the next
    rollout, with the likelihood that policy gave it, so the environments need not wait.
    """

    burn_in = 0

    def __init__(
        self,
        host: Host,
        agent: Ppo,
        *,
        shaper: RewardShaper | None = None,
        truncation_is_terminal: bool = False,
        accelerate: Mode = "auto",
    ) -> None:
        """Allocate the rollouts and bind the shaper.

        Args:
            host: What the agent was made for.
            agent: Learns from rollouts.
            shaper: Adds to the rewards of a rollout, or pays in a stream of its own where the agent has two value
                heads; None is the plain agent.
            truncation_is_terminal: Stop bootstrapping at time limits, as the authors' code does.
            accelerate: How updates run.
        """
        if agent.heads == 2 and shaper is None:
            raise ValueError("value_heads=2 is for a shaper's bonus, but there is no shaper; name one, or use one head")
        self.agent, self.shaper, self.envs, self.device = agent, adapt(shaper), host.envs, host.device
        self.members = host.members
        self.truncation_is_terminal = truncation_is_terminal
        self.rollouts = Rollouts(host, rows=agent.rows)
        if self.shaper is not None:
            self.shaper.bind(host)
        P, N, config = host.members, agent.steps_per_rollout, agent.config
        # What is learned from, at places that a captured graph can rely on.
        self.advantage = torch.zeros((P, N), device=host.device)
        self.value, self.target = torch.zeros((2, P, N, agent.heads), device=host.device)
        order = (config.minibatches, P, agent.batch_size)
        self.order = torch.zeros(order, dtype=torch.int64, device=host.device)
        self.turn = torch.zeros(1, dtype=torch.int64, device=host.device)
        self.acted: Acted | None = None
        self.complete = False  # whether all rows of the rollouts hold a step, of this rollout or the one before
        self.onlooker = Onlooker(self.shaper)
        self._accelerate(resolve(accelerate, host.device))

    def _accelerate(self, mode: Mode) -> None:
        """Put graphs around acting, writing and updating, or leave them as they are."""
        self.mode = mode
        parts = (self.agent, self.shaper)
        if mode == "compile" or (mode == "graph" and can_compile(self.device)):
            compile_parts(parts)
        self._act, self._write = Fetched(self._act_eagerly, generators_of([self.agent])), Captured(self.rollouts.write)
        self._update = Captured(self.update, generators_of(parts))
        self._captured: list[Captured[Any]] = [self._act, self._write, self._update]
        if mode == "graph" and self.shaper is not None:
            self._captured.append(capture_absorb(self.shaper))
        self.captures_updates = mode == "graph" and (self.shaper is None or self.shaper.capturable)

    # ------------------------------------------------------------------- act

    def act(self, obs: Tensor) -> Tensor:
        """Exploring actions (P, E, *action_shape); what they were drawn as is remembered until `store`."""
        told = self._act("act", obs) if self.mode == "graph" else self._act_eagerly(obs.to(self.device))
        inside, action, log_prob = (part.cpu() for part in told)  # from a graph they are there already
        self.acted = Acted(obs, action, log_prob)
        return inside

    def _act_eagerly(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        action, log_prob = self.agent.sample(obs)
        return self.agent.policy.in_space(action), action, log_prob

    def act_randomly(self) -> Tensor:
        """Uniform actions (P, E, *action_shape)."""
        return self.agent.act_randomly(self.envs).cpu()

    def act_best(self, obs: Tensor) -> Tensor:
        """The best actions known, (P, n, *action_shape)."""
        return self.agent.act(obs.to(self.device), deterministic=True).cpu()

    # ----------------------------------------------------------------- learn

    def learn(self, updates: int) -> Mapping[str, Tensor]:
        """Show the shaper the step that was stored last; then, if that filled the rollout, learn from all of it.

        How many updates that takes is the agent's to say, whatever `updates` is.
        """
        self.onlooker.show()
        if not self.rollouts.full or self.acted is None:
            return {}
        figures = self.prepare(self.acted.obs.to(self.device))
        for _ in range(self.agent.config.epochs):
            self.order.copy_(self.agent.draw_order())
            for _ in range(self.agent.config.minibatches):
                figures |= self._update("update") if self.captures_updates else self.update()
        self.rollouts.clear()
        self.complete = True
        self.agent.finish()
        # Copies: these stand until the next rollout, and a shaper may give what it counts in and goes on counting.
        return {name: value.clone() for name, value in figures.items()}

    @torch.no_grad()
    def inspect(self) -> dict[str, Tensor]:
        """Figures of the shaper about the newest steps, as many as a rollout has."""
        if self.shaper is None or not self.complete:
            return {}
        return {f"shaping/{name}": value for name, value in self.shaper.inspect(self._stored_steps()).items()}

    def _stored_steps(self) -> Batch:
        batch = self.rollouts.batch()
        return batch._replace(action=self.agent.policy.in_space(batch.action))

    @torch.no_grad()
    def prepare(self, following: Tensor) -> dict[str, Tensor]:
        """Judge the rollout that is stored; `following` (P, E, …) is where the environments stand now."""
        stored, figures = self.rollouts, {}
        bonus = torch.zeros_like(stored.reward)
        if self.shaper is not None:
            bonus = self.shaper.shape(self._stored_steps()).view_as(bonus)
            figures["shaping/bonus_mean"] = bonus.mean((1, 2))
            figures["shaping/bonus_share"] = share_of_bonus(stored.reward.flatten(1), bonus.flatten(1))
        # Before the first lesson and not after it, or what it taught would be about observations on another scale. The
        # policy moves a little by this; the likelihoods stay those of the one that acted.
        self.agent.net.get_used_to(stored.obs.flatten(1, 2))
        ended = stored.terminated | stored.truncated if self.truncation_is_terminal else stored.terminated
        with fast_products(self.device):
            judged = self.agent.judge(
                stored.obs, stored.next_obs, following, stored.reward, bonus, ended, stored.cut(following)
            )
        for own, new in zip((self.advantage, self.value, self.target), judged, strict=True):
            own.copy_(new.flatten(1, 2))
        unexplained = (self.target - self.value).var(1) / self.target.var(1).clamp(min=1e-12)
        return figures | {"train/explained_variance": 1.0 - unexplained[:, 0]}

    def update(self) -> dict[str, Tensor]:
        """One update from the next minibatch in order, nothing but tensor work; figures to log, each (P,)."""
        index = self.order.index_select(0, self.turn)[0]
        self.turn.copy_((self.turn + 1) % len(self.order))
        stored = self.rollouts
        action = stored.take("action", index)
        minibatch = Minibatch(
            obs=stored.take("obs", index),
            action=action,
            log_prob=stored.take("log_prob", index),
            advantage=self.advantage.gather(1, index),
            value=_rows(self.value, index),
            target=_rows(self.target, index),
        )
        with fast_products(self.device):
            figures = {f"train/{name}": value for name, value in self.agent.learn(minibatch).items()}
        if self.shaper is not None:
            batch = Batch(
                obs=minibatch.obs,
                action=self.agent.policy.in_space(action),
                reward=stored.take("reward", index),
                next_obs=stored.take("next_obs", index),
                terminated=stored.take("terminated", index),
            )
            figures |= {f"shaping/{name}": value for name, value in self.shaper.update(batch).items()}
        return figures

    def store(self, step: Transition) -> None:
        """Append a step to the rollout; the shaper sees it in the next `learn`."""
        if self.acted is None:
            raise RuntimeError("a step without an action of this learner's: call `act` before each `store`")
        own = step._replace(action=self.acted.action)
        write = self._write_captured if self.mode == "graph" else None
        self.rollouts.add(own, log_prob=self.acted.log_prob, write=write)
        self.onlooker.hold(step)
        self.acted = None

    def _write_captured(self, *arrived: Tensor) -> None:
        self._write("write", *arrived)

    def finite(self) -> Tensor:
        """Whether every number that the agent learned is finite, (P,)."""
        return finite_members(self.agent.state_dict(), self.members)

    # ----------------------------------------------------------- checkpoints

    def save(self, *, replay: bool = True) -> Saved:
        """State of agent, shaper and rollouts, and the step that the shaper has not seen yet."""
        saved = {"agent": dict(self.agent.state_dict()), **self.onlooker.save()}
        if replay:
            saved["replay"] = dict(self.rollouts.state_dict())
        return saved

    def load(self, saved: Saved) -> None:
        """Go on from a saved state; without saved steps, a new rollout begins."""
        self.agent.load_state_dict(saved["agent"])
        self.onlooker.load(saved)
        self.acted = None
        self.turn.zero_()
        self.rollouts.clear()
        self.complete = "replay" in saved
        if "replay" in saved:
            self.rollouts.load_state_dict(saved["replay"])
        for captured in self._captured:
            captured.forget()

    def cut(self, broken: Tensor) -> None:
        """Episodes (P, E) under way ended without an end; a rollout sees that by where the next steps begin."""
        self.onlooker.cut(broken)


def with_value_heads(config: PpoConfig, shaper: Shaper | None) -> PpoConfig:
    """Settings with the number of value heads decided: two for a shaper with a `separate_stream`."""
    if config.value_heads is not None:
        return config
    separate = shaper is not None and shaper.separate_stream
    return dataclasses.replace(config, value_heads=2 if separate else 1)


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """Entries (P, B, H) of values (P, N, H) at steps (P, B)."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))
