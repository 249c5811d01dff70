"""Every id keeps Gymnasium's contract and repeats itself under the same seed and actions."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sasr.tasks import TASKS, catalogue

IDS = list(catalogue.VARIANTS)


@pytest.mark.parametrize("id", IDS)
def test_gymnasiums_checker_finds_nothing(id: str) -> None:
    env = gym.make(id)
    with warnings.catch_warnings():
        # Unbounded observations and actions within ±0.4 are the stock simulators'; anything else is ours.
        warnings.simplefilter("error")
        for accepted in ("Box observation space m..imum value is", "recommend using a symmetric and normalized"):
            warnings.filterwarnings("ignore", message=f".*{accepted}")
        # "human" would need a display; rgb_array has its own test.
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def trajectory(id: str, steps: int, seed: int = 3) -> Any:
    env = gym.make(id)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    seen, paid = [observation], []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        seen.append(observation)
        paid.append((reward, terminated, truncated, info["is_success"], info["success_ever"]))
        if terminated or truncated:
            observation, _ = env.reset()
            seen.append(observation)
    env.close()
    return np.stack(seen), paid


@pytest.mark.parametrize("id", IDS)
def test_same_seed_and_actions_give_the_same_steps(id: str) -> None:
    once, paid_once = trajectory(id, 300)
    again, paid_again = trajectory(id, 300)
    assert np.array_equal(once, again)
    assert paid_once == paid_again
    assert once.dtype == (np.uint8 if catalogue.find(id).family == "Atari" else np.float32)
    assert np.isfinite(once).all()


@pytest.mark.parametrize("id", [id for id in IDS if catalogue.find(id).family in ("MuJoCo", "classic")])
def test_another_seed_gives_another_start(id: str) -> None:
    env = gym.make(id)
    assert not np.array_equal(env.reset(seed=0)[0], env.reset(seed=1)[0])


@pytest.mark.parametrize("task", [task for task in TASKS if task.family != "classic"], ids=lambda task: task.name)
def test_success_ever_holds_for_the_rest_of_the_episode(task: Any) -> None:
    _, paid = trajectory(task.id, 300)
    ever = False
    for _, terminated, truncated, success, success_ever in paid:
        ever |= success
        assert success_ever == ever
        if terminated or truncated:
            ever = False


@pytest.mark.parametrize("id", ["SASR/AntFar-v0", "SASR/HumanStand-v0", "SASR/HumanKeepPaper-v0", "SASR/WalkerKeep-v0"])
def test_a_pickled_task_is_the_same_task(id: str) -> None:
    env = gym.make(id).unwrapped
    copy = pickle.loads(pickle.dumps(env))
    assert copy.observation_space == env.observation_space
    assert np.array_equal(copy.reset(seed=5)[0], env.reset(seed=5)[0])


@pytest.mark.parametrize("id", ["SASR/AntStand-v0", "SASR/RobotReach-v0", "SASR/MountainCar-v0"])
def test_an_unknown_profile_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match="profile='text' must be 'code' or 'paper'"):
        gym.make(id, profile="text")
