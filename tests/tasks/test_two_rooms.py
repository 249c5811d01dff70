"""TwoRooms: walls hold, the door is open, and only the goal pays."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sasr.tasks import make
from sasr.tasks.two_rooms import DOOR, GOAL, LENGTH, RADIUS, STRIDE, WALL, TwoRooms

EAST, NORTH, SOUTH = np.array([1, 0], np.float32), np.array([0, 1], np.float32), np.array([0, -1], np.float32)


def walk(env: gym.Env, *legs: tuple[np.ndarray, int]) -> list[tuple[np.ndarray, float, bool]]:
    seen = []
    for action, steps in legs:
        for _ in range(steps):
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append((observation, float(reward), terminated))
            if terminated or truncated:
                return seen
    return seen


def test_the_way_through_the_door_reaches_the_goal_which_pays_once_and_ends() -> None:
    env = make("TwoRooms")
    env.reset(seed=0)
    seen = walk(env, (NORTH, 15), (EAST, 36), (SOUTH, 30))
    assert [reward for _, reward, _ in seen] == [0.0] * (len(seen) - 1) + [1.0]
    assert seen[-1][2]
    assert np.linalg.norm(seen[-1][0] - GOAL) <= RADIUS


def test_the_straight_way_ends_at_the_wall() -> None:
    env = make("TwoRooms")
    env.reset(seed=0)
    seen = walk(env, (EAST, 300))
    assert len(seen) == 200  # the time limit
    assert max(float(at[0]) for at, _, _ in seen) == pytest.approx(WALL)
    assert not any(reward for _, reward, _ in seen)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_rooms_are_left_by_the_door_alone(seed: int) -> None:
    env, generator = TwoRooms(), np.random.default_rng(seed)
    env.reset(seed=seed)
    env.x, env.y = generator.uniform(0.8, 1.2), generator.uniform(0.0, 1.0)
    for _ in range(50):
        x, y = env.x, env.y
        at, _, _, _, _ = env.step(generator.uniform(-1.5, 1.5, 2).astype(np.float32))
        assert 0.0 <= env.x <= LENGTH
        assert 0.0 <= env.y <= 1.0
        assert at in env.observation_space
        assert max(abs(env.x - x), abs(env.y - y)) <= STRIDE + 1e-9
        if (x < WALL) != (env.x < WALL):
            crossing = y + (env.y - y) * (WALL - x) / (env.x - x)
            assert DOOR[0] <= crossing <= DOOR[1]


def test_a_random_policy_does_not_find_the_goal() -> None:
    env = make("TwoRooms")
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(20_000):
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert reward == 0.0
        if terminated or truncated:
            env.reset()


def test_the_picture_shows_point_and_goal() -> None:
    env = make("TwoRooms", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    walk(env, (NORTH, 5))
    assert isinstance(before, np.ndarray)
    assert before.shape == (200, 400, 3)
    after = env.render()
    assert isinstance(after, np.ndarray)
    assert not np.array_equal(before, after)
