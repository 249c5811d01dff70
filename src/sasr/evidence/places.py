"""Counts for images: how often what the agent controls was in the same place.

By their pixels frames of a game are hardly compared: most of what moves is not the agent. So a model learns which
action lies between two frames (inverse dynamics), and may look at few cells of the frame only, which it chooses by the
first frame alone. To predict actions it has to look where they show (contingency awareness, Choi et al., 2019).

The map of attention over cells takes the part of random Fourier features: z(s)·z(s′) is 1 for two frames with the same
map and 0 for two maps that share no cell. The sum of z over stored frames then counts visits (Algorithm 1).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy, mse_loss, pad

from sasr.evidence.counts import LinearCounts
from sasr.evidence.features import Features, StateNormaliser
from sasr.experience.flatten import action_width, flatten_actions
from sasr.experience.frames import picture_axes
from sasr.experience.types import Batch
from sasr.networks.adam import Adam
from sasr.networks.convolution import PopulationConv
from sasr.networks.layers import PopulationLinear
from sasr.randomness import MemberStreams

CHANNELS = 16
KERNEL, STRIDE, MARGIN = 8, 4, 2
"""A cell is what the first convolution sees: 8 pixels, every 4 pixels, 2 of them beyond the border."""
ROWS = 64
"""Steps of a batch that the model learns from, at most: it learns at every update and needs no more."""
CHUNK = 512
"""Frames that are mapped at once: it bounds the memory that a rebuild takes."""
LEARNING_RATE = 2e-3


class PlaceFeatures(Features):
    """z(s) of P seeds: where in a frame the action shows, as a unit vector over cells.

    `learn` trains the attention; states are mapped by a frozen copy, renewed by `freeze` when the sums are rebuilt.
    """

    bandwidth: Tensor  # (P,) 1: a cell; there is no width to choose

    def __init__(
        self,
        observation_space: gym.Space[object],
        action_space: gym.Space[object],
        *,
        seeds: Sequence[int] = (0,),
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        axes, shape = picture_axes(observation_space), observation_space.shape
        if axes is None or shape is None:
            raise ValueError(
                f"observation space {observation_space} is no image: give two axes of at least 36 pixels and, first or "
                "last, fewer channels"
            )
        self.axes, self.shape, self.action_space = axes, shape, action_space
        channels = 1 if axes[0] < 0 else shape[axes[0]]
        self.discrete = isinstance(action_space, gym.spaces.Discrete)
        self.rows, self.columns = (_cells(shape[axis]) for axis in axes[1:])
        self.count = self.rows * self.columns

        device = device or torch.device("cpu")
        # Drawn on the CPU whatever the device, so that a seed has the same weights everywhere.
        init = MemberStreams(seeds, "places", torch.device("cpu")).generators
        self.attention = Attention(channels, init, device)
        self.frozen = copy.deepcopy(self.attention).requires_grad_(False)
        self.change = PopulationConv(
            2 * channels, CHANNELS, kernel=KERNEL, stride=STRIDE, generators=init, device=device
        )
        self.mix = PopulationConv(CHANNELS, 2 * CHANNELS, kernel=1, generators=init, device=device)
        self.action = PopulationLinear(2 * CHANNELS, action_width(action_space), generators=init, device=device)
        learned = [
            *self.attention.parameters(),
            *self.change.parameters(),
            *self.mix.parameters(),
            *self.action.parameters(),
        ]
        self.adam = Adam(learned, lr=LEARNING_RATE)
        self.register_buffer("bandwidth", torch.ones(len(seeds), device=device))

    # ------------------------------------------------- from frames to features

    def of_member(self, member: int, states: Tensor) -> Tensor:
        """Features (n, cells) of one seed's standardised frames (n, k)."""
        return torch.cat([self._unit(member, part) for part in torch.split(states, CHUNK)])

    def forward(self, states: Tensor) -> Tensor:
        """Features (P, B, cells) of standardised frames (P, B, k)."""
        return torch.stack([self.of_member(p, rows) for p, rows in enumerate(states)])

    @torch.no_grad()
    def _unit(self, member: int, states: Tensor) -> Tensor:
        # Squared: what little attention is spread over many cells would add up to visits that never were.
        squared = self.frozen.of_member(member, self._frames(states)).flatten(1).square()
        unit: Tensor = squared / squared.norm(dim=1, keepdim=True)
        return unit

    def freeze(self, member: int) -> None:
        """From now on map this seed's frames by the attention as it is."""
        with torch.no_grad():
            for old, new in zip(self.frozen.parameters(), self.attention.parameters(), strict=True):
                old[member] = new[member]

    # ------------------------------------------------------- inverse dynamics

    def learn(self, states: Tensor, action: Tensor, next_states: Tensor) -> Tensor:
        """One update from standardised frames (P, B, k) and actions (P, B, …); how wrong the actions were, (P,)."""
        members = [part[:, :ROWS].unbind() for part in (states, action, next_states)]
        with torch.enable_grad():
            losses = [self._loss(p, *rows) for p, rows in enumerate(zip(*members, strict=True))]
            loss = torch.stack(losses)
            self.adam.minimise(loss.sum())
        return loss.detach()

    def _loss(self, member: int, states: Tensor, action: Tensor, next_states: Tensor) -> Tensor:
        before, after = self._frames(states), self._frames(next_states)
        weight = self.attention.of_member(member, before)  # (B, rows, columns)
        cells = _convolve(self.change, member, torch.cat([before, after - before], dim=1), margin=MARGIN).relu()
        cells = _convolve(self.mix, member, cells).relu()
        seen = (cells * weight[:, None]).sum((2, 3))
        predicted = seen @ self.action.weight[member] + self.action.bias[member]
        taken = flatten_actions(self.action_space, action, 1)
        if not self.discrete:
            return mse_loss(predicted, taken)
        # Each action weighs the same: a policy that mostly does one thing would leave little to learn from.
        weight_of_step = (taken / taken.sum(0).clamp(min=1.0)).sum(1)
        errors = cross_entropy(predicted, taken, reduction="none")
        return (errors * weight_of_step).sum() / weight_of_step.sum()

    def _frames(self, states: Tensor) -> Tensor:
        """Frames (n, k) as (n, channels, height, width)."""
        frames = states.view(-1, *self.shape)
        if self.axes[0] < 0:
            return frames[:, None]
        return frames.movedim(-1, 1) if self.axes[0] == 2 else frames


class Attention(nn.Module):
    """P networks that say where in a frame to look: a softmax over cells of what is there and of where that is."""

    def __init__(self, channels: int, generators: Sequence[torch.Generator], device: torch.device) -> None:
        super().__init__()
        self.see = PopulationConv(
            channels, CHANNELS, kernel=KERNEL, stride=STRIDE, generators=generators, device=device
        )
        self.around = PopulationConv(CHANNELS, CHANNELS, kernel=3, generators=generators, device=device)
        # The place itself too: two sprites that look alike differ in where they may be.
        self.score = PopulationConv(CHANNELS + 2, 1, kernel=1, generators=generators, device=device)

    def of_member(self, member: int, frames: Tensor) -> Tensor:
        """Attention (n, rows, columns) of one seed to frames (n, channels, height, width); sums to 1 for each frame."""
        x = _convolve(self.see, member, frames, margin=MARGIN).relu()
        x = _convolve(self.around, member, x, margin=1).relu()
        scores = _convolve(self.score, member, torch.cat([x, _places(x)], dim=1))[:, 0]
        attention: Tensor = scores.flatten(1).softmax(-1)
        return attention.view_as(scores)


class PlaceCounts(LinearCounts):
    """z(s)·Z, where z says in which cell of the image the agent's action shows."""

    features: PlaceFeatures

    capturable = False  # not tried in a CUDA graph yet

    def renew(self, member: int, bandwidth: Callable[[], float]) -> None:
        """Map one seed's frames by the attention as it is now; there is no width to choose."""
        self.features.freeze(member)

    def learn(self, batch: Batch, normaliser: StateNormaliser) -> dict[str, Tensor]:
        """One update of the attention; how wrong the actions were, (P,)."""
        before, after = normaliser(batch.obs.flatten(2)), normaliser(batch.next_obs.flatten(2))
        return {"action_loss": self.features.learn(before, batch.action, after)}


def _convolve(layer: PopulationConv, member: int, x: Tensor, *, margin: int = 0) -> Tensor:
    # One seed at a time, so that its bits do not depend on how many others there are.
    return conv2d(pad(x, (margin,) * 4), layer.weight[member], layer.bias[member], stride=layer.stride)


def _places(x: Tensor) -> Tensor:
    """Row and column of each cell of x (n, channels, rows, columns), from −1 to 1, (n, 2, rows, columns)."""
    rows, columns = (torch.linspace(-1.0, 1.0, size, device=x.device) for size in x.shape[2:])
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    return grid.expand(len(x), -1, -1, -1)


def _cells(pixels: int) -> int:
    return math.floor((pixels + 2 * MARGIN - KERNEL) / STRIDE) + 1
