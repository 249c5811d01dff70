"""The Robot tasks: gymnasium-robotics' Fetch arm, its goal observation made flat and its reward {0, 1}."""

from __future__ import annotations

import contextlib
import io
from math import sqrt
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from sasr.tasks import rendering
from sasr.tasks.catalogue import Profile, check_profile

try:
    import mujoco

    # The package greets every import with a notice about tasks that have nothing to do with these.
    with contextlib.redirect_stderr(io.StringIO()):
        from gymnasium_robotics.envs.fetch.fetch_env import MujocoFetchEnv
        from gymnasium_robotics.envs.fetch.pick_and_place import MujocoFetchPickAndPlaceEnv
        from gymnasium_robotics.envs.fetch.push import MujocoFetchPushEnv
        from gymnasium_robotics.envs.fetch.reach import MujocoFetchReachEnv
        from gymnasium_robotics.envs.fetch.slide import MujocoFetchSlideEnv
        from gymnasium_robotics.utils.rotations import mat2euler
except ImportError as error:
    raise ImportError(f'the Robot tasks need gymnasium-robotics: pip install "sasr[robotics]" ({error})') from error

# From MuJoCo 3.12 on an enum never equals numpy's integers, and every Fetch constructor ends in a bare AssertionError.
if not mujoco.mjtJoint.mjJNT_SLIDE == np.int32(2):
    raise ImportError(f"the Robot tasks do not run on MuJoCo {mujoco.__version__}: pip install 'mujoco<3.12'")

_ARM = slice(6, 13)  # the seven arm joints in qpos and qvel: shoulder pan … wrist roll
_FINGERS = slice(13, 15)
_DOWN = np.array([1.0, 0.0, 1.0, 0.0])  # the quaternion that upstream turns the hand by
_NOTHING = np.zeros(0)
_REACH = 0.05

# From MuJoCo 3.3.6 on mj_forward leaves no trace in the state, so that of it only what is looked at need be computed.
_FORWARD = (mujoco.mj_kinematics, mujoco.mj_comPos) if mujoco.mj_version() >= 336 else (mujoco.mj_forward,)


class Arm(MujocoFetchEnv):  # type: ignore[misc]  # gymnasium-robotics has no types
    """Upstream's arm, which moves and observes the same bit for bit, without looking up its names at every step."""

    def _initialize_simulation(self) -> None:
        super()._initialize_simulation()
        model = self.model
        self._hand, self._grip = model.body("robot0:gripper_link").id, model.site("robot0:grip").id
        self._object = model.site("object0").id if self.has_object else -1
        self._pulled = model.jnt_qposadr[model.actuator_trnid[:, 0]]  # the joint of each actuator: fingers, or none
        self._slide, self._turn = np.zeros((2, 3, model.nv))  # room for a site's Jacobians

    def move(self, action: NDArray[np.float32]) -> None:
        """What upstream's `step` does before it observes and pays."""
        action, space = np.asarray(action), self.action_space
        if action.shape != space.shape:
            raise ValueError(f"the action has shape {action.shape}, the arm needs {space.shape}")
        self._set_action(action.clip(space.low, space.high))
        self._mujoco_step(action)
        self._step_callback()
        if self.render_mode == "human":
            self.render()

    def _set_action(self, action: NDArray[np.float32]) -> None:
        data = self.data
        if self._pulled.size:
            data.ctrl[:] = data.qpos[self._pulled] + action[3]
        data.mocap_pos[0] = data.xpos[self._hand] + action[:3] * 0.05
        data.mocap_quat[0] = data.xquat[self._hand] + _DOWN

    def _step_callback(self) -> None:
        if self.block_gripper:
            self.data.qpos[_FINGERS] = 0.0
            for compute in _FORWARD:
                compute(self.model, self.data)

    def generate_mujoco_observations(self) -> tuple[NDArray[np.float64], ...]:
        """Upstream's nine parts of an observation; some are windows into the simulator, to be copied."""
        model, data = self.model, self.data
        dt = self.dt
        fingers, fingers_vel = data.qpos[_FINGERS], data.qvel[_FINGERS] * dt
        grip = data.site_xpos[self._grip]
        mujoco.mj_jacSite(model, data, self._slide, None, self._grip)
        grip_vel = self._slide @ data.qvel * dt
        if not self.has_object:
            return grip, _NOTHING, _NOTHING, fingers, _NOTHING, _NOTHING, _NOTHING, grip_vel, fingers_vel
        thing, rotation = data.site_xpos[self._object], euler(data.site_xmat[self._object])
        mujoco.mj_jacSite(model, data, self._slide, self._turn, self._object)
        thing_vel, rotation_vel = self._slide @ data.qvel * dt - grip_vel, self._turn @ data.qvel * dt
        return grip, thing, thing - grip, fingers, rotation, thing_vel, rotation_vel, grip_vel, fingers_vel


def euler(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Upstream's `mat2euler` for one matrix; its cases near a gimbal lock are left to it."""
    xx, xy, xz, _, _, yz, _, _, zz = matrix.tolist()
    level = sqrt(zz * zz + yz * yz)
    if level < 1e-9:
        return np.asarray(mat2euler(matrix.reshape(3, 3)))
    return -np.arctan2((yz, -xz, xy), (zz, level, xx))  # numpy's, which need not round as the C library's


class Robot(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A Fetch arm with reward 1.0 while the goal distance is at most 0.05 m (upstream's success is strict)."""

    metadata = MujocoFetchEnv.metadata

    def __init__(self, arm: Arm, *, profile: Profile, end_on_success: bool = False) -> None:
        check_profile(profile)
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
        self.arm.reset(seed=seed, options=options)
        self._np_random = self.arm.np_random
        self.success_ever = False
        return self._look()[0], {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move the arm, then pay by where it left what counts."""
        self.arm.move(action)
        observation, distance = self._look()
        success = distance <= _REACH
        self.success_ever |= success
        info = {"goal_distance": distance, "is_success": success, "success_ever": self.success_ever}
        return observation, float(success), success and self.end_on_success, False, info

    def render(self) -> Any:
        """A picture, in the mode asked for at construction."""
        return self.arm.render()

    def close(self) -> None:
        """Free the drawing context."""
        self.arm.close()

    def _look(self) -> tuple[NDArray[np.float32], float]:
        """The observation, and how far what counts is from the goal."""
        arm, qpos = self.arm, self.arm.data.qpos
        parts = arm.generate_mujoco_observations()
        achieved, goal = parts[1] if arm.has_object else parts[0], arm.goal
        rest = (qpos[_ARM], arm.data.qvel[_ARM], achieved, goal) if self.profile == "code" else (qpos[_ARM], goal)
        away = achieved - goal
        return np.concatenate((*parts, *rest), dtype=np.float32), sqrt(away.dot(away))


class Fixed(MujocoFetchEnv):  # type: ignore[misc]
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


class _Reach(Arm, MujocoFetchReachEnv):  # type: ignore[misc]
    pass


class _Push(Arm, MujocoFetchPushEnv):  # type: ignore[misc]
    pass


class _FixedPush(Fixed, _Push):
    pass


class _Slide(Arm, MujocoFetchSlideEnv):  # type: ignore[misc]
    pass


class _FixedSlide(Fixed, _Slide):
    goal_offset = 0.40


class _PickAndPlace(Arm, MujocoFetchPickAndPlaceEnv):  # type: ignore[misc]
    pass


def reach(*, profile: Profile = "code", render_mode: str | None = None, **kwargs: Any) -> Robot:
    """Bring the gripper to a random point."""
    rendering.require(render_mode)
    return Robot(_Reach(render_mode=render_mode, **kwargs), profile=profile)


def push(
    *, profile: Profile = "code", fixed: bool | None = None, render_mode: str | None = None, **kwargs: Any
) -> Robot:
    """Push a block to a goal: both fixed in the code profile, both random in the paper's."""
    rendering.require(render_mode)
    fixed = profile == "code" if fixed is None else fixed
    arm = _FixedPush if fixed else _Push
    return Robot(arm(render_mode=render_mode, **kwargs), profile=profile)


def slide(*, profile: Profile = "code", fixed: bool = False, render_mode: str | None = None, **kwargs: Any) -> Robot:
    """Slide a puck to a goal out of reach; nobody knows the authors' layout, `fixed` is the likelier guess."""
    rendering.require(render_mode)
    arm = _FixedSlide if fixed else _Slide
    return Robot(arm(render_mode=render_mode, **kwargs), profile=profile)


def pick_and_place(*, profile: Profile = "code", render_mode: str | None = None, **kwargs: Any) -> Robot:
    """Bring a block to a goal on or above the table; the first success ends the episode, as Table 1's 1.0 implies."""
    rendering.require(render_mode)
    return Robot(_PickAndPlace(render_mode=render_mode, **kwargs), profile=profile, end_on_success=True)
