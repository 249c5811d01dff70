"""Populations that come back: after a restore every environment goes on as if nothing had happened."""

from __future__ import annotations

import zlib
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.envs.population import Population, PopulationError
from tests.envs.small_environments import Count, Drawing, Fragile

Array = NDArray[Any]


def actions_for(population: Population, rng: np.random.Generator) -> Array:
    space: Any = population.action_space
    shape = (population.members, population.environments)
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=shape)
    return rng.uniform(space.low, space.high, (*shape, *space.shape)).astype(np.float32)


def live(population: Population, steps: int, seed: int) -> list[Any]:
    """All that was told in so many steps."""
    rng = np.random.default_rng(seed)
    return [population.step(actions_for(population, rng)) for _ in range(steps)]


def ends(told: Any) -> int:
    return sum(int((step.terminated | step.truncated).sum()) for step in told)


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x[:6], y[:6], strict=True))


def went_on(
    task: Any, steps: int, workers: int, workers_after: int, further: int = 300, **kwargs: Any
) -> tuple[Any, Any, Any, Array, Array]:
    """What happened before and after a moment, again after a restore in another population, and who restarted."""
    with Population(task, seeds=[3, 4], environments=2, workers=workers, **kwargs) as population:
        population.reset()
        before = live(population, steps, 0)
        saved = population.save()
        after = live(population, further, 1)
    with Population(task, seeds=[3, 4], environments=2, workers=workers_after, **kwargs) as population:
        population.reset("another stream")
        live(population, 3, 2)  # it may have done anything before
        restarted = population.restore(saved)
        standing = population.observation
        again = live(population, further, 1)
    return before, after, again, restarted, standing


REAL = [
    ("MountainCar", 1010, 300),  # the second episode, since the first is cut at 999
    ("Pendulum-v1", 250, 300),
    ("CartPole-v1", 90, 300),  # discrete actions
    ("AntStand", 130, 300),
    ("WalkerKeep", 90, 300),
    ("RobotReach", 220, 100),
    ("Freeway", 40, 60),  # the console's own generator decides which actions stick
    ("Pitfall", 330, 60),  # here some are in their second game
]


@pytest.mark.parametrize(("task", "steps", "further"), REAL)
def test_a_restored_population_goes_on_bit_for_bit(task: Any, steps: int, further: int) -> None:
    before, after, again, restarted, standing = went_on(task, steps, 0, 0, further)
    assert not restarted.any()
    assert np.array_equal(standing, before[-1].observation)
    assert same(after, again)
    if task != "Freeway":  # a game of 2,000 steps
        assert ends(before) > 0


@pytest.mark.parametrize(("workers", "workers_after"), [(0, 2), (2, 2), (2, 0)])
def test_the_number_of_workers_may_change(workers: int, workers_after: int) -> None:
    before, after, again, restarted, standing = went_on("Pendulum-v1", 250, workers, workers_after)
    assert not restarted.any()
    assert np.array_equal(standing, before[-1].observation)
    assert ends(after) == 4
    assert same(after, again)


def test_saving_changes_nothing() -> None:
    with (
        Population("AntStand", seeds=[0, 1], workers=0) as one,
        Population("AntStand", seeds=[0, 1], workers=0) as other,
    ):
        one.reset(), other.reset()
        for round_ in range(30):
            one.save()
            assert same(live(one, 3, round_), live(other, 3, round_))


@pytest.mark.parametrize("steps", [0, 4, 11, 25])
@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_any_generator_of_numpy_comes_back(kind: str, steps: int) -> None:
    _, after, again, restarted, _ = went_on(Drawing, steps, 0, 0, 30, kind=kind)
    assert not restarted.any()
    assert same(after, again)


@pytest.mark.parametrize("kind", ["own", "RandomState"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_whose_generator_cannot_be_read_restarts_and_is_told(kind: str, workers: int) -> None:
    _, after, again, restarted, standing = went_on(Drawing, 25, workers, workers, 30, kind=kind)
    assert restarted.all()
    assert not same(after, again)
    assert len(np.unique(standing)) == 4
    assert [step.truncated.all() for step in again] == [t % 11 == 10 for t in range(30)]  # whole new episodes
    # Its first episode began with the seed, which says it all.
    _, after, again, restarted, _ = went_on(Drawing, 5, workers, workers, 6, kind=kind)
    assert not restarted.any()
    assert same(after, again)


def test_restarted_episodes_are_reproducible_and_start_at_unused_places() -> None:
    runs = [went_on(Drawing, 25, 0, 0, 30, kind="own") for _ in range(2)]
    assert same(runs[0][2], runs[1][2])
    seen = np.concatenate([step.observation.ravel() for step in runs[0][0]])
    assert not np.isin(runs[0][4], seen).any()


def test_only_the_episodes_that_differ_restart() -> None:
    with Population("Pendulum-v1", seeds=[3, 4], environments=2, workers=0) as population:
        population.reset()
        live(population, 30, 0)
        saved = population.save()
        expected = live(population, 20, 1)
        saved["2.actions"] = saved["2.actions"] * 0.5
        assert population.restore(saved).tolist() == [[False, False], [True, False]]
        again = live(population, 20, 1)
    for step, other in zip(expected, again, strict=True):
        assert np.array_equal(step.observation[0], other.observation[0])
        assert np.array_equal(step.observation[1, 1], other.observation[1, 1])


class Backwards(gym.Wrapper):
    """Pays for every fifth step of its life, episodes regardless: what no observation tells."""

    count = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        told = self.env.step(action)
        self.count += 1
        return told[0], float(self.count % 5 == 0), *told[2:]


def test_rewards_are_checked_too() -> None:
    def odd() -> gym.Env[Any, Any]:
        return Backwards(Drawing())

    _, _, _, restarted, _ = went_on(odd, 17, 0, 0, 3)
    assert restarted.all()


def test_a_replay_that_raises_restarts() -> None:
    with Population(Count, seeds=[0], environments=2, workers=0) as population:
        population.reset()
        live(population, 2, 0)
        saved = population.save()
        saved["0.generator"] = np.frombuffer(b"no JSON", np.uint8)
        saved["1.began"] = np.frombuffer(b'{"bit_generator": "other"}', np.uint8)
        saved["1.seeded"] = np.array(False)
        assert population.restore(saved).all()
        live(population, 3, 0)


def test_an_environment_that_cannot_even_reset_is_named() -> None:
    with Population(Fragile, seeds=[0], workers=0, harm="", seed=0) as population:
        population.reset()
        saved = population.save()
        runner: Any = population.runner
        runner.stepper.environments[0].env.reset = None
        with pytest.raises(PopulationError, match=r"Fragile: seed 0, environment 0, raised TypeError"):
            population.restore(saved)


def test_an_episode_too_long_to_play_again_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sasr.envs.replayable.LONGEST", 100)
    for steps, restarts in ((100, False), (101, True)):
        with Population("Pendulum-v1", seeds=[0], workers=0) as population:
            population.reset()
            live(population, steps, 0)
            saved = population.save()
            assert saved["0.actions"].shape == ((0 if restarts else steps), 1)
            assert population.restore(saved).all() == restarts


def test_memory_does_not_grow_with_the_run() -> None:
    with Population("Pendulum-v1", seeds=[0], workers=0) as population:
        population.reset()
        live(population, 650, 0)
        saved = population.save()
        assert saved["0.actions"].shape == (50, 1)
        runner: Any = population.runner
        assert len(runner.stepper.environments[0].actions) == 256


def test_what_is_remembered_is_plain_arrays_of_what_was_seen() -> None:
    with Population("Pendulum-v1", seeds=[0], workers=0) as population:
        start = population.reset()
        assert population.save()["0.check"] == zlib.crc32(start[0, 0].tobytes())
        assert {array.dtype.kind for array in population.save().values()} <= set("biuf")


def test_calls_out_of_order_and_foreign_memories_are_refused() -> None:
    with Population(Count, seeds=[0, 1], workers=0) as population:
        with pytest.raises(RuntimeError, match=r"save\(\) before reset\(\)"):
            population.save()
        population.reset()
        saved = population.save()
        population.send(np.zeros((2, 1, 1), np.float32))
        for call in (population.save, lambda: population.restore(saved), lambda: population.observation):
            with pytest.raises(RuntimeError, match="in the middle of a step"):
                call()
        population.receive()
        with pytest.raises(ValueError, match="memory of 1 environments, but the population has 2"):
            population.restore({key: saved[key] for key in saved if key.startswith("0.")})


@pytest.mark.parametrize("task", ["MountainCar", "AntStand", "Freeway", "RobotReach"])
def test_a_reset_with_seeds_forgets_all_that_was_before(task: Any) -> None:
    """So evaluations, which always start from the same seeds, need nothing saved."""
    with Population(task, seeds=[0], workers=0) as fresh, Population(task, seeds=[0], workers=0) as used:
        used.reset()
        live(used, 40, 1)
        assert np.array_equal(fresh.reset("evaluation"), used.reset("evaluation"))
        assert same(live(fresh, 40, 0), live(used, 40, 0))
