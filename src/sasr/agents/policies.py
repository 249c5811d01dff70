"""What a policy network's outputs mean: a draw from a few actions, or a Gaussian over a continuous range."""

from __future__ import annotations

import math
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sasr.agents.base import no_agent_for
from sasr.randomness import MemberStreams


class Policy(Protocol):
    """A distribution over actions for each row (P, B, outputs) of a network's outputs. Actions are (P, B, *shape)."""

    outputs: int
    """Numbers that the network says for each observation."""

    def draw(self, outputs: Tensor, streams: MemberStreams) -> Tensor:
        """An action for each row, each seed's from its own stream; it may lie outside the space."""
        ...

    def best(self, outputs: Tensor) -> Tensor:
        """The likeliest action of each row; it may lie outside the space."""
        ...

    def uniform(self, envs: int, streams: MemberStreams) -> Tensor:
        """Actions (P, envs, *shape) uniform over the space."""
        ...

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """How likely actions are (P, B), as logarithms of probabilities or densities."""
        ...

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies (P, B)."""
        ...

    def in_space(self, action: Tensor) -> Tensor:
        """The nearest actions that the space has."""
        ...


class Categorical(nn.Module):
    """One of n actions, with the softmax of the outputs as probabilities."""

    def __init__(self, space: gym.spaces.Discrete, members: int, device: torch.device) -> None:
        super().__init__()
        self.outputs, self.start = int(space.n), int(space.start)
        self.members, self.device = members, device

    def draw(self, outputs: Tensor, streams: MemberStreams) -> Tensor:
        """An action (P, B) for each row: the first to arrive, when each arrives at a rate of its probability."""
        waits = streams.draw(_exponential, outputs)
        return self.best(outputs - waits.log())

    def best(self, outputs: Tensor) -> Tensor:
        """The likeliest action of each row, (P, B)."""
        return outputs.argmax(-1) + self.start

    def uniform(self, envs: int, streams: MemberStreams) -> Tensor:
        """Actions (P, envs), all equally likely."""
        return self.draw(torch.zeros((self.members, envs, self.outputs), device=self.device), streams)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Logarithms of probabilities (P, B)."""
        return outputs.log_softmax(-1).gather(-1, (action - self.start)[..., None]).squeeze(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies (P, B)."""
        log_p = outputs.log_softmax(-1)
        return -(log_p.exp() * log_p).sum(-1)

    def in_space(self, action: Tensor) -> Tensor:
        """The actions themselves."""
        return action


class Gaussian(nn.Module):
    """A normal distribution around the outputs, its width learned but the same in every state."""

    log_std: Tensor  # (P, A)

    def __init__(self, space: gym.spaces.Box, members: int, device: torch.device, *, log_std: float = 0.0) -> None:
        super().__init__()
        self.outputs, self.shape, self.space = int(np.prod(space.shape)), tuple(space.shape), space
        self.members = members
        self.log_std = nn.Parameter(torch.full((members, self.outputs), log_std, device=device))
        for name, bound in (("low", space.low), ("high", space.high)):
            self.register_buffer(name, torch.as_tensor(bound, dtype=torch.float32, device=device), persistent=False)

    def draw(self, outputs: Tensor, streams: MemberStreams) -> Tensor:
        """An action for each row, wherever the Gaussian's tails reach."""
        return self._shaped(outputs + self.log_std.exp()[:, None] * streams.normal(outputs))

    def best(self, outputs: Tensor) -> Tensor:
        """The middle of each row's Gaussian."""
        return self._shaped(outputs)

    def uniform(self, envs: int, streams: MemberStreams) -> Tensor:
        """Actions uniform over the space, which must have bounds."""
        if not self.space.is_bounded():
            raise ValueError(f"action space {self.space} has no bounds, so there are no uniform actions in it")
        share = streams.uniform(torch.empty((self.members, envs, *self.shape), device=self.log_std.device))
        low, high = self.get_buffer("low"), self.get_buffer("high")
        return self.in_space(low + share * (high - low))

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Logarithms of densities (P, B)."""
        log_std = self.log_std[:, None]
        distance = (action.view_as(outputs) - outputs) * (-log_std).exp()
        return (-0.5 * distance.square() - log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies (P, B), the same in every row."""
        entropy = (self.log_std + 0.5 * (1.0 + math.log(2.0 * math.pi))).sum(-1)
        return entropy[:, None].expand(outputs.shape[:2])

    def in_space(self, action: Tensor) -> Tensor:
        """Actions clipped to the space's bounds."""
        return action.clamp(self.get_buffer("low"), self.get_buffer("high"))

    def _shaped(self, flat: Tensor) -> Tensor:
        return flat.reshape(*flat.shape[:2], *self.shape)


def policy_for(space: gym.Space[Any], members: int, device: torch.device) -> Categorical | Gaussian:
    """The policy that suits an action space."""
    if isinstance(space, gym.spaces.Discrete):
        return Categorical(space, members, device)
    if isinstance(space, gym.spaces.Box):
        return Gaussian(space, members, device)
    raise no_agent_for(space)


def _exponential(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.empty_like(like).exponential_(generator=generator)
