"""TwoRooms: a point, a wall with a door, and a goal at the far end that nothing points to."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

LENGTH = 2.0
"""Of both rooms together, along x; they are 1 wide."""
WALL = 1.0
DOOR = (0.75, 0.95)
"""Where the wall is open, along y."""
START = (0.1, 0.1)
GOAL = (1.9, 0.1)
RADIUS = 0.1
"""A step that ends this near to the goal reaches it."""
STRIDE = 0.05
"""The longest step along each axis."""


class TwoRooms(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A point that an action moves; it stops where it would leave a room by anything but the door.

    The observation is its place, (x, y). The reward is 1 at the goal, which ends the episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(self, *, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Box(np.zeros(2, np.float32), np.array([LENGTH, 1.0], np.float32))
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.x, self.y = START

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin near the near end's corner."""
        super().reset(seed=seed)
        self.x, self.y = (at + self.np_random.uniform(-0.05, 0.05) for at in START)
        return self._observation(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move, as far as the walls let it."""
        # Plain floats: for two numbers numpy would take several times as long.
        along, across = action.tolist()
        self._move(STRIDE * min(max(along, -1.0), 1.0), STRIDE * min(max(across, -1.0), 1.0))
        reached = (self.x - GOAL[0]) ** 2 + (self.y - GOAL[1]) ** 2 <= RADIUS**2
        info = {"is_success": reached, "success_ever": reached}
        return self._observation(), float(reached), reached, False, info

    def _move(self, dx: float, dy: float) -> None:
        x, y = min(max(self.x + dx, 0.0), LENGTH), min(max(self.y + dy, 0.0), 1.0)
        if (self.x < WALL) != (x < WALL):
            at = self.y + (y - self.y) * (WALL - self.x) / (x - self.x)  # where its way crosses the wall
            if not DOOR[0] <= at <= DOOR[1]:
                x = WALL if self.x >= WALL else np.nextafter(WALL, 0.0, dtype=float)
        self.x, self.y = float(x), y

    def _observation(self) -> NDArray[np.float32]:
        return np.array((self.x, self.y), np.float32)

    def render(self) -> NDArray[np.uint8] | None:
        """The rooms from above: walls dark, the goal green, the point red."""
        if self.render_mode is None:
            return None
        side = 200
        y, x = np.mgrid[side - 1 : -1 : -1, 0 : LENGTH * side] / side
        picture = np.full((*x.shape, 3), 245, np.uint8)
        outside = (np.minimum(x, LENGTH - x) < 0.01) | (np.minimum(y, 1.0 - y) < 0.01)
        picture[outside | (abs(x - WALL) < 0.01) & ((y < DOOR[0]) | (y > DOOR[1]))] = 40
        picture[(x - GOAL[0]) ** 2 + (y - GOAL[1]) ** 2 <= RADIUS**2] = (60, 170, 90)
        picture[(x - self.x) ** 2 + (y - self.y) ** 2 <= 0.03**2] = (200, 50, 40)
        return picture
