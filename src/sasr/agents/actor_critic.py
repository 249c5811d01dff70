"""Networks of agents that learn a policy and state values together, from vectors or from pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sasr.agents.base import as_vectors
from sasr.evidence.features import StateNormaliser
from sasr.experience.flatten import state_width
from sasr.experience.frames import picture_axes
from sasr.networks.convolution import PopulationConv
from sasr.networks.encoder import PopulationNet
from sasr.networks.layers import PopulationLinear, PopulationMLP, make_orthogonal

_GAIN = 2.0**0.5
# A policy that starts nearly the same in every state need not unlearn anything first.
_POLICY_GAIN, _VALUE_GAIN = 0.01, 1.0
_FAR = 10.0  # deviations from the mean at which a standardised observation is clipped


class FromVectors(nn.Module):
    """A perceptron for the policy's outputs and another one for the H values, of each of P seeds."""

    def __init__(
        self,
        width: int,
        outputs: int,
        heads: int,
        *,
        hidden: Sequence[int],
        activation: str,
        standardise: bool,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        super().__init__()
        self.normaliser = StateNormaliser(len(generators), width, enabled=standardise, clip=_FAR, device=device)

        def perceptron(last: int, gain: float) -> PopulationMLP:
            net = PopulationMLP((width, *hidden, last), generators=generators, device=device, activation=activation)
            make_orthogonal(net.layers, generators=generators, gain=_GAIN, last_gain=gain)
            return net

        self.actor, self.critic = perceptron(outputs, _POLICY_GAIN), perceptron(heads, _VALUE_GAIN)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's outputs (P, B, outputs) and values (P, B, H) for observations (P, B, *shape)."""
        return self.policy(obs), self.value(obs)

    def policy(self, obs: Tensor) -> Tensor:
        """The policy's outputs alone."""
        outputs: Tensor = self.actor(self._vectors(obs))
        return outputs

    def value(self, obs: Tensor) -> Tensor:
        """Values alone."""
        values: Tensor = self.critic(self._vectors(obs))
        return values

    def _vectors(self, obs: Tensor) -> Tensor:
        vectors: Tensor = self.normaliser(as_vectors(obs, torch.float32))
        return vectors

    def update_normaliser(self, obs: Tensor) -> None:
        """Standardise from now on by these observations (P, B, *shape) and all before them."""
        if self.normaliser.enabled:
            self.normaliser.observe(as_vectors(obs, torch.float32).cpu())
            for member in range(len(obs)):
                self.normaliser.freeze(member)


class FromPictures(nn.Module):
    """One encoder of each of P seeds for its policy and its values: convolutions are most of the work."""

    def __init__(
        self,
        space: gym.Space[Any],
        outputs: int,
        heads: int,
        *,
        features: int,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self.net = PopulationNet(space, outputs + heads, features=features, generators=generators, device=device)
        layers = [part for part in self.net.modules() if isinstance(part, PopulationConv | PopulationLinear)]
        make_orthogonal(layers, generators=generators, gain=_GAIN, last_gain=_VALUE_GAIN)
        with torch.no_grad():
            layers[-1].weight[..., :outputs] *= _POLICY_GAIN

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's outputs (P, B, outputs) and values (P, B, H) for observations (P, B, *shape)."""
        both: Tensor = self.net(obs)
        return both[..., : self.outputs], both[..., self.outputs :]

    def policy(self, obs: Tensor) -> Tensor:
        """The policy's outputs alone."""
        return self.forward(obs)[0]

    def value(self, obs: Tensor) -> Tensor:
        """Values alone."""
        return self.forward(obs)[1]

    def update_normaliser(self, obs: Tensor) -> None:
        """Nothing: brightness is on one scale everywhere."""


def actor_critic_for(
    space: gym.Space[Any],
    outputs: int,
    heads: int,
    *,
    hidden: Sequence[int],
    activation: str,
    standardise: bool,
    features: int,
    generators: Sequence[torch.Generator],
    device: torch.device,
) -> FromVectors | FromPictures:
    """Networks that suit an observation space, with orthogonal first weights.

    Args:
        space: What observations are like.
        outputs: Numbers that the policy takes.
        heads: Values H of a state.
        hidden: Widths of the hidden layers, for vectors.
        activation: What stands between these layers.
        standardise: Bring each entry of a vector to mean 0 and deviation 1, by what `update_normaliser` was given.
        features: Width of the layer after the convolutions, for pictures.
        generators: One on the CPU for each of the P seeds.
        device: Where the weights will be.
    """
    if picture_axes(space) is not None:
        return FromPictures(space, outputs, heads, features=features, generators=generators, device=device)
    return FromVectors(
        state_width(space),
        outputs,
        heads,
        hidden=hidden,
        activation=activation,
        standardise=standardise,
        generators=generators,
        device=device,
    )
