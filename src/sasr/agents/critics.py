"""The critics of agents for continuous actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sasr.networks.layers import NormName, PopulationMLP
from sasr.randomness import MemberStreams


class TwinCritic(nn.Module):
    """Two action-value functions for each member: network p is member p's first one, network P + p its second."""

    def __init__(
        self, width: int, hidden: Sequence[int], init: MemberStreams, device: torch.device, *, norm: NormName = "none"
    ) -> None:
        """Draw the first weights, for observations and actions of `width` entries together."""
        super().__init__()
        self.net = PopulationMLP((width, *hidden, 1), generators=[*init.generators] * 2, device=device, norm=norm)

    def forward(self, obs: Tensor, action: Tensor, *, frozen: bool = False) -> Tensor:
        """Values (2, P, B); `frozen` passes gradients to the actions, and none to the weights."""
        # One population of 2·P networks, so that an accelerator launches half the kernels.
        values: Tensor = self.net(obs, action, frozen=frozen)
        return values.view(2, *obs.shape[:2])

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values (P, B) of the first critics alone; their weights have no gradient here, the actions have."""
        weights = {name: parameter.detach()[: len(obs)] for name, parameter in self.net.named_parameters()}
        values: Tensor = functional_call(self.net, weights, (obs, action))
        return values.squeeze(-1)
