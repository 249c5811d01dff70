"""The Ant, Humanoid and Walker tasks: Gymnasium's simulations with a sparse reward in place of theirs."""

from __future__ import annotations

from functools import cached_property
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from sasr.tasks import rendering
from sasr.tasks.catalogue import Profile, check_profile

try:
    import mujoco
    from gymnasium.envs.mujoco.ant_v5 import AntEnv
    from gymnasium.envs.mujoco.humanoid_v5 import HumanoidEnv
    from gymnasium.envs.mujoco.humanoidstandup_v5 import HumanoidStandupEnv
    from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
    from gymnasium.envs.mujoco.walker2d_v4 import Walker2dEnv
except Exception as error:  # Gymnasium raises its own class here, MuJoCo's loader others
    raise ImportError(f'the Ant, Human and Walker tasks need MuJoCo: pip install "sasr[mujoco]" ({error})') from error

Observation = NDArray[np.float32]


class _Sparse(MujocoEnv):
    """1.0 on every step whose end state has reached the threshold, 0.0 on every other.

    Physics, observations and ends are Gymnasium's bit for bit; its dense reward, which nobody would see, is left out.
    """

    quantity_name = "height"
    observes_forces = True

    if TYPE_CHECKING:  # Gymnasium's classes have these without types
        is_healthy: bool
        _terminate_when_unhealthy: bool

        def _get_obs(self) -> NDArray[Any]: ...
        def render(self) -> Any: ...

    def __init__(self, *, profile: Profile, threshold: float, **kwargs: Any) -> None:
        check_profile(profile)
        rendering.require(kwargs.get("render_mode"))
        self.profile = profile
        self.threshold = threshold
        self.success_ever = False
        super().__init__(**kwargs)
        size = self._get_obs().size
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)

    def quantity(self) -> float:
        """What the threshold is compared with, after the step."""
        return float(self.data.qpos[2])

    def reached(self, value: float) -> bool:
        """Whether a step that ends with this value is a success."""
        return value >= self.threshold

    def ended(self) -> bool:
        """Whether the state after the step ends the episode, by Gymnasium's rule."""
        return self._terminate_when_unhealthy and not self.is_healthy

    def step(self, action: NDArray[np.float32]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Simulate; the reward is of the new state, also at the end of an episode."""
        self.do_simulation(action, self.frame_skip)
        observation = self._get_obs()
        value = self.quantity()
        success = self.reached(value)
        self.success_ever |= success
        info = {self.quantity_name: value, "is_success": success, "success_ever": self.success_ever}
        if self.render_mode == "human":
            self.render()
        return observation, float(success), self.ended(), False, info

    def _step_mujoco_simulation(self, ctrl: NDArray[np.float32], n_frames: int) -> None:
        self.data.ctrl[:] = ctrl
        mujoco.mj_step(self.model, self.data, nstep=n_frames)
        if self.observes_forces:  # nothing else depends on what this computes, the next step of physics included
            mujoco.mj_rnePostConstraint(self.model, self.data)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode as Gymnasium's task does."""
        self.success_ever = False
        observation, _ = super().reset(**kwargs)
        return observation, {}


class _Ant(_Sparse, AntEnv):
    def __init__(self, *, profile: Profile = "code", threshold: float, **kwargs: Any) -> None:
        self.observes_forces = forces = profile == "paper"
        super().__init__(profile=profile, threshold=threshold, include_cfrc_ext_in_observation=forces, **kwargs)
        EzPickle.__init__(self, profile=profile, threshold=threshold, **kwargs)

    def achieved(self, body: NDArray[np.float64]) -> float:
        """The authors' "achieved goal" entry, computed from the 27 body entries."""
        raise NotImplementedError

    def ended(self) -> bool:
        """Gymnasium's rule, which is slow to ask, so only where a glance does not show that all is well."""
        qpos, qvel = self.data.qpos, self.data.qvel
        low, high = self._healthy_z_range
        if low <= qpos[2] <= high and isfinite(qpos.dot(qpos) + qvel.dot(qvel)):
            return False
        return super().ended()

    def _get_obs(self) -> Observation:
        data = self.data
        position = data.qpos[2:] if self._exclude_current_positions_from_observation else data.qpos
        if self.profile == "paper":
            forces = data.cfrc_ext[1:].clip(*self._contact_force_range)
            return np.concatenate((position, data.qvel, forces.ravel()), dtype=np.float32)
        body = np.concatenate((position, data.qvel))
        return np.concatenate((body, (self.achieved(body), self.threshold)), dtype=np.float32)


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
        return self.quantity() if self.observe_distance else float(np.hypot(body[1], body[2]))

    @cached_property
    def _torso(self) -> int:
        return int(self.model.body("torso").id)

    def quantity(self) -> float:
        """Distance of the torso's frame from the world's origin, not from the noisy start."""
        at = self.data.xpos[self._torso, :2]
        return sqrt(at.dot(at))


class AntSpeed(_Ant):
    """Paid while the torso moves fast along x, either way."""

    quantity_name = "speed"

    def __init__(self, *, threshold: float = 3.6, **kwargs: Any) -> None:
        super().__init__(threshold=threshold, **kwargs)

    @cached_property
    def _main(self) -> int:
        return int(self.model.body(self._main_body).id)

    def step(self, action: NDArray[np.float32]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As any other ant's; what counts is how far it leads."""
        self._x_before = self.data.xpos[self._main, 0]
        return super().step(action)

    def achieved(self, body: NDArray[np.float64]) -> float:
        """The last ankle's velocity: the authors' index 13 goes into the velocities, not into the observation."""
        return float(body[26])

    def quantity(self) -> float:
        """|Δx| / Δt over the step."""
        return abs(float(self.data.xpos[self._main, 0] - self._x_before) / self.dt)

    def reached(self, value: float) -> bool:
        """Strictly faster."""
        return value > self.threshold


class _Human(_Sparse, EzPickle):
    def __init__(self, *, profile: Profile = "code", threshold: float, pad_zeros: bool = True, **kwargs: Any) -> None:
        self.pad_zeros = pad_zeros and profile == "code"
        super().__init__(profile=profile, threshold=threshold, **kwargs)
        if self.pad_zeros and super()._get_obs().size != 348:
            raise ValueError(
                "pad_zeros=True needs all of Gymnasium's 348 entries; to leave some out, pass pad_zeros=False"
            )
        EzPickle.__init__(self, profile=profile, threshold=threshold, pad_zeros=pad_zeros, **kwargs)

    def _get_obs(self) -> Observation:
        if not self.pad_zeros:
            return super()._get_obs().astype(np.float32)
        data = self.data
        # As in version 4, with what version 5 leaves out because it is always zero: the world body's inertia, velocity
        # and contact force, and the free joint's actuator force.
        bodies = data.cinert.ravel(), data.cvel.ravel()
        forces = data.qfrc_actuator, data.cfrc_ext.ravel()
        return np.concatenate((data.qpos[2:], data.qvel, *bodies, *forces), dtype=np.float32)


class UprightHuman(_Human, HumanoidEnv):
    """Starts on its feet and is rewarded until it sinks; falling ends the episode. Code profile of HumanStand."""

    def __init__(self, *, threshold: float = 1.3, **kwargs: Any) -> None:
        super().__init__(threshold=threshold, **kwargs)


class LyingHuman(_Human, HumanoidStandupEnv):
    """Starts on its back and is rewarded while the torso is off the floor. Code profile of HumanKeep."""

    def __init__(self, *, threshold: float = 0.2, **kwargs: Any) -> None:
        super().__init__(threshold=threshold, **kwargs)

    def ended(self) -> bool:
        """Never."""
        return False


class WalkerKeep(_Sparse, Walker2dEnv):
    """Paid while the walker's torso is higher than it starts."""

    observes_forces = False

    def __init__(self, *, threshold: float = 1.3, profile: Profile = "code", **kwargs: Any) -> None:
        super().__init__(threshold=threshold, profile=profile, **kwargs)
        EzPickle.__init__(self, threshold=threshold, profile=profile, **kwargs)

    def quantity(self) -> float:
        """Height of the torso; the walker lives in a plane, so it is the second coordinate."""
        return float(self.data.qpos[1])

    def _get_obs(self) -> Observation:
        data = self.data
        position = data.qpos[1:] if self._exclude_current_positions_from_observation else data.qpos
        goal = (data.qpos[1], self.threshold)
        return np.concatenate((position, data.qvel.clip(-10, 10), goal), dtype=np.float32)
