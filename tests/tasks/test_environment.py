"""Any Gymnasium environment through the same entry point."""

from __future__ import annotations

import sys
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.tasks import make, rendering, sparse

Array = NDArray[Any]


class Tiny(gym.Env):
    """Counts to ten; one argument breaks one rule."""

    def __init__(self, breach: str = "", observation_space: Any = None, at: int = 1) -> None:
        self.observation_space = observation_space or spaces.Box(-1, 1, (2,), np.float64)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.breach, self.at = breach, at
        if breach == "space":
            self.__dict__["observation_space"] = "a box"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        told = self.observation_space.sample() if self.breach != "reset shape" else np.zeros(3)
        answers: dict[str, Any] = {"reset bare": told, "reset info": (told, None)}
        return answers.get(self.breach, (told, {}))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        told, now = self.observation_space.sample(), self.count >= self.at
        broken: dict[str, Any] = {
            "old step": (told, 0.0, False, {}),
            "reward text": (told, "1", False, False, {}),
            "reward nan": (told, float("nan"), False, False, {}),
            "terminated int": (told, 0.0, 1, False, {}),
            "truncated none": (told, 0.0, False, None, {}),
            "step info": (told, 0.0, False, False, []),
            "step shape": (np.zeros(5), 0.0, False, False, {}),
            "outside": (np.full(2, 7.0), 0.0, False, False, {}),
        }
        fine = (told, 0.5, self.count >= 10, False, {"is_success": self.count == 2})
        return broken.get(self.breach, fine) if now else fine


def one_step(breach: str) -> None:
    env = make(Tiny, breach=breach)
    env.reset(seed=0)
    env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("breach", "rule"),
    [
        ("space", "observation_space must be a gymnasium space"),
        ("reset bare", r"reset\(\) must return \(observation, info\)"),
        ("reset info", r"reset\(\) must return info as a dict"),
        ("reset shape", r"reset\(\) must return an observation in Box"),
        ("old step", r"step\(\) must return \(observation, reward, terminated, truncated, info\).*length 4"),
        ("reward text", "reward as a number"),
        ("reward nan", "a finite reward"),
        ("terminated int", "terminated as a bool"),
        ("truncated none", "truncated as a bool"),
        ("step info", r"step\(\) must return info as a dict"),
        ("outside", r"step\(\) must return an observation in Box"),
    ],
)
def test_a_breach_of_the_contract_names_the_rule(breach: str, rule: str) -> None:
    with pytest.raises(ValueError, match=f"Tiny breaks Gymnasium's contract: .*{rule}"):
        one_step(breach)


def test_a_wrong_shape_is_noticed_on_any_step() -> None:
    env = make(Tiny, breach="step shape", at=3)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.step(env.action_space.sample())
    with pytest.raises(ValueError, match=r"observations of shape \(2,\), not \(5,\)"):
        env.step(env.action_space.sample())


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a task must be a gymnasium\.Env"):
        make(lambda: cast(Any, "an environment"))
    with pytest.raises(TypeError, match="must be a name, a Gymnasium id, an environment or a function"):
        make(cast(Any, 3))


def test_float64_becomes_float32_and_success_is_kept() -> None:
    env = make(Tiny)
    observation, _ = env.reset(seed=0)
    assert observation.dtype == env.observation_space.dtype == np.float32
    env.step(env.action_space.sample())
    assert env.step(env.action_space.sample())[4]["is_success"] is True


def test_goal_observations_are_flattened_in_the_authors_order() -> None:
    goal = spaces.Dict(
        desired_goal=spaces.Box(2, 3, (1,), np.float64),
        observation=spaces.Box(0, 1, (3,), np.float64),
        achieved_goal=spaces.Box(1, 2, (1,), np.float64),
    )
    env: Any = make(Tiny, observation_space=goal)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    assert np.array_equal(env.observation_space.low, [0, 0, 0, 1, 2])
    assert np.array_equal(np.floor(observation), [0, 0, 0, 1, 2])


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Dict(b=spaces.Discrete(3), a=spaces.Box(0, 1, (2, 2))), (7,)),
        (spaces.Discrete(4), (4,)),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,)))), (3,)),
        (spaces.Box(0, 1, (2, 3), np.float64), (2, 3)),
        (spaces.Box(0, 255, (4, 4), np.uint8), (4, 4)),
        (spaces.Box(-5, 5, (2,), np.int64), (2,)),
    ],
)
def test_other_observations_take_one_form(space: spaces.Space[Any], shape: tuple[int, ...]) -> None:
    env = make(Tiny, observation_space=space)
    observation, _ = env.reset(seed=0)
    assert observation.shape == env.observation_space.shape == shape
    assert observation.dtype == env.observation_space.dtype
    assert observation.dtype in (np.float32, np.uint8)


def test_observations_without_a_length_are_refused() -> None:
    with pytest.raises(TypeError, match="no fixed length"):
        make(Tiny, observation_space=spaces.Sequence(spaces.Box(0, 1, (1,))))


@pytest.mark.parametrize("id", ["FetchReach-v4", "gymnasium_robotics:FetchReach-v4"])
def test_goal_tasks_of_others_work(id: str) -> None:
    env = make(id)
    assert env.reset(seed=0)[0].shape == (16,)
    assert "is_success" in env.step(env.action_space.sample())[4]


def test_atari_ids_work_without_registration_by_hand() -> None:
    assert make("ALE/Pong-v5").observation_space.dtype == np.uint8


def test_sparse_pays_by_the_predicate() -> None:
    seen = []

    def third_step(env: Any, observation: Array, info: dict[str, Any]) -> bool:
        seen.append(observation)
        return env.count == 3

    env = sparse(make(Tiny), third_step)
    env.reset(seed=0)
    told = [env.step(env.action_space.sample()) for _ in range(4)]
    assert [step[1] for step in told] == [0.0, 0.0, 1.0, 0.0]
    assert [step[4]["is_success"] for step in told] == [False, False, True, False]
    assert [step[4]["success_ever"] for step in told] == [False, False, True, True]
    assert np.array_equal(seen[0], told[0][0])
    env.reset()
    assert env.step(env.action_space.sample())[4]["success_ever"] is False


def test_sparse_can_end_with_success() -> None:
    env = sparse(make(Tiny), lambda env, observation, info: info["is_success"], end_on_success=True)
    env.reset(seed=0)
    assert [env.step(env.action_space.sample())[2] for _ in range(2)] == [False, True]


def test_sparse_refuses_what_is_no_predicate() -> None:
    with pytest.raises(TypeError, match="predicate='height' must be a function"):
        sparse(make(Tiny), cast(Any, "height"))
    env = sparse(make(Tiny), lambda env, observation, info: cast(Any, 0.7))
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"True or False, it returned 0\.7"):
        env.step(env.action_space.sample())


@pytest.mark.parametrize("name", ["AntStand", "RobotPush", "MountainCar", "Freeway"])
def test_rendering_needs_no_display(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    env = make(name, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert (picture.ndim, picture.shape[2]) == (3, 3)
    assert picture.dtype == np.uint8
    assert picture.std() > 5
    env.close()


@pytest.mark.parametrize(("chosen", "package"), [(None, "libegl1"), ("egl", "libegl1"), ("osmesa", "libosmesa6")])
def test_rendering_without_a_library_names_the_package(
    chosen: str | None, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    if chosen:
        monkeypatch.setenv("MUJOCO_GL", chosen)
    monkeypatch.setattr(rendering, "loads", lambda backend: False)
    for name in ("AntStand", "RobotReach"):
        with pytest.raises(ImportError, match=f"render_mode='rgb_array'.*apt install .*{package}"):
            make(name, render_mode="rgb_array")
    make(name)  # without a picture nothing is needed


def test_a_time_limit_of_ones_own_stands_in_place_of_the_registered_one() -> None:
    def tiny() -> Tiny:
        return Tiny(at=1000)

    for task in (tiny, "Pendulum-v1", "MountainCar"):
        env = make(task, max_episode_steps=7)
        env.reset(seed=0)
        ends = [env.step(env.action_space.sample())[2:4] for _ in range(7)]
        assert ends == [(False, False)] * 6 + [(False, True)]


@pytest.mark.parametrize("is_found", [False, True])
def test_what_plugins_print_is_shown_where_a_task_is_found_alone(
    is_found: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    monkeypatch.setattr(gym, "registry", gym.envs.registration.registry)

    def imported(plugin: str) -> str:
        print("news of a plugin", file=sys.stderr)
        if is_found and "Plugged-v0" not in gym.registry:
            gym.register("Plugged-v0", f"{__name__}:Tiny")
        return ""

    monkeypatch.setattr("sasr.tasks.environment.import_plugin", imported)
    if is_found:
        make("Plugged-v0").close()
    else:
        with pytest.raises(LookupError, match="unknown task"):
            make("Plugged-v0")
    assert ("news" in capsys.readouterr().err) == is_found
