"""The tasks against the reference measurements: start states, scripted play, random-policy bands, layouts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.humanoid_v4 import HumanoidEnv
from gymnasium.envs.mujoco.humanoidstandup_v4 import HumanoidStandupEnv
from gymnasium.envs.mujoco.walker2d_v4 import Walker2dEnv
from numpy.typing import NDArray

import sasr
from sasr.tasks import make
from tests.tasks.rollouts import constant_vectors, play, uniform

Array = NDArray[Any]


assert sasr


def clipped_gaussian(env: gym.Env[Any, Any], observation: Array, step: int) -> Array:
    return np.clip(env.action_space.np_random.normal(size=env.action_space.shape), -0.4, 0.4).astype(np.float32)


def test_human_stand_uniform_actions() -> None:
    told = play(make("HumanStand"), 100)
    assert told.returns.mean() == pytest.approx(8.2, abs=0.3)
    assert told.lengths.mean() == pytest.approx(24, abs=1)
    assert told.terminated.all()
    assert told.hits.all()


def test_human_stand_saturated_actions() -> None:
    assert play(make("HumanStand"), 100, constant_vectors(0.4, seed=0)).returns.mean() == pytest.approx(5.7, abs=0.5)


def test_human_stand_gaussian_actions() -> None:
    assert play(make("HumanStand"), 100, clipped_gaussian).returns.mean() == pytest.approx(7.5, abs=0.3)


def test_human_keep_uniform_actions_never_succeed() -> None:
    told = play(make("HumanKeep"), 5)
    assert (told.returns == 0).all()
    assert (told.lengths == 200).all()
    assert not told.terminated.any()


@pytest.mark.slow
def test_human_keep_saturated_actions_reach_the_ceiling() -> None:
    assert 194 <= play(make("HumanKeep"), 40, constant_vectors(0.4, seed=0)).returns.max() <= 196


@pytest.mark.slow
def test_ant_stand_uniform_actions() -> None:
    told = play(make("AntStand"), 200)
    assert told.returns.mean() == pytest.approx(4.5, abs=0.8)
    assert told.hits.mean() > 0.9


@pytest.mark.slow
def test_robot_reach_uniform_actions() -> None:
    assert 0.3 <= play(make("RobotReach"), 60).returns.mean() <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "episodes", "returns", "length", "hits"),
    [
        # mean return, mean length and share of rewarded episodes; the reference's spread sets the width
        ("AntStandPaper", 40, (3.5, 7.5), (120, 240), (0.9, 1.0)),
        ("AntFar", 80, (0.5, 13.0), (75, 120), (0.03, 0.25)),
        ("AntFarPaper", 40, (1.0, 35.0), (120, 240), (0.08, 0.45)),
        ("AntVeryFar", 80, (0.0, 8.0), (75, 120), (0.0, 0.14)),
        ("AntSpeed", 30, (0.0, 0.05), (75, 120), (0.0, 0.05)),
        ("HumanKeepPaper", 60, (7.9, 8.5), (23, 25), (1.0, 1.0)),
        ("HumanStandPaper", 2, (0.0, 0.0), (1000, 1000), (0.0, 0.0)),
        ("WalkerKeep", 200, (0.0, 0.1), (19, 25), (0.0, 0.02)),
        ("RobotPush", 8, (0.0, 0.0), (200, 200), (0.0, 0.0)),
        ("RobotSlide", 15, (0.0, 30.0), (200, 200), (0.0, 0.2)),
        ("RobotPickPlace", 10, (0.0, 0.4), (100, 200), (0.0, 0.4)),
        ("Pitfall", 15, (0.0, 0.0), (150, 480), (0.0, 0.0)),
        ("Frogger", 12, (0.0, 0.0), (230, 340), (0.0, 0.0)),
        ("MontezumaRevenge", 6, (0.0, 0.0), (350, 900), (0.0, 0.0)),
        ("Solaris", 3, (0.0, 4.0), (2000, 2000), (0.0, 1.0)),
    ],
)
def test_uniform_actions_stay_in_the_reference_band(
    name: str, episodes: int, returns: tuple[float, float], length: tuple[float, float], hits: tuple[float, float]
) -> None:
    told = play(make(name), episodes)
    for value, (low, high) in ((told.returns, returns), (told.lengths, length), (told.hits, hits)):
        assert low <= value.mean() <= high


@pytest.mark.parametrize("name", ["AntStand", "AntFar", "HumanStand", "HumanKeep", "RobotReach", "RobotPush"])
def test_code_profile_returns_are_counts_of_steps(name: str) -> None:
    returns = play(make(name), 2).returns
    assert np.array_equal(returns, np.round(returns))
    assert ((returns >= 0) & (returns <= 200)).all()


def test_robot_push_starts_with_the_gripper_between_block_and_goal() -> None:
    for seed in range(3):
        env: Any = make("RobotPush")
        observation, _ = env.reset(seed=seed)
        gripper, block, goal = observation[:3], observation[39:42], observation[42:45]
        assert goal - block == pytest.approx([0.150, 0, 0], abs=0.002)
        assert block[0] < gripper[0] < goal[0]
        # The authors' literals, which their MuJoCo and the pinned one agree on.
        assert env.unwrapped.arm.initial_gripper_xpos[:2] == pytest.approx([1.3455407, 0.74902433], abs=1e-4)
        env.close()


def push_over_and_along(env: gym.Env[Any, Any], observation: Array, step: int) -> Array:
    """Rise, go behind the block, sink, push it ahead until it lies on the goal."""
    gripper, block, goal = observation[:3], observation[39:42], observation[42:45]
    target = np.array([block[0] - 0.08, block[1], block[2] + 0.10])
    if gripper[0] < block[0] - 0.04:
        target[2] = block[2]
        if gripper[2] < block[2] + 0.03:
            target[0] = goal[0] - 0.04
    if goal[0] - block[0] < 0.02:
        target = gripper.copy()
    move = np.clip((target - gripper) / 0.05, -1, 1)
    if gripper[2] < block[2] + 0.06 and gripper[0] > block[0] - 0.04 and target[2] > block[2]:
        move[0] = 0.0
    return np.append(move, 0.0).astype(np.float32)


def test_robot_push_scripted_push_succeeds_early() -> None:
    env: Any = make("RobotPush")
    observation, _ = env.reset(seed=0)
    first: int | None = None
    total = 0.0
    for step in range(1, 201):
        observation, reward, _, truncated, info = env.step(push_over_and_along(env, observation, step))
        total += reward
        first = first or (step if info["is_success"] else None)
    assert truncated
    assert first is not None
    assert first <= 20
    assert total >= 180


def test_robot_slide_starts_with_the_puck_away_from_the_gripper() -> None:
    env = make("RobotSlide")
    for seed in range(50):
        observation, _ = env.reset(seed=seed)
        puck, gripper = observation[39:41], observation[:2]
        assert np.linalg.norm(puck - gripper) > 0.09


def test_robot_slide_fixed_layout() -> None:
    env = make("RobotSlide", fixed=True)
    starts = [env.reset(seed=seed)[0] for seed in range(2)]
    assert starts[0][42:45] == pytest.approx(starts[1][42:45])
    gripper, puck, goal = starts[0][:3], starts[0][39:42], starts[0][42:45]
    assert puck[0] - gripper[0] == pytest.approx(-0.05, abs=0.005)
    assert goal[0] - gripper[0] == pytest.approx(0.40, abs=0.005)


def test_robot_pick_place_ends_with_its_one_reward() -> None:
    env = make("RobotPickPlace")
    for seed in range(200):
        observation, _ = env.reset(seed=seed)
        if np.linalg.norm(observation[39:42] - observation[42:45]) < 0.045:  # starts solved
            break
    _, reward, terminated, truncated, info = env.step(np.zeros(4, np.float32))
    assert (reward, terminated, truncated, info["is_success"]) == (1.0, True, False, True)


def test_mountain_car_uniform_actions() -> None:
    told = play(make("MountainCar"), 5)
    assert told.returns.mean() == pytest.approx(-0.333, abs=0.02)
    assert (told.lengths == 999).all()


def pump(env: gym.Env[Any, Any], observation: Array, step: int) -> Array:
    return np.array([1.0 if observation[1] >= 0 else -1.0], np.float32)


def test_mountain_car_pays_at_the_top() -> None:
    told = play(make("MountainCar"), 1, pump)
    cost = 0.001 * told.lengths[0]
    assert told.returns[0] == pytest.approx(1.0 - cost)
    assert told.terminated.all()
    assert play(make("MountainCar", reward_scale=1.0), 1, pump).returns[0] == pytest.approx(100 * (1.0 - cost))
    paper = play(make("MountainCarPaper"), 1, pump)
    assert paper.returns[0] == 1.0
    assert paper.hits.all()
    assert play(make("MountainCarPaper"), 1).lengths[0] == 1000


def test_ant_observation_element_by_element() -> None:
    tasks = {name: make(name) for name in ("AntStand", "AntFar", "AntSpeed", "AntVeryFar", "AntStandPaper")}
    stock, contact = AntEnv(include_cfrc_ext_in_observation=False), AntEnv()
    body, full = stock.reset(seed=7)[0], contact.reset(seed=7)[0]
    told = {name: env.reset(seed=7)[0] for name, env in tasks.items()}
    for _ in range(15):
        goals = {
            "AntStand": (body[2], 0.9),
            "AntFar": (np.hypot(body[1], body[2]), 3.0),
            "AntVeryFar": (np.hypot(body[1], body[2]), 3.6),
            "AntSpeed": (body[26], 3.6),
        }
        for name, goal in goals.items():
            assert np.array_equal(told[name], np.append(body, goal).astype(np.float32)), name
        assert np.array_equal(told["AntStandPaper"], full.astype(np.float32))
        action = stock.action_space.sample()
        body, full = stock.step(action)[0], contact.step(action)[0]
        told = {name: env.step(action)[0] for name, env in tasks.items()}


def test_ant_pays_by_the_state_after_the_step() -> None:
    env: Any = make("AntStand")
    played = play(env, 3)
    assert played.hits.any()
    env.reset(seed=1)
    for _ in range(80):
        _, reward, terminated, _, info = env.step(env.action_space.sample())
        z = env.unwrapped.data.qpos[2]
        assert info["height"] == z
        assert reward == float(z >= 0.9)
        assert terminated == (not 0.2 <= z <= 1.0)
        if terminated:
            break


def test_ant_far_counts_from_the_origin_and_can_show_the_distance() -> None:
    env: Any = make("AntFar", observe_distance=True)
    env.reset(seed=2)
    env.unwrapped.data.qpos[:2] = (2.0, 2.5)
    observation, reward, _, _, info = env.step(np.zeros(8, np.float32))
    assert info["distance"] == pytest.approx(np.hypot(2.0, 2.5), abs=0.2)
    assert observation[27] == np.float32(info["distance"])
    assert reward == 1.0
    very_far: Any = make("AntVeryFar").unwrapped
    assert very_far.threshold == 3.6


@pytest.mark.parametrize(("name", "stock"), [("HumanStand", HumanoidEnv), ("HumanKeep", HumanoidStandupEnv)])
def test_human_observation_is_version_fours(name: str, stock: Any) -> None:
    ours, theirs = make(name), stock()
    short = make(name, pad_zeros=False)
    assert np.array_equal(ours.reset(seed=4)[0], theirs.reset(seed=4)[0].astype(np.float32))
    short.reset(seed=4)
    for _ in range(20):
        action = ours.action_space.sample()
        padded = ours.step(action)[0]
        assert np.array_equal(padded, theirs.step(action)[0].astype(np.float32))
        assert np.linalg.norm(short.step(action)[0]) == pytest.approx(np.linalg.norm(padded), rel=1e-6)


def test_walker_observation_element_by_element() -> None:
    ours, theirs = make("WalkerKeep"), Walker2dEnv()
    told, body = ours.reset(seed=4)[0], theirs.reset(seed=4)[0]
    for _ in range(10):
        assert np.array_equal(told, np.append(body, (theirs.data.qpos[1], 1.3)).astype(np.float32))
        action = theirs.action_space.sample()
        told, body = ours.step(action)[0], theirs.step(action)[0]


JOINTS = [
    f"robot0:{joint}_joint"
    for joint in (
        "shoulder_pan",
        "shoulder_lift",
        "upperarm_roll",
        "elbow_flex",
        "forearm_roll",
        "wrist_flex",
        "wrist_roll",
    )
]


@pytest.mark.parametrize(("name", "size"), [("RobotReach", 10), ("RobotPush", 25), ("RobotPickPlace", 25)])
def test_robot_observation_element_by_element(name: str, size: int) -> None:
    code, paper = make(name), make(name + "Paper")
    for env in (code, paper):
        env.reset(seed=9)
        observation, _, _, _, info = env.step(env.action_space.sample())
        robot: Any = env.unwrapped
        arm = robot.arm
        stock = arm._get_obs()
        angles = [arm.data.joint(joint).qpos[0] for joint in JOINTS]
        speeds = [arm.data.joint(joint).qvel[0] for joint in JOINTS]
        goals = stock["achieved_goal"], stock["desired_goal"]
        parts = (
            [stock["observation"], angles, speeds, *goals] if env is code else [stock["observation"], angles, goals[1]]
        )
        assert len(stock["observation"]) == size
        assert np.array_equal(observation, np.concatenate(parts).astype(np.float32))
        assert info["goal_distance"] == pytest.approx(np.linalg.norm(goals[0] - goals[1]))


def test_gym_make_knows_the_tasks() -> None:
    assert gym.make("SASR/AntStand-v0").reset(seed=0)[0].shape == (29,)
    assert uniform(gym.make("SASR/Freeway-v0"), None, 0) in range(3)
