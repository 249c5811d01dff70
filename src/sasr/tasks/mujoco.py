"""The Ant, Humanoid and Walker tasks: Gymnasium's simulations with a sparse reward in place of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from sasr.tasks import rendering
from sasr.tasks.catalogue import Profile

try:
    from gymnasium.envs.mujoco.ant_v5 import AntEnv
    from gymnasium.envs.mujoco.humanoid_v5 import HumanoidEnv
    from gymnasium.envs.mujoco.humanoidstandup_v5 import HumanoidStandupEnv
    from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
    from gymnasium.envs.mujoco.walker2d_v4 import Walker2dEnv
except Exception as error:  # Gymnasium raises its own class here, MuJoCo's loader others
    raise ImportError(f'the Ant, Human and Walker tasks need MuJoCo: pip install "sasr[mujoco]" ({error})') from error

Observation = NDArray[np.float32]

# Where the 348 entries of a v5 humanoid stand among the 376 of v4: v4 also had the world body's inertia (10), velocity
# (6) and contact force (6), and the free joint's actuator force (6), all of which are always zero.
_V4_FROM_V5 = np.concatenate(
    [np.arange(0, 45), np.arange(55, 185), np.arange(191, 269), np.arange(275, 292), np.arange(298, 376)]
)


class _Sparse(MujocoEnv):
    """1.0 on every step whose end state has reached the threshold, 0.0 on every other."""

    quantity_name = "height"

    if TYPE_CHECKING:  # Gymnasium's classes have it without types

        def _get_obs(self) -> NDArray[Any]: ...

    def __init__(self, *, profile: Profile, threshold: float, **kwargs: Any) -> None:
        if profile not in ("code", "paper"):
            raise ValueError(f"profile={profile!r} must be 'code' or 'paper'")
        rendering.require(kwargs.get("render_mode"))
        self.profile = profile
        self.threshold = threshold
        self.success_ever = False
        super().__init__(**kwargs)
        size = self._get_obs().size
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)

    def quantity(self, info: dict[str, Any]) -> float:
        """What the threshold is compared with, after the step."""
        return float(self.data.qpos[2])

    def reached(self, value: float) -> bool:
        """Whether a step that ends with this value is paid."""
        return value >= self.threshold

    def step(self, action: NDArray[np.float32]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Simulate, then pay by the end state; the step that ends an episode is paid like any other."""
        observation, _, terminated, _, info = super().step(action)
        value = self.quantity(info)
        success = self.reached(value)
        self.success_ever |= success
        told = {self.quantity_name: value, "is_success": success, "success_ever": self.success_ever}
        return observation, float(success), bool(terminated), False, told

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode as Gymnasium's task does."""
        self.success_ever = False
        observation, _ = super().reset(**kwargs)
        return observation, {}


class _Ant(_Sparse, AntEnv):
    def __init__(self, *, profile: Profile = "code", threshold: float, **kwargs: Any) -> None:
        contact_forces = profile == "paper"
        super().__init__(profile=profile, threshold=threshold, include_cfrc_ext_in_observation=contact_forces, **kwargs)
        EzPickle.__init__(self, profile=profile, threshold=threshold, **kwargs)

    def achieved(self, body: NDArray[np.float64]) -> float:
        """The authors' "achieved goal" entry, computed from the 27 body entries."""
        raise NotImplementedError

    def _get_obs(self) -> Observation:
        body = super()._get_obs()
        if self.profile == "paper":
            return body.astype(np.float32)
        return np.append(body, (self.achieved(body), self.threshold)).astype(np.float32)


class AntStand(_Ant):
    """Paid while the torso is high."""

    def __init__(self, *, threshold: float = 0.9, **kwargs: Any) -> None:
        super().__init__(threshold=threshold, **kwargs)

    def achieved(self, body: NDArray[np.float64]) -> float:
        """A quaternion entry: the authors index the position after cutting x and y from it."""
        return float(body[2])


class AntFar(_Ant):
    """Paid while the torso is far from the origin; `observe_distance` puts the true distance into the observation."""

    quantity_name = "distance"

    def __init__(self, *, threshold: float = 3.0, observe_distance: bool = False, **kwargs: Any) -> None:
        self.observe_distance = observe_distance
        super().__init__(threshold=threshold, **kwargs)
        EzPickle.__init__(self, threshold=threshold, observe_distance=observe_distance, **kwargs)

    def achieved(self, body: NDArray[np.float64]) -> float:
        """The norm of two quaternion entries, as the authors have it; nothing in it tells the distance."""
        return self.quantity({}) if self.observe_distance else float(np.hypot(body[1], body[2]))

    def quantity(self, info: dict[str, Any]) -> float:
        """Distance of the torso's frame from the world's origin, not from the noisy start."""
        return float(np.linalg.norm(self.data.body("torso").xpos[:2]))


class AntSpeed(_Ant):
    """Paid while the torso moves fast along x, either way."""

    quantity_name = "speed"

    def __init__(self, *, threshold: float = 3.6, **kwargs: Any) -> None:
        super().__init__(threshold=threshold, **kwargs)

    def achieved(self, body: NDArray[np.float64]) -> float:
        """The last ankle's velocity: the authors' index 13 goes into the velocities, not into the observation."""
        return float(body[26])

    def quantity(self, info: dict[str, Any]) -> float:
        """|Δx| / Δt over the step."""
        return abs(float(info["x_velocity"]))

    def reached(self, value: float) -> bool:
        """Strictly faster."""
        return value > self.threshold


class _Human(_Sparse, EzPickle):
    def __init__(self, *, profile: Profile = "code", threshold: float, pad_zeros: bool = True, **kwargs: Any) -> None:
        self.pad_zeros = pad_zeros and profile == "code"
        super().__init__(profile=profile, threshold=threshold, **kwargs)
        EzPickle.__init__(self, profile=profile, threshold=threshold, pad_zeros=pad_zeros, **kwargs)

    def _get_obs(self) -> Observation:
        body = super()._get_obs()
        if not self.pad_zeros:
            return body.astype(np.float32)
        padded = np.zeros(376, np.float32)
        padded[_V4_FROM_V5] = body
        return padded


class UprightHuman(_Human, HumanoidEnv):
    """Starts on its feet and is paid until it sinks; falling ends the episode. Code profile of HumanStand."""

    def __init__(self, *, threshold: float = 1.3, **kwargs: Any) -> None:
        super().__init__(threshold=threshold, **kwargs)


class LyingHuman(_Human, HumanoidStandupEnv):
    """Starts on its back and is paid while the torso is off the floor. Code profile of HumanKeep."""

    def __init__(self, *, threshold: float = 0.2, **kwargs: Any) -> None:
        super().__init__(threshold=threshold, **kwargs)


class WalkerKeep(_Sparse, Walker2dEnv):
    """Paid while the walker's torso is higher than it starts."""

    def __init__(self, *, threshold: float = 1.3, profile: Profile = "code", **kwargs: Any) -> None:
        super().__init__(threshold=threshold, profile=profile, **kwargs)
        EzPickle.__init__(self, threshold=threshold, profile=profile, **kwargs)

    def quantity(self, info: dict[str, Any]) -> float:
        """Height of the torso; the walker lives in a plane, so it is the second coordinate."""
        return float(self.data.qpos[1])

    def _get_obs(self) -> Observation:
        body = super()._get_obs()
        return np.append(body, (self.data.qpos[1], self.threshold)).astype(np.float32)
