"""The Robot tasks: gymnasium-robotics' Fetch arm, its goal observation made flat and its reward {0, 1}."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from sasr.tasks import rendering
from sasr.tasks.catalogue import Profile

try:
    import mujoco

    # The package greets every import with a notice about tasks that have nothing to do with these.
    with contextlib.redirect_stderr(io.StringIO()):
        from gymnasium_robotics.envs.fetch.fetch_env import MujocoFetchEnv
        from gymnasium_robotics.envs.fetch.pick_and_place import MujocoFetchPickAndPlaceEnv
        from gymnasium_robotics.envs.fetch.push import MujocoFetchPushEnv
        from gymnasium_robotics.envs.fetch.reach import MujocoFetchReachEnv
        from gymnasium_robotics.envs.fetch.slide import MujocoFetchSlideEnv
except ImportError as error:
    raise ImportError(f'the Robot tasks need gymnasium-robotics: pip install "sasr[robotics]" ({error})') from error

# From MuJoCo 3.12 on an enum never equals numpy's integers, and every Fetch constructor ends in a bare AssertionError.
if not mujoco.mjtJoint.mjJNT_SLIDE == np.int32(2):
    raise ImportError(f"the Robot tasks do not run on MuJoCo {mujoco.__version__}: pip install 'mujoco<3.12'")

_ARM = slice(6, 13)  # the seven arm joints in qpos and qvel: shoulder pan … wrist roll
_REACH = 0.05


class Robot(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A Fetch arm whose step is paid 1.0 while the goal distance is at most 0.05 m (upstream's success is strict)."""

    metadata = MujocoFetchEnv.metadata

    def __init__(self, arm: MujocoFetchEnv, *, profile: Profile, end_on_success: bool = False) -> None:
        if profile not in ("code", "paper"):
            raise ValueError(f"profile={profile!r} must be 'code' or 'paper'")
        self.arm = arm
        self.profile = profile
        self.end_on_success = end_on_success
        self.success_ever = False
        self.render_mode = arm.render_mode
        self.action_space = arm.action_space
        goal, body = arm.observation_space["desired_goal"], arm.observation_space["observation"]
        size = body.shape[0] + (14 + 2 * goal.shape[0] if profile == "code" else 7 + goal.shape[0])
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; the condition is first looked at after a step, so one that starts solved costs one step."""
        told, _ = self.arm.reset(seed=seed, options=options)
        self._np_random = self.arm.np_random
        self.success_ever = False
        return self._flat(told), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move the arm, then pay by where it left what counts."""
        told, _, _, _, _ = self.arm.step(action)
        distance = float(np.linalg.norm(told["achieved_goal"] - told["desired_goal"]))
        success = distance <= _REACH
        self.success_ever |= success
        info = {"goal_distance": distance, "is_success": success, "success_ever": self.success_ever}
        return self._flat(told), float(success), success and self.end_on_success, False, info

    def render(self) -> Any:
        """A picture, in the mode asked for at construction."""
        return self.arm.render()

    def close(self) -> None:
        """Free the drawing context."""
        self.arm.close()

    def _flat(self, told: dict[str, NDArray[np.float64]]) -> NDArray[np.float32]:
        data = self.arm.data
        parts = [told["observation"], data.qpos[_ARM]]
        if self.profile == "code":
            parts += [data.qvel[_ARM], told["achieved_goal"]]
        return np.concatenate([*parts, told["desired_goal"]]).astype(np.float32)


class _Fixed(MujocoFetchEnv):  # type: ignore[misc]  # gymnasium-robotics has no types
    """Object behind the gripper, goal in front of it, the same in every episode."""

    object_offset = -0.05
    goal_offset = 0.10

    def _reset_sim(self) -> bool:
        super()._reset_sim()
        # Relative to the gripper, because its start moved between MuJoCo releases while the authors' literal did not.
        pose = self._utils.get_joint_qpos(self.model, self.data, "object0:joint")
        x, y, _ = self.initial_gripper_xpos
        pose[:2] = x + self.object_offset, y
        self._utils.set_joint_qpos(self.model, self.data, "object0:joint", pose)
        mujoco.mj_forward(self.model, self.data)
        return True

    def _sample_goal(self) -> NDArray[np.float64]:
        x, y, _ = self.initial_gripper_xpos
        return np.array([x + self.goal_offset, y, self.height_offset])


class _FixedPush(_Fixed, MujocoFetchPushEnv):  # type: ignore[misc]
    pass


class _FixedSlide(_Fixed, MujocoFetchSlideEnv):  # type: ignore[misc]
    goal_offset = 0.40


def reach(*, profile: Profile = "code", render_mode: str | None = None, **kwargs: Any) -> Robot:
    """Bring the gripper to a random point."""
    rendering.require(render_mode)
    return Robot(MujocoFetchReachEnv(render_mode=render_mode, **kwargs), profile=profile)


def push(
    *, profile: Profile = "code", fixed: bool | None = None, render_mode: str | None = None, **kwargs: Any
) -> Robot:
    """Push a block to a goal: both fixed in the code profile, both random in the paper's."""
    rendering.require(render_mode)
    fixed = profile == "code" if fixed is None else fixed
    arm = _FixedPush if fixed else MujocoFetchPushEnv
    return Robot(arm(render_mode=render_mode, **kwargs), profile=profile)


def slide(*, profile: Profile = "code", fixed: bool = False, render_mode: str | None = None, **kwargs: Any) -> Robot:
    """Slide a puck to a goal out of reach; nobody knows the authors' layout, `fixed` is the likelier guess."""
    rendering.require(render_mode)
    arm = _FixedSlide if fixed else MujocoFetchSlideEnv
    return Robot(arm(render_mode=render_mode, **kwargs), profile=profile)


def pick_and_place(*, profile: Profile = "code", render_mode: str | None = None, **kwargs: Any) -> Robot:
    """Bring a block to a goal on or above the table; the first success ends the episode, as Table 1's 1.0 implies."""
    rendering.require(render_mode)
    return Robot(MujocoFetchPickAndPlaceEnv(render_mode=render_mode, **kwargs), profile=profile, end_on_success=True)
