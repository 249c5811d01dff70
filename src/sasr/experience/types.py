"""What crosses the borders of the package: one step of a population, one sampled batch, and the host that runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym
import torch
from torch import Tensor

from sasr.experience.frames import StackLayout
from sasr.randomness import MemberStreams


class Transition(NamedTuple):
    """One step of E environments of each of P seeds, as it was taken."""

    obs: Tensor  # (P, E, *obs_shape)
    action: Tensor  # (P, E, *action_shape)
    reward: Tensor  # (P, E) the environment's own reward
    next_obs: Tensor  # (P, E, *obs_shape) the episode's last observation where it ended, never the reset one
    terminated: Tensor  # (P, E) bool, the task ended; a time limit is not in here
    truncated: Tensor  # (P, E) bool, the episode was cut off
    valid: Tensor | None = None  # (P, E) bool, False on the dead step that autoreset inserts; None: all valid
    success: Tensor | None = None  # (P, E) bool, the environment's info["is_success"]; None: judge by reward alone
    slot: Tensor | None = None  # (P, E) int64, where the host's replay buffer has stored this step

    def valid_mask(self) -> Tensor:
        """`valid`, or True everywhere, (P, E)."""
        return torch.ones_like(self.terminated) if self.valid is None else self.valid


class Batch(NamedTuple):
    """B sampled transitions of each of P seeds."""

    obs: Tensor  # (P, B, *obs_shape)
    action: Tensor  # (P, B, *action_shape)
    reward: Tensor  # (P, B) the environment's own reward
    next_obs: Tensor  # (P, B, *obs_shape)
    terminated: Tensor  # (P, B) bool, the task ended; a time limit is not in here
    slot: Tensor | None = None  # (P, B) int64, where the host's replay buffer keeps each of them; None: in none
    discount: Tensor | None = None  # (P, B) factor of the value at next_obs; None: γ, as next_obs is one step away
    success: Tensor | None = None  # (P, B) bool, the environment's info["is_success"]; None: judge by reward alone
    following: Tensor | None = None  # (P, B, *obs_shape) next_obs, or where a new episode began; None: unknown

    @classmethod
    def of_states(cls, obs: Tensor) -> Batch:
        """States (P, B, *obs_shape) without actions or rewards, for shapers that are asked about states alone."""
        zeros = torch.zeros(obs.shape[:2], device=obs.device)
        return cls(obs, zeros[..., None], zeros, obs, zeros.bool())


class ReplayView(Protocol):
    """Read access to the states a host already stores, so that a shaper need not store them again."""

    capacity: int
    """Slots per seed; a slot is one step of one environment."""

    def read(self, member: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Observations (n, *obs_shape) and actions (n, *action_shape) now stored in `slots` of `member`."""
        ...


@runtime_checkable
class PolicyView(Protocol):
    """The host's policy as it is now, for shapers that ask what it would do; asking changes nothing in it."""

    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        """Exploring actions (P, B, *action_shape) for obs (P, B, *obs_shape), drawn from the asker's streams."""
        ...

    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        """How likely actions (P, B, *action_shape) are next to the likeliest ones, (P, B) in [0, 1]."""
        ...


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a shaper must know about the agent and environments it is bound to."""

    observation_space: gym.Space[object]
    action_space: gym.Space[object]
    seeds: tuple[int, ...] = (0,)
    """The seeds of P independent runs."""
    envs: int = 1
    """Environments E per member."""
    device: torch.device = torch.device("cpu")
    """Where batches and transitions will be."""
    discount: float = 0.99
    """The agent's discount factor γ."""
    frame_stack: int = 1
    """Newest images of an episode that the policy sees at once; a shaper sees one at a time."""
    replay: ReplayView | None = None
    """The host's replay buffer, for shapers that mark states in it instead of keeping their own."""
    policy: PolicyView | None = None
    """The host's policy, for shapers that learn from what it would do."""
    separate_stream: bool = False
    """Whether the agent keeps the bonus apart from the reward: a return of its own, which no episode's end ends."""

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ValueError("seeds=() is empty; give at least one, such as seeds=(0,)")
        if self.envs < 1:
            raise ValueError(f"envs={self.envs} must be at least 1 environment per seed")
        if not 0.0 <= self.discount < 1.0:
            raise ValueError(f"discount={self.discount} must be in [0, 1); 0.99 is the usual one")

    @property
    def members(self) -> int:
        """The size P of the population."""
        return len(self.seeds)

    @property
    def stack_layout(self) -> StackLayout | None:
        """How frames are stacked for the policy; None where it sees one observation at a time."""
        return StackLayout(self.observation_space, self.frame_stack) if self.frame_stack > 1 else None

    @property
    def policy_space(self) -> gym.Space[Any]:
        """What the policy sees: observations, or stacks of them."""
        layout = self.stack_layout
        return self.observation_space if layout is None else layout.space


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; a copy to an accelerator is asynchronous."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
