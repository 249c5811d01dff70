"""The critics of agents for continuous actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sasr.networks.layers import PopulationMLP
from sasr.randomness import MemberStreams


class TwinCritic(nn.Module):
    """Two action-value functions for each member: network p is member p's first one, network P + p its second."""

    def __init__(
        self, width: int, hidden: Sequence[int], init: MemberStreams, device: torch.device, *, norm: str = "none",
        bins: int = 0, low: float = 0.0, high: float = 0.0
    ) -> None:
        """Draw the first weights, for observations and actions of `width` entries together."""
        super().__init__()
        self.bins = bins
        self.net = PopulationMLP((width, *hidden, max(bins, 1)), generators=[*init.generators] * 2, device=device, norm=norm)
        if bins:
            edges = torch.linspace(low, high, bins + 1, device=device)
            self.register_buffer('edges', edges)
            self.register_buffer('centres', (edges[1:] + edges[:-1]) / 2)

    def forward(self, obs: Tensor, action: Tensor, *, frozen: bool = False) -> Tensor:
        """Values (2, P, B); `frozen` passes gradients to the actions, and none to the weights."""
        if self.bins:
            logits = self.logits(obs, action, frozen=frozen)
            return (logits.softmax(-1) * self.centres).sum(-1)
        # One population of 2·P networks, so that an accelerator launches half the kernels.
        values: Tensor = self.net(obs, action, frozen=frozen)
        return values.view(2, *obs.shape[:2])

    def logits(self, obs: Tensor, action: Tensor, *, frozen: bool = False) -> Tensor:
        out: Tensor = self.net(obs, action, frozen=frozen)
        return out.view(2, *obs.shape[:2], self.bins)

    def projected(self, target: Tensor) -> Tensor:
        width = self.edges[1] - self.edges[0]
        cdf = torch.special.erf((self.edges - target.clamp(self.edges[0], self.edges[-1]).unsqueeze(-1)) / (0.75 * width * 2.0**0.5))
        return (cdf[..., 1:] - cdf[..., :-1]) / (cdf[..., -1:] - cdf[..., :1])

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values (P, B) of the first critics alone; their weights have no gradient here, the actions have."""
        weights = {name: parameter.detach()[: len(obs)] for name, parameter in self.net.named_parameters()}
        values: Tensor = functional_call(self.net, weights, (obs, action))
        return values.squeeze(-1)
