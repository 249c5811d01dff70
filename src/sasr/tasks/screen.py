"""A console's screen as agents see it: grey, of the last two frames the brighter, 84×84 pixels (Mnih et al., 2015)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SIDE = 84
NO_OPS = 30


class Screen(gym.Wrapper[NDArray[Any], np.int64, NDArray[np.uint8], np.int64]):
    """Repeats an action for some frames and shows the end of that, after up to 30 no-ops at the start.

    What `gymnasium.wrappers.AtariPreprocessing` does, without OpenCV, whose 58 MiB would serve for the resize alone.
    """

    def __init__(
        self, console: gym.Env[NDArray[np.uint8], np.int64], *, frame_skip: int = 4, scale: bool = False
    ) -> None:
        """Wrap a console.

        Args:
            console: One whose observations are grey frames.
            frame_skip: Frames an action is repeated for; 1 where the console repeats it itself, and two are not pooled.
            scale: Brightness from 0 to 1 instead of bytes.
        """
        super().__init__(console)
        self.frame_skip, self.scale = frame_skip, scale
        height, width = console.observation_space.shape or (0, 0)
        self.rows, self.columns = taps(area_weights(height, SIDE)), taps(area_weights(width, SIDE))
        high, dtype = (1, np.float32) if scale else (255, np.uint8)
        self.observation_space = gym.spaces.Box(0, high, (SIDE, SIDE), dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start a game, and wait for as long as its generator says."""
        frame, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.env.unwrapped.np_random.integers(1, NO_OPS + 1))):
            frame, _, terminated, truncated, step_info = self.env.step(np.int64(0))
            info |= step_info
            if terminated or truncated:
                frame, info = self.env.reset(seed=seed, options=options)
        return self._shown(frame), info

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Repeat an action; the points add up."""
        points = 0.0
        frame = before = None
        for _ in range(self.frame_skip):
            before = frame
            frame, reward, terminated, truncated, info = self.env.step(action)
            points += float(reward)
            if terminated or truncated:
                break
        assert frame is not None
        # Some consoles draw a sprite in every other frame only.
        brighter = frame if before is None else np.maximum(frame, before)
        return self._shown(brighter), points, terminated, truncated, info

    def _shown(self, frame: NDArray[np.uint8]) -> NDArray[Any]:
        # Not a matrix product: of these small ones the library's threads cost twenty times as much on busy cores.
        bright = frame.astype(np.float32)
        lines = np.zeros((SIDE, frame.shape[1]), np.float32)
        for pixel, share in self.rows:
            lines += bright[pixel] * share[:, None]
        small = np.zeros((SIDE, SIDE), np.float32)
        for pixel, share in self.columns:
            small += lines[:, pixel] * share
        np.rint(small, out=small)
        shown: NDArray[Any] = small / np.float32(255.0) if self.scale else small.astype(np.uint8)
        return shown


def area_weights(source: int, target: int) -> NDArray[np.float32]:
    """Shares (target, source) of each pixel of a line in each of fewer, larger ones: the part that lies in it.

    >>> area_weights(3, 2).round(2).tolist()
    [[0.6700000166893005, 0.33000001311302185, 0.0], [0.0, 0.33000001311302185, 0.6700000166893005]]
    """
    size = source / target
    start, pixel = np.arange(target)[:, None] * size, np.arange(source)[None]
    overlap = np.minimum(start + size, pixel + 1) - np.maximum(start, pixel)
    return np.asarray(overlap.clip(min=0.0) / size, np.float32)


def taps(weights: NDArray[np.float32]) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The same shares as a few pairs: for every larger pixel (target,) a pixel of the line and its share.

    >>> [(pixel.tolist(), share.round(2).tolist()) for pixel, share in taps(area_weights(4, 2))]
    [([0, 2], [0.5, 0.5]), ([1, 3], [0.5, 0.5])]
    """
    target, source = weights.shape
    first = (weights > 0).argmax(1)
    pairs = []
    for step in range(int((weights > 0).sum(1).max())):
        pixel = np.minimum(first + step, source - 1)
        share = np.where(first + step < source, weights[np.arange(target), pixel], np.float32(0.0))
        pairs.append((pixel, share))
    return pairs
