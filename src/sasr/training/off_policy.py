"""Agent, replay and shaper of an agent that learns from a replay buffer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sasr.agents.base import Agent, check_batch
from sasr.experience.checked_module import CheckedModule
from sasr.experience.replay import Replay
from sasr.experience.types import Batch, Host, PolicyView, Transition
from sasr.settings import Mode
from sasr.shaping.base import RewardShaper, adapt
from sasr.training.accelerate import (
    Captured,
    Fetched,
    can_compile,
    capture_absorb,
    compile_parts,
    fast_products,
    generators_of,
    resolve,
    side_by_side,
)
from sasr.training.base import Saved, finite_members, share_of_bonus
from sasr.training.onlooker import Onlooker


class OffPolicy:
    """Samples what was stored, asks the shaper for bonuses and lets the agent learn; stored rewards never change."""

    def __init__(
        self,
        host: Host,
        agent: Agent,
        *,
        shaper: RewardShaper | None = None,
        capacity: int = 1_000_000,
        truncation_is_terminal: bool = False,
        accelerate: Mode = "auto",
    ) -> None:
        """Allocate the replay buffer and bind the shaper.

        Args:
            host: What the agent was made for.
            agent: Learns from sampled steps.
            shaper: Adds to the rewards of sampled steps; None is the plain agent.
            capacity: Steps kept for each member.
            truncation_is_terminal: Stop bootstrapping at time limits, as the authors' code does.
            accelerate: How updates run.
        """
        batch_size, burn_in = agent.config.batch_size, agent.config.burn_in
        for name, value in (("burn_in", burn_in), ("capacity", capacity)):
            if value < batch_size:
                raise ValueError(
                    f"{name}={value} is less than batch_size={batch_size}: the first update would have too few steps "
                    "to sample; raise it, or take a smaller batch"
                )
        self.agent, self.shaper, self.burn_in, self.members = agent, adapt(shaper), burn_in, host.members
        self.envs, self.device, self.discount = host.envs, host.device, host.discount
        self.replay = Replay(host, capacity=capacity, truncation_is_terminal=truncation_is_terminal)
        if self.shaper is not None:
            policy = agent if isinstance(agent, PolicyView) else None
            self.shaper.bind(dataclasses.replace(host, replay=self.replay, policy=policy))
        self.onlooker = Onlooker(self.shaper)
        self.waiting: Transition | None = None
        self._accelerate(resolve(accelerate, host.device))

    def _accelerate(self, mode: Mode) -> None:
        """Put graphs around acting, writing and updating, or leave them as they are."""
        self.mode = mode
        parts = (self.agent, self.replay, self.shaper)
        if mode == "compile" or (mode == "graph" and can_compile(self.device)):
            compile_parts(parts)
        self._act, self._write = Fetched(self._act_eagerly, generators_of([self.agent])), Captured(self.replay.write)
        self._update = Captured(self.update, generators_of(parts))
        self._captured: list[Captured[Any]] = [self._act, self._write, self._update]
        if mode == "graph" and self.shaper is not None:
            self._captured.append(capture_absorb(self.shaper))
        self.captures_updates = mode == "graph" and (self.shaper is None or self.shaper.capturable)

    def act(self, obs: Tensor) -> Tensor:
        """Exploring actions (P, E, *action_shape)."""
        return self._act("act", obs)[0] if self.mode == "graph" else self.agent.act(obs.to(self.device)).cpu()

    def _act_eagerly(self, obs: Tensor) -> tuple[Tensor, ...]:
        return (self.agent.act(obs),)

    def act_randomly(self) -> Tensor:
        """Uniform actions (P, E, *action_shape)."""
        return self.agent.act_randomly(self.envs).cpu()

    def act_best(self, obs: Tensor) -> Tensor:
        """The best actions known, (P, n, *action_shape)."""
        return self.agent.act(obs.to(self.device), deterministic=True).cpu()

    def learn(self, updates: int) -> Mapping[str, Tensor]:
        """Store the newest step, run updates, show the shaper that step: all of it while the environments step."""
        arrived = self._take_in(write=not self.captures_updates or updates == 0)
        figures: dict[str, Tensor] = {}
        for _ in range(updates if len(self.replay) >= self.agent.config.batch_size else 0):
            update_actor = self.agent.count_update()
            if self.captures_updates:
                # Observations kept aside move when their store grows; a graph that reads them is captured anew.
                key = (update_actor, len(arrived), self.replay.finals.data_ptr())
                figures |= self._update(key, *arrived, given=(update_actor,))
                arrived = ()
            else:
                figures |= self.update(update_actor)
        if arrived:
            self._write("write", *arrived)
        self.onlooker.show()
        return figures

    def update(self, update_actor: bool, *arrived: Tensor) -> dict[str, Tensor]:
        """One update, nothing but tensor work, after a step that has arrived is written; figures to log, each (P,)."""
        if arrived:
            self.replay.write(*arrived)
        config = self.agent.config
        window = self.replay.sample_windows(config.batch_size, config.n_step)
        batch, noise = window.batch(self.discount), self.agent.draw_noise(config.batch_size)
        (bonus, shaping), bootstrap = side_by_side(
            lambda: self._bonus(window.steps), lambda: self._bootstrap(batch, noise)
        )
        bonus = window.total(bonus, self.discount)
        check_batch(batch, bonus)
        with fast_products(self.device):
            training = self.agent.learn(batch, bonus, bootstrap, noise, update_actor)
        figures = {f"train/{name}": value for name, value in training.items()} | shaping
        if self.shaper is not None:
            figures |= {f"shaping/{name}": value for name, value in self.shaper.update(window.first()).items()}
        return figures

    @torch.no_grad()
    def inspect(self) -> dict[str, Tensor]:
        """Figures of the shaper about steps that are spread evenly over the replay buffer."""
        if self.shaper is None:
            return {}
        size = self.agent.config.batch_size
        places = (torch.arange(size, dtype=torch.float64, device=self.device) + 0.5) / size
        # As long as what updates sample: compiled functions then serve both.
        window = self.replay.gather(places.expand(self.replay.members, -1), self.agent.config.n_step)
        return {f"shaping/{name}": value for name, value in self.shaper.inspect(window.steps).items()}

    def _bonus(self, steps: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """What the shaper adds to each step's reward, and figures about it."""
        if self.shaper is None:
            return torch.zeros_like(steps.reward), {}
        bonus = self.shaper.shape(steps)
        check_batch(steps, bonus)
        share = share_of_bonus(steps.reward, bonus)
        return bonus, {"shaping/bonus_mean": bonus.mean(1), "shaping/bonus_share": share}

    def _bootstrap(self, batch: Batch, noise: Any) -> Tensor:
        with fast_products(self.device):
            return self.agent.bootstrap(batch, noise)

    def store(self, step: Transition) -> None:
        """Take a step; it goes into the replay buffer in the next `learn`, when the environments are busy again."""
        self._take_in()
        self.waiting = step

    def _take_in(self, write: bool = True) -> tuple[Tensor, ...]:
        """Store the step that waits; without `write`, what has still to go to the device is returned."""
        if self.waiting is None:
            return ()
        if self.shaper is not None:
            self.shaper.release(self.replay.next_released())
        arrived: list[Tensor] = []
        put = None if self.mode != "graph" else self._write_captured if write else lambda *parts: arrived.extend(parts)
        self.onlooker.hold(self.replay.add(self.waiting, write=put))
        self.waiting = None
        return tuple(arrived)

    def _write_captured(self, *arrived: Tensor) -> None:
        self._write("write", *arrived)

    def finite(self) -> Tensor:
        """Whether every number that the agent learned is finite, (P,)."""
        return finite_members(self.agent.state_dict(), self.members)

    # ----------------------------------------------------------- checkpoints

    def save(self, *, replay: bool = True) -> Saved:
        """State of agent, shaper and replay, and the step that the shaper has not seen yet."""
        self._take_in()
        saved = {"agent": dict(self.agent.state_dict()), **self.onlooker.save()}
        if replay:
            saved["replay"] = dict(self.replay.state_dict())
        return saved

    def load(self, saved: Saved) -> None:
        """Go on from a saved state; without a saved replay, the buffer fills anew."""
        own: dict[str, Any] = {"agent": self.agent, "shaper": self.shaper, "replay": self.replay}
        for name, part in own.items():
            if name in saved and isinstance(part, CheckedModule):
                part.check_state(saved[name])
        self.waiting = None
        self.agent.load_state_dict(saved["agent"])
        self.onlooker.load(saved)
        if "replay" in saved:
            self.replay.load_state_dict(saved["replay"])
        else:
            self.onlooker.lose_replay()
        for captured in self._captured:
            captured.forget()

    def cut(self, broken: Tensor) -> None:
        """Episodes (P, E) under way ended without an end; the next steps there begin new ones."""
        self._take_in()
        self.onlooker.cut(broken)
