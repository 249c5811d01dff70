"""The MuJoCo and Fetch tasks against upstream's own `step`, bit for bit: physics, observations, ends and pay."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.humanoid_v5 import HumanoidEnv
from gymnasium.envs.mujoco.humanoidstandup_v5 import HumanoidStandupEnv
from gymnasium.envs.mujoco.walker2d_v4 import Walker2dEnv
from gymnasium_robotics.envs.fetch.pick_and_place import MujocoFetchPickAndPlaceEnv
from gymnasium_robotics.envs.fetch.push import MujocoFetchPushEnv
from gymnasium_robotics.envs.fetch.reach import MujocoFetchReachEnv
from gymnasium_robotics.envs.fetch.slide import MujocoFetchSlideEnv
from gymnasium_robotics.utils.rotations import euler2mat, mat2euler
from numpy.typing import NDArray

from sasr.tasks import catalogue, fetch, make

Array = NDArray[Any]


IDS = {
    family: [id for id in catalogue.VARIANTS if catalogue.find(id).family == family] for family in ("MuJoCo", "Fetch")
}
# Where the 348 entries of a v5 humanoid stand among the 376 of v4.
V4_FROM_V5 = np.r_[0:45, 55:185, 191:269, 275:292, 298:376]


def same_bits(ours: Any, theirs: Any) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.tobytes() == theirs.tobytes()


def same_state(ours: Any, theirs: Any) -> None:
    for name in ("qpos", "qvel", "qacc_warmstart", "ctrl", "mocap_pos", "mocap_quat", "time"):
        assert np.asarray(getattr(ours, name)).tobytes() == np.asarray(getattr(theirs, name)).tobytes(), name


class StockAnt:
    env: Any

    def __init__(self, id: str) -> None:
        self.name, self.paper = id.removeprefix("SASR/").removesuffix("-v0"), "Paper" in id
        self.env = AntEnv(include_cfrc_ext_in_observation=self.paper)
        # Uniform actions pass it both ways within some hundred steps.
        self.threshold = {"AntStand": 0.6, "AntSpeed": 0.7}.get(self.name.removesuffix("Paper"), 0.4)

    def observation(self, body: Array) -> Array:
        if self.paper:
            return body.astype(np.float32)
        achieved = {"AntStand": body[2], "AntSpeed": body[26]}.get(self.name, np.hypot(body[1], body[2]))
        return np.append(body, (achieved, self.threshold)).astype(np.float32)

    def value(self, info: dict[str, Any]) -> float:
        if "Far" in self.name:
            return float(np.linalg.norm(self.env.data.body("torso").xpos[:2]))
        return abs(info["x_velocity"]) if "Speed" in self.name else self.env.data.qpos[2]

    def pay(self, value: float) -> float:
        return float(value > self.threshold if "Speed" in self.name else value >= self.threshold)


class StockHuman(StockAnt):
    def __init__(self, id: str) -> None:
        self.name, self.paper = id, "Paper" in id
        upright = ("HumanStand" in id) != self.paper
        self.env = HumanoidEnv() if upright else HumanoidStandupEnv()
        self.threshold = 1.3 if upright else 0.11

    def observation(self, body: Array) -> Array:
        if self.paper:
            return body.astype(np.float32)
        padded = np.zeros(376, np.float32)
        padded[V4_FROM_V5] = body
        return padded


class StockWalker(StockAnt):
    def __init__(self, id: str) -> None:
        self.name, self.env, self.threshold = id, Walker2dEnv(), 1.25

    def observation(self, body: Array) -> Array:
        return np.append(body, (self.env.data.qpos[1], self.threshold)).astype(np.float32)

    def value(self, info: dict[str, Any]) -> float:
        return self.env.data.qpos[1]


def stock(id: str) -> Any:
    return (StockAnt if "Ant" in id else StockHuman if "Human" in id else StockWalker)(id)


@pytest.mark.parametrize("id", IDS["MuJoCo"])
def test_a_step_is_gymnasiums_own_but_for_the_pay(id: str) -> None:
    theirs = stock(id)
    ours: Any = gym.make(id, threshold=theirs.threshold).unwrapped
    rng = np.random.default_rng(1)
    pays: set[float] = set()
    ends: set[bool] = set()
    for episode in range(6):
        seed = 5 if episode == 0 else None
        same_bits(ours.reset(seed=seed)[0], theirs.observation(theirs.env.reset(seed=seed)[0]))
        for _ in range(70):
            action = ours.action_space.high * rng.uniform(-1, 1, ours.action_space.shape).astype(np.float32)
            observation, reward, terminated, truncated, info = ours.step(action)
            body, _, their_end, _, their_info = theirs.env.step(action)
            same_state(ours.data, theirs.env.data)
            same_bits(observation, theirs.observation(body))
            assert info[ours.quantity_name] == theirs.value(their_info)
            assert reward == theirs.pay(theirs.value(their_info))
            assert (terminated, truncated) == (their_end, False)
            assert type(terminated) is bool
            pays.add(reward)
            ends.add(terminated)
            if terminated:
                break
    assert pays == {0.0, 1.0}
    assert (True in ends) == ("never" not in catalogue.VARIANTS[id].ends)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200, 0.0])
@pytest.mark.parametrize(("array", "index"), [("qpos", 0), ("qpos", 2), ("qpos", 9), ("qvel", 0), ("qvel", 13)])
def test_an_ant_in_any_state_ends_by_gymnasiums_rule(array: str, index: int, value: float) -> None:
    ant: Any = make("AntStand").unwrapped
    ant.reset(seed=0)
    assert not ant.ended()
    getattr(ant.data, array)[index] = value
    assert ant.ended() == (not ant.is_healthy)


@pytest.mark.parametrize("name", ["AntStand", "HumanStand", "WalkerKeep"])
def test_gymnasiums_switch_keeps_the_unhealthy_going(name: str) -> None:
    for ends in (True, False):
        env: Any = make(name, terminate_when_unhealthy=ends).unwrapped
        env.reset(seed=0)
        env.data.qpos[1:3] = 9.0
        assert env.ended() == ends


@pytest.mark.parametrize("name", ["AntStand", "AntSpeed", "WalkerKeep"])
def test_positions_asked_for_are_observed(name: str) -> None:
    env: Any = make(name, exclude_current_positions_from_observation=False).unwrapped
    stock = (Walker2dEnv if name == "WalkerKeep" else AntEnv)(exclude_current_positions_from_observation=False)
    size = env.data.qpos.size + env.data.qvel.size
    assert np.array_equal(env.reset(seed=0)[0][:size], stock.reset(seed=0)[0][:size].astype(np.float32))


def test_a_human_with_entries_left_out_cannot_be_padded() -> None:
    with pytest.raises(ValueError, match="pad_zeros=False"):
        make("HumanKeep", include_cvel_in_observation=False)
    assert make("HumanKeep", include_cvel_in_observation=False, pad_zeros=False).observation_space.shape == (270,)


class StockFixedPush(fetch.Fixed, MujocoFetchPushEnv):  # type: ignore[misc]  # upstream has no types
    pass


class StockFixedSlide(fetch.Fixed, MujocoFetchSlideEnv):  # type: ignore[misc]
    goal_offset = 0.40


ARMS: dict[str, Any] = {
    "RobotReach": MujocoFetchReachEnv,
    "RobotPush": StockFixedPush,
    "RobotPushPaper": MujocoFetchPushEnv,
    "RobotSlide": MujocoFetchSlideEnv,
    "RobotPickPlace": MujocoFetchPickAndPlaceEnv,
}


def flat(told: Any, data: Any, paper: bool) -> Array:
    arm = slice(6, 13)
    parts = [told["observation"], data.qpos[arm]]
    parts += [] if paper else [data.qvel[arm], told["achieved_goal"]]
    return np.concatenate([*parts, told["desired_goal"]]).astype(np.float32)


def play_both_arms(robot: Any, stock: Any, paper: bool, steps: int, seed: int = 3) -> tuple[Array, Array]:
    """Step both with the same actions, some beyond their bounds; what was paid, and what ended."""
    rng, paid, ended = np.random.default_rng(seed), [], []
    for episode in range(3):
        told = stock.reset(seed=seed if episode == 0 else None)[0]
        same_bits(robot.reset(seed=seed if episode == 0 else None)[0], flat(told, stock.data, paper))
        if episode:  # first a goal that is reached already, then one that only what moves up will pass
            above = (0.0, 0.0, 0.03 * episode)
            robot.arm.goal, stock.goal = told["achieved_goal"] + above, told["achieved_goal"] + above
        for step in range(steps):
            action = rng.uniform(-1.3, 1.3, 4).astype(np.float32)
            if episode == 2 and step < steps // 2:
                action[2] = 1.0
            observation, reward, terminated, truncated, info = robot.step(action)
            told, *_ = stock.step(action)
            same_state(robot.arm.data, stock.data)
            same_bits(observation, flat(told, stock.data, paper))
            distance = np.linalg.norm(told["achieved_goal"] - told["desired_goal"])
            assert info["goal_distance"] == distance
            assert reward == float(distance <= 0.05)
            assert not truncated
            paid.append(reward)
            ended.append(terminated)
    return np.array(paid), np.array(ended)


@pytest.mark.parametrize("id", IDS["Fetch"])
def test_an_arms_step_is_upstreams_own_but_for_the_pay(id: str) -> None:
    name, paper = id.removeprefix("SASR/").removesuffix("-v0"), "Paper" in id
    stock = (ARMS.get(name) or ARMS[name.removesuffix("Paper")])()
    robot: Any = gym.make(id).unwrapped
    paid, ended = play_both_arms(robot, stock, paper, steps=50)
    assert np.array_equal(ended, (paid == 1.0) if "PickPlace" in id else np.zeros(150, bool))
    assert set(paid) == {0.0, 1.0}


def test_the_fixed_slide_is_upstreams_own_too() -> None:
    play_both_arms(make("RobotSlide", fixed=True).unwrapped, StockFixedSlide(), paper=False, steps=15)


def test_angles_are_upstreams_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    matrices = [*euler2mat(rng.uniform(-np.pi, np.pi, (300, 3))), np.eye(3)]
    for pitch in np.pi / 2 + np.array([0.0, 1e-3, -1e-8, 1e-9, -1e-10, 1e-15]):
        matrices += list(euler2mat(np.array([[0.3, pitch, -2.0], [0.0, pitch, 0.0], [-0.3, -pitch, 3.0]])))
    for matrix in matrices:
        same_bits(fetch.euler(matrix.ravel()), mat2euler(matrix))


@pytest.mark.parametrize("name", ["AntStand", "HumanKeep", "WalkerKeep", "RobotReach"])
def test_an_action_of_another_shape_is_refused(name: str) -> None:
    env: Any = make(name)
    env.reset(seed=0)
    for shape in [(), (1,), (99,)]:
        with pytest.raises(ValueError, match=r"Action dimension mismatch|the action has shape"):
            env.step(np.zeros(shape, np.float32))
