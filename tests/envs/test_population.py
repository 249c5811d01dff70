"""A population of environments: what it delivers, and that members and workers do not matter to one another."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.envs.population import Population
from sasr.randomness import stream_seed
from sasr.tasks import make
from tests.envs.small_environments import Count

Array = NDArray[Any]


def scripted(member: int, steps: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(member).uniform(-1, 1, (steps, *shape)).astype(np.float32)


def lived(task: Any, seeds: Sequence[int], workers: int, steps: int, environments: int = 2) -> dict[int, Any]:
    """All that each member saw: {seed: list of arrays}."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than environments
        population = Population(task, seeds=seeds, environments=environments, workers=workers)
    with population:
        shape = (environments, *(population.action_space.shape or ()))
        actions = np.stack([scripted(seed, steps, shape) for seed in seeds])
        seen: list[tuple[Any, ...]] = [(population.reset(),)]
        seen += [tuple(population.step(actions[:, t]))[:6] for t in range(steps)]
    return {seed: [[part[index] for part in moment] for moment in seen] for index, seed in enumerate(seeds)}


@pytest.mark.parametrize(("task", "steps"), [("AntStand", 90), (Count, 10)])
def test_a_member_lives_the_same_life_in_any_company(task: Any, steps: int) -> None:
    alone = {seed: lived(task, [seed], 0, steps)[seed] for seed in (50, 53, 59)}
    for members, workers in ((1, 1), (4, 0), (10, 3)):  # 20 environments are no multiple of 3
        for seed, life in lived(task, range(50, 50 + members), workers, steps).items():
            if seed in alone:
                for moment, expected in zip(life, alone[seed], strict=True):
                    assert all(np.array_equal(a, b) for a, b in zip(moment, expected, strict=True))


def test_a_member_lives_as_its_environment_does_alone() -> None:
    env = make("AntStand")
    observation, _ = env.reset(seed=stream_seed(7, "environment/1"))
    with Population("AntStand", seeds=[6, 7], environments=2, workers=2) as population:
        assert np.array_equal(population.reset()[1, 1], observation)
        for action in scripted(0, 150, (2, 2, 8)):
            step = population.step(action)
            observation, reward, terminated, truncated, info = env.step(action[1, 1])
            assert np.array_equal(step.final_observation[1, 1], observation)
            if terminated or truncated:
                observation, _ = env.reset()
            assert np.array_equal(step.observation[1, 1], observation)
            assert (step.reward[1, 1], step.success[1, 1]) == (reward, info["is_success"])
            assert (step.terminated[1, 1], step.truncated[1, 1]) == (terminated, truncated)


def test_environments_and_members_differ_and_streams_are_reproducible() -> None:
    with Population("MountainCar", seeds=[0, 1], environments=3, workers=0) as population:
        first, again, other = population.reset(), population.reset(), population.reset("evaluation")
    assert len(np.unique(first[..., 0])) == 6
    assert np.array_equal(first, again)
    assert not np.isin(other[..., 0], first[..., 0]).any()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_end_brings_both_observations_and_costs_no_step(workers: int) -> None:
    with Population(Count, seeds=[0, 1], environments=1, workers=workers, info_keys=["count"]) as population:
        assert population.reset().tolist() == [[[0, 0, 0]]] * 2
        told = [population.step(np.full((2, 1, 1), 0.5, np.float32)) for _ in range(9)]
    assert [step.reward[0, 0] for step in told] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert [step.truncated[1, 0] for step in told] == [t == 3 for t in range(9)]
    assert [step.terminated[1, 0] for step in told] == [t == 7 for t in range(9)]
    assert told[3].final_observation[0, 0].tolist() == [0, 4, 0.5]
    assert told[3].observation[0, 0].tolist() == [1, 0, 0]
    assert told[4].observation[0, 0].tolist() == told[4].final_observation[0, 0].tolist() == [1, 1, 0.5]
    assert [bool(step.success[0, 0]) for step in told[:4]] == [False, True, False, False]
    counts = [step.info["count"][0, 0] for step in told[:4]]
    assert counts[:3] == [1, 2, 3]
    assert np.isnan(counts[3])


def test_what_was_received_stays_as_it_was() -> None:
    with Population(Count, seeds=[0], environments=2, workers=2) as population:
        start = population.reset()
        kept = population.step(np.zeros((1, 2, 1), np.float32))
        copy = kept.observation.copy()
        population.step(np.ones((1, 2, 1), np.float32))
    assert start[0, 0].tolist() == [0, 0, 0]
    assert np.array_equal(kept.observation, copy)


def test_types_and_shapes() -> None:
    with Population("Freeway", seeds=[0, 1], workers=2, info_keys=["game_score"]) as population:
        assert population.reset().dtype == np.uint8
        step = population.step(np.ones((2, 1), np.int64))
    assert step.observation.shape == step.final_observation.shape == (2, 1, 84, 84)
    assert step.reward.dtype == np.float32
    assert step.terminated.dtype == step.truncated.dtype == step.success.dtype == np.bool_
    assert step.info["game_score"].tolist() == [[0.0], [0.0]]


def test_a_function_from_anywhere_travels_to_the_workers() -> None:
    end = 2

    def local() -> Any:
        return Count(end=end)

    with Population(local, seeds=[0], environments=2, workers=2) as population:
        population.reset()
        population.step(np.zeros((1, 2, 1), np.float32))
        assert population.step(np.zeros((1, 2, 1), np.float32)).truncated.all()


def test_foreign_ids_work_in_workers() -> None:
    with Population("CartPole-v1", seeds=[0, 1], workers=2) as population:
        population.reset()
        assert population.step(np.array([[0], [1]])).reward.tolist() == [[1.0], [1.0]]


def test_one_environment_and_cheap_ones_stay_in_this_process() -> None:
    for task, members in (("AntStand", 1), (Count, 3)):
        with Population(task, seeds=range(members)) as population:
            assert population.workers == 0


def test_costly_ones_go_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sasr.envs.population.cores", lambda: 2)
    with Population("AntStand", seeds=range(3)) as population:
        assert population.workers == 2


def test_more_workers_than_environments_are_reduced_with_a_notice() -> None:
    with (
        pytest.warns(UserWarning, match="workers=5 is more than the 2 environments; 2 are started"),
        Population(Count, seeds=[0, 1], workers=5) as population,
    ):
        assert population.workers == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seeds": []}, ValueError, r"len\(seeds\)=0 must be an integer of at least 1"),
        ({"seeds": 4}, TypeError, r"seeds=4 must be a list.*range\(4\)"),
        ({"seeds": [1, -2]}, ValueError, "seeds has -2"),
        ({"seeds": [0.5]}, ValueError, "seeds has 0.5"),
        ({"seeds": [0], "environments": 0}, ValueError, "environments=0 must be an integer of at least 1"),
        ({"seeds": [0], "workers": -1}, ValueError, "workers=-1 must be an integer of at least 0"),
        ({"seeds": [0], "workers": 1.5}, ValueError, "workers=1.5 must be an integer"),
    ],
)
def test_impossible_populations_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Population(Count, **arguments)


def test_an_unknown_task_offers_names() -> None:
    with pytest.raises(LookupError, match="did you mean AntStand"):
        Population("AntStan", seeds=[0])


def test_composite_actions_are_refused() -> None:
    with pytest.raises(TypeError, match="not a plain array"):
        Population(Count, seeds=[0], action_space=spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))))


def population_of(space: spaces.Space[Any]) -> Population:
    population = Population(Count, seeds=[10, 11, 12], environments=2, workers=0, action_space=space)
    population.reset()
    return population


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.01, -7.0])
def test_an_action_outside_its_space_names_member_and_index(value: float) -> None:
    actions = np.zeros((3, 2, 4), np.float32)
    actions[2, 1, 3] = value
    message = rf"action of seed 12, environment 1 is {np.float32(value)!s}.* at index 3, outside"
    with population_of(spaces.Box(-1, 1, (4,), np.float32)) as population:
        with pytest.raises(ValueError, match=message):
            population.send(actions)
        actions[2, 1, 3] = 1.0
        assert population.step(actions).reward.shape == (3, 2)  # the refusal left it usable


def test_a_bound_given_in_float64_is_inside() -> None:
    bound = 0.7  # float32(0.7) is smaller
    with population_of(spaces.Box(-bound, bound, (1,), np.float32)) as population:
        assert population.step(np.full((3, 2, 1), bound)).final_observation[0, 0, 2] == np.float32(bound)


def test_closing_in_the_middle_of_a_step_kills_nobody() -> None:
    population = Population("AntStand", seeds=range(4), workers=2)
    population.reset()
    population.send(np.zeros((4, 1, 8), np.float32))
    processes = list(population.processes)
    population.close()
    assert [process.returncode for process in processes] == [0, 0]  # they closed by themselves


@pytest.mark.parametrize(
    ("space", "fine", "wrong"),
    [
        (spaces.Discrete(3), 2, 3),
        (spaces.Discrete(3, start=5), 7, 4),
        (spaces.MultiDiscrete([2, 4]), [1, 3], [1, 4]),
        (spaces.MultiBinary(2), [0, 1], [0, 2]),
    ],
)
def test_discrete_actions_are_checked_too(space: spaces.Space[Any], fine: Any, wrong: Any) -> None:
    with population_of(space) as population:
        population.step(np.broadcast_to(np.array(fine), (3, 2, *(space.shape or ()))))
        with pytest.raises(ValueError, match=r"action of seed 10, environment 0 .*outside"):
            population.send(np.broadcast_to(np.array(wrong), (3, 2, *(space.shape or ()))))


def test_a_wrong_shape_or_kind_of_action_is_refused() -> None:
    with population_of(spaces.Box(-1, 1, (4,), np.float32)) as population:
        with pytest.raises(ValueError, match=r"shape \(3, 4\), Count needs \(3, 2, 4\)"):
            population.send(np.zeros((3, 4), np.float32))
        with pytest.raises(TypeError, match="actions are <U1"):
            population.send(np.full((3, 2, 4), "a"))
    with population_of(spaces.Discrete(3)) as population, pytest.raises(TypeError, match=r"float64.*needs int64"):
        population.send(np.zeros((3, 2)))


def test_calls_out_of_order_are_refused() -> None:
    actions = np.zeros((1, 1, 1), np.float32)
    population = Population(Count, seeds=[0])
    with pytest.raises(RuntimeError, match=r"send\(\) before reset\(\)"):
        population.send(actions)
    population.reset()
    with pytest.raises(RuntimeError, match=r"receive\(\) without send\(\)"):
        population.receive()
    population.send(actions)
    with pytest.raises(RuntimeError, match=r"send\(\) twice"):
        population.send(actions)
    assert population.reset().tolist() == [[[1, 0, 0]]]  # a reset overtakes the step that is under way
    population.close()
    population.close()
    with pytest.raises(RuntimeError, match="closed"):
        population.reset()
