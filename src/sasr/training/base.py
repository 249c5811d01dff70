"""What the loop drives: an agent, its experience and a shaper, as one learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sasr.experience.checked_module import CheckedModule
from sasr.experience.flatten import state_dtype
from sasr.experience.frames import FrameHistory, StackLayout
from sasr.experience.types import Batch, Host, PolicyView, Transition
from sasr.randomness import MemberStreams
from sasr.shaping.base import RewardShaper, adapt

Saved = dict[str, dict[str, Tensor]]
"""Everything of a learner, by the part it belongs to: agent, replay, shaper, unobserved, frames."""


class DivergedError(ValueError):
    """Learning has led to numbers that are not finite; the message says when and for which seeds."""


class Learner(ABC):
    """P seeds that act in E environments each and learn from what happens. Steps come on the CPU."""

    burn_in: int = 0
    """Steps of each seed with random actions before the first update."""
    update_every: int = 1
    """Steps of each seed from one update to the next."""
    agent: Any
    experience: CheckedModule
    """The stored steps: a replay buffer or rollouts."""

    def __init__(self, host: Host, agent: Any, shaper: RewardShaper | None) -> None:
        self.agent = agent
        self.shaper = None if shaper is None else adapt(shaper)
        self.members, self.envs = host.members, host.envs
        self.device, self.discount = host.device, host.discount
        self.frame_stack = host.frame_stack
        layout = host.stack_layout
        self.frames: FrameHistory | None = None
        """What the policy sees in the episodes under way, where it sees stacks of frames."""
        if layout is not None:
            self.frames = FrameHistory(layout, self.members, self.envs, state_dtype(host.observation_space))
        self.unobserved: Transition | None = None
        """The newest step. The shaper observes it in the next `learn`, while the environments step."""

    # ------------------------------------------------------------------- act

    def seen(self, obs: Tensor) -> Tensor:
        """What the policy sees, (P, E, …), where the environments show obs (P, E, *obs_shape)."""
        return obs if self.frames is None else self.frames.seen(obs)

    @abstractmethod
    def act(self, obs: Tensor) -> Tensor:
        """Actions (P, E, *action_shape) to explore with, on the CPU, for observations (P, E, *obs_shape)."""

    def act_randomly(self) -> Tensor:
        """Actions (P, E, *action_shape) uniform over the space, on the CPU."""
        action: Tensor = self.agent.act_randomly(self.envs)
        return action.cpu()

    def act_best(self, obs: Tensor) -> Tensor:
        """The best actions known, (P, n, *action_shape), on the CPU, for what the policy sees; draws nothing."""
        action: Tensor = self.agent.act(obs.to(self.device), deterministic=True)
        return action.cpu()

    # ----------------------------------------------------------------- learn

    @abstractmethod
    def store(self, step: Transition) -> None:
        """Store what happened; called once per step of all environments."""

    @abstractmethod
    def learn(self, updates: int) -> Mapping[str, Tensor]:
        """Learn while the environments step, by `updates` updates where that is the agent's to choose; figures (P,)."""

    def keep(self, step: Transition) -> None:
        """Keep the newest step for the shaper, and its frames for the policy."""
        self.unobserved = step
        if self.frames is not None:
            self.frames.add(step.obs, step.terminated | step.truncated)

    def observe_newest(self) -> None:
        """Let the shaper observe the newest step."""
        if self.shaper is not None and self.unobserved is not None:
            self.shaper.observe(self.unobserved)
        self.unobserved = None

    def interrupt(self, interrupted: Tensor) -> None:
        """The episodes under way (P, E) were interrupted; the next steps there begin new ones."""
        if self.frames is not None:
            self.frames.restart(interrupted)
        if self.shaper is not None and interrupted.any():
            self.unobserved = self.shaper.interrupt(interrupted, self.unobserved)

    # --------------------------------------------------------------- inspect

    @property
    def held_bytes(self) -> int:
        """Memory of all that is learned, stored or counted; what an update passes on is not in it."""
        parts = [part for part in (self.agent, self.experience, self.shaper) if isinstance(part, nn.Module)]
        held = nn.ModuleList(parts)
        return sum(tensor.nbytes for tensor in (*held.parameters(), *held.buffers()))

    @abstractmethod
    def examples(self) -> Batch | None:
        """Stored steps for `inspect`, as many as updates sample, without a draw; None while there are too few."""

    @torch.no_grad()
    def inspect(self) -> dict[str, Tensor]:
        """Figures of the shaper about stored steps, (P,), computed only for the log; draws nothing."""
        steps = self.examples()
        if self.shaper is None or steps is None:
            return {}
        return named("shaping", self.shaper.inspect(steps))

    def finite(self) -> Tensor:
        """Whether every number that the agent learned is finite, (P,), on the device."""
        # Networks and moments have P rows, or 2·P where a seed has two critics: row n is of seed n mod P.
        numbers = [tensor for tensor in self.agent.state_dict().values() if tensor.is_floating_point() and tensor.dim()]
        finite = torch.ones(self.members, dtype=torch.bool, device=self.device)
        for tensor in numbers:
            if len(tensor) % self.members == 0:
                rows = tensor.reshape(-1, self.members, tensor[0].numel())
                finite &= rows.isfinite().all(-1).all(0).to(self.device)  # counters of steps stay on the CPU
        return finite

    # ----------------------------------------------------------- checkpoints

    def save(self, *, replay: bool = True) -> Saved:
        """Everything needed to go on bit for bit; `replay=False` leaves the stored steps out."""
        saved: Saved = {"agent": dict(self.agent.state_dict())}
        if self.shaper is not None:
            step = self.unobserved._asdict() if self.unobserved else {}
            saved["shaper"] = dict(self.shaper.state_dict())
            saved["unobserved"] = {name: entry for name, entry in step.items() if entry is not None}
        if self.frames is not None:
            saved["frames"] = dict(self.frames.state_dict())
        if replay:
            saved["replay"] = dict(self.experience.state_dict())
        return saved

    def load(self, saved: Saved) -> None:
        """Go on from a saved state; refused before anything changes if it does not fit."""
        for name, part in (("agent", self.agent), ("shaper", self.shaper), ("replay", self.experience)):
            if name in saved and isinstance(part, CheckedModule):
                part.check_state(saved[name])
        self.agent.load_state_dict(saved["agent"])
        if self.frames is not None:
            self.frames.load_state_dict(saved["frames"])
        if self.shaper is not None:
            self.shaper.load_state_dict(saved["shaper"])
            self.unobserved = Transition(**saved["unobserved"]) if saved["unobserved"] else None
        if "replay" in saved:
            self.experience.load_state_dict(saved["replay"])


class PolicyOfFrames:
    """A policy that sees stacks, for shapers that ask about single frames: each counts as an episode's first."""

    def __init__(self, policy: PolicyView, layout: StackLayout) -> None:
        self.policy, self.layout = policy, layout

    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        """Exploring actions (P, B, *action_shape) for obs (P, B, *obs_shape)."""
        return self.policy.propose(self.layout.join([obs] * self.layout.depth), streams)

    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        """How likely actions (P, B, *action_shape) are next to the likeliest ones, (P, B) in [0, 1]."""
        return self.policy.likelihood(self.layout.join([obs] * self.layout.depth), action)


def policy_view(agent: Any, host: Host) -> PolicyView | None:
    """What shapers may ask an agent; None where it answers nothing."""
    if not isinstance(agent, PolicyView):
        return None
    layout = host.stack_layout
    return agent if layout is None else PolicyOfFrames(agent, layout)


def named(group: str, figures: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Figures under a group's name, as logs have them.

    >>> named("train", {"loss": torch.zeros(1)})
    {'train/loss': tensor([0.])}
    """
    return {f"{group}/{name}": value for name, value in figures.items()}


def bonus_figures(reward: Tensor, bonus: Tensor) -> dict[str, Tensor]:
    """The mean bonus of a batch (P, B), and its share of all that the batch pays: 1 where the rewards are 0."""
    size = bonus.abs().sum(1)
    share = size / (size + reward.abs().sum(1)).clamp(min=1e-12)
    return {"shaping/bonus_mean": bonus.mean(1), "shaping/bonus_share": share}
