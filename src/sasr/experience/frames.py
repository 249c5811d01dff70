"""Stacks of frames: the newest images of an episode, which the policy sees at once; all else sees one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

SMALLEST_SIDE = 36
"""Pixels that an image must have in each direction, or the last convolution would have nothing to look at."""
USUAL_STACK = 4
"""Frames that Atari agents see at once (Mnih et al., 2015)."""
_LAYOUTS = (
    f"(height, width), (channels, height, width) or (height, width, channels), with at least {SMALLEST_SIDE} pixels "
    f"each way and fewer than {SMALLEST_SIDE} channels"
)


def picture_axes(space: gym.Space[Any]) -> tuple[int, int, int] | None:
    """Which axes of an observation are channels, height and width, if it is a picture; −1 where there is no channel.

    >>> [picture_axes(gym.spaces.Box(0, 255, shape, "uint8")) for shape in ((84, 84), (96, 96, 3), (4, 84, 84), (128,))]
    [(-1, 0, 1), (2, 0, 1), (0, 1, 2), None]
    """
    shape = space.shape if isinstance(space, gym.spaces.Box) else ()
    if len(shape) == 2 and min(shape) >= SMALLEST_SIDE:
        return (-1, 0, 1)
    # Of three axes the shortest is the channels, wherever it stands: first where frames are stacked, last in colour.
    for axes in ((0, 1, 2), (2, 0, 1)):
        if len(shape) == 3 and shape[axes[0]] < SMALLEST_SIDE <= min(shape[axes[1]], shape[axes[2]]):
            return axes
    return None


def stack_depth(space: gym.Space[Any], asked: int | None = None, *, time_limit: int | None = None) -> int:
    """How many frames the policy sees at once: those asked for, or what is usual for such observations.

    Args:
        space: What one observation is like.
        asked: The setting; None is 4 for grey or coloured images, and 1 for vectors and for images that are stacked.
        time_limit: Steps of an episode, where there is a limit.

    >>> [stack_depth(gym.spaces.Box(0, 255, shape, "uint8")) for shape in ((84, 84), (96, 96, 3), (4, 84, 84), (128,))]
    [4, 4, 1, 1]
    """
    axes, shape = picture_axes(space), space.shape or ()
    if axes is None and space.dtype == np.uint8 and sum(side >= SMALLEST_SIDE for side in shape) > 1:
        raise ValueError(f"images of shape {shape} can't be told apart from their channels: an image is {_LAYOUTS}")
    if axes is None:
        if asked not in (None, 1):
            raise ValueError(
                f"frame_stack={asked} is for images, {_LAYOUTS}, and observations have shape {shape}; leave it out"
            )
        return 1
    channels = 1 if axes[0] < 0 else shape[axes[0]]
    shown = USUAL_STACK if time_limit is None else time_limit + 1
    if asked is None:
        return min(USUAL_STACK, shown) if channels in (1, 3) else 1
    if asked < 1:
        raise ValueError(f"frame_stack={asked} must be at least 1 frame")
    if time_limit is not None and asked > shown:
        raise ValueError(
            f"frame_stack={asked} is longer than an episode: {time_limit} steps show {shown} frames; at most "
            f"frame_stack={shown} makes sense here"
        )
    if asked * channels >= SMALLEST_SIDE:
        raise ValueError(
            f"frame_stack={asked} of {channels} channels is {asked * channels} channels, and an image is {_LAYOUTS}; "
            f"at most frame_stack={(SMALLEST_SIDE - 1) // channels} fits"
        )
    return asked


class StackLayout:
    """Where frames stand in a stack: along the channels, or an axis of their own before grey ones; the newest last.

    >>> layout = StackLayout(gym.spaces.Box(0, 255, (84, 84), "uint8"), 4)
    >>> layout.space.shape
    (4, 84, 84)
    """

    def __init__(self, space: gym.Space[Any], depth: int) -> None:
        """Take images of a space, `depth` of them at once."""
        axes = picture_axes(space)
        if axes is None or not isinstance(space, gym.spaces.Box):
            raise ValueError(f"frame_stack={depth} is for images, {_LAYOUTS}; observations are {space}")
        self.depth = depth
        self.has_channels = axes[0] >= 0
        self.axis = -1 if axes[0] == 2 else -3
        self.width = space.shape[axes[0]] if self.has_channels else 1
        low, high = space.low, space.high
        if not self.has_channels:
            low, high = low[None], high[None]
        low, high = (np.concatenate([bound] * depth, axis=self.axis) for bound in (low, high))
        self.space: gym.spaces.Box = gym.spaces.Box(low, high, dtype=space.dtype.type)

    def join(self, frames: Sequence[Tensor]) -> Tensor:
        """Stacks (…, *stack shape) of frames (…, *image shape), the oldest first."""
        return torch.cat([self._with_channels(frame) for frame in frames], dim=self.axis)

    def newest(self, stacks: Tensor) -> Tensor:
        """The newest frame (…, *image shape) of each stack."""
        frame = stacks.narrow(self.axis, (self.depth - 1) * self.width, self.width)
        return frame if self.has_channels else frame.squeeze(self.axis)

    def push(self, stacks: Tensor, frame: Tensor) -> Tensor:
        """Stacks with one more frame, without their oldest one."""
        kept = stacks.narrow(self.axis, self.width, (self.depth - 1) * self.width)
        return torch.cat([kept, self._with_channels(frame)], dim=self.axis)

    def _with_channels(self, frame: Tensor) -> Tensor:
        return frame if self.has_channels else frame.unsqueeze(self.axis)


class FrameHistory(nn.Module):
    """The stacks of P × E environments under way. An episode begins with its first frame repeated."""

    stacks: Tensor  # (P, E, *stack shape) as of the step before
    starts: Tensor  # (P, E) bool: the next frame is an episode's first

    def __init__(self, layout: StackLayout, members: int, environments: int, dtype: torch.dtype) -> None:
        """Begin an episode in every environment, on the CPU."""
        super().__init__()
        self.layout = layout
        shape = (members, environments, *layout.space.shape)
        self.register_buffer("stacks", torch.zeros(shape, dtype=dtype))
        self.register_buffer("starts", torch.ones((members, environments), dtype=torch.bool))

    def seen(self, obs: Tensor) -> Tensor:
        """Stacks (P, E, *stack shape) that end with the frames obs (P, E, *image shape); changes nothing."""
        first = self.starts.view(*self.starts.shape, 1, 1, 1)
        return torch.where(first, self.layout.join([obs] * self.layout.depth), self.layout.push(self.stacks, obs))

    def add(self, obs: Tensor, ended: Tensor) -> None:
        """Append the frames that a step began with; where the episode ended with it (P, E), a new one begins."""
        self.stacks.copy_(self.seen(obs))
        self.starts.copy_(ended)

    def restart(self, interrupted: Tensor) -> None:
        """New episodes begin where `interrupted` (P, E), though none ended."""
        self.starts |= interrupted
