"""What a run takes is known before it starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sasr.experiments.estimate import Footprint, Trial, cost_class, examine, try_out
from sasr.experiments.plan import GridRun, changed, grid
from sasr.experiments.plan_file import Choice, read_suite
from tests.experiments.small import small_runs


def run_of(method: str, *, steps: int = 1_000, seeds: int = 1) -> GridRun:
    return small_runs(["Pendulum-v1"], [method], steps=steps, seeds=seeds)[0]


def test_memory_grows_with_seeds_and_stored_steps_and_tells_how_many_seeds_fit() -> None:
    short, long = run_of("sac", steps=20_000), run_of("sac", steps=1_000_000)
    need = examine(short)
    assert need == examine(long)
    # An observation of three floats, an action of one, a reward, two flags and an index, at least.
    assert 4 * 3 + 4 + 4 + 2 + 4 <= need.per_step < 100
    assert need.bytes_of(replace(long, seeds=tuple(range(10)))) > need.bytes_of(long) > need.bytes_of(short)
    for seeds in (1, 4, 9):
        assert need.seeds_within(need.bytes_of(replace(long, seeds=tuple(range(seeds)))), long) == seeds
    assert need.seeds_within(0, long) == 1


def test_an_agent_without_a_replay_buffer_stores_no_steps() -> None:
    (ppo,) = grid(["Pendulum-v1"], ["ppo"], steps=100_000)
    need = examine(ppo)
    assert need.per_step == 0.0
    assert need.learned > 0


def test_table1_has_few_kinds_of_runs() -> None:
    everything = read_suite("table1").runs
    kinds = {cost_class(each): each for each in everything}
    methods = {each.method.name for each in everything}
    assert len(kinds) == len(methods) * 5  # the spaces of MountainCar, Human, RobotReach, the other Robots, Ant
    for each in everything:
        alike = kinds[cost_class(each)]
        assert alike.method == each.method
    (ant, far) = (
        read_suite("table1", Choice(tasks=[task], methods=["sasr"])).runs[0] for task in ("AntStand", "AntFar")
    )
    assert cost_class(ant) == cost_class(far)
    assert cost_class(ant) != cost_class(changed([ant], agent={"hidden": [8]})[0])


def test_exact_sums_are_tried_with_as_many_states_as_the_run_has_halfway() -> None:
    retained = {}
    for run in read_suite("rff-on-off", Choice(tasks=["MountainCar"], steps=100_000)).runs:
        retained[run.method.name] = try_out(run, device="cpu", threads=1).retained
    assert retained["sasr without RFF"] == 0.1 * 100_000 / 2  # φ of the steps, halfway
    assert retained["sasr with RFF"] > 0
    assert retained["sac"] == 0


def test_exact_sums_of_runs_of_other_lengths_are_other_kinds() -> None:
    for method, kinds in (("sasr with RFF", 1), ("sasr without RFF", 2)):
        found = set()
        for steps in (50_000, 100_000):
            choice = Choice(tasks=["MountainCar"], methods=[method], steps=steps)
            found |= {cost_class(run) for run in read_suite("rff-on-off", choice).runs}
        assert len(found) == kinds


@pytest.mark.parametrize("method", ["sasr", "sac", "ppo"])
def test_a_trial_times_all_sorts_of_steps(method: str) -> None:
    (run,) = grid(["Pendulum-v1"], [method], steps=10_000)
    trial = try_out(run, device="cpu", threads=1)
    assert 0.0 < trial.random_step < trial.evaluation_step
    assert trial.learning_step > 0.0
    assert trial.footprint.learned > 0


def trial(*, burn_in: int = 40, learning: float = 1_000.0, evaluating: float = 0.0, device: str = "cpu") -> Trial:
    """A random step took a second."""
    return Trial(
        Footprint(0, 0.0),
        burn_in=burn_in,
        retained=0,
        random_step=1.0,
        learning_step=learning,
        evaluation_step=evaluating,
        device=device,
    )


@pytest.mark.parametrize(("burn_in", "seconds"), [(40, 40 + 1000 * 49_960), (50_000, 50_000)])
def test_random_steps_at_the_start_are_not_taken_for_steps_that_are_learned_from(burn_in: int, seconds: float) -> None:
    run = run_of("sac", steps=50_000)
    assert trial(burn_in=burn_in).seconds(run, final_episodes=1) == pytest.approx(seconds)


def test_evaluations_take_as_long_as_the_time_limit() -> None:
    (run,) = changed([run_of("sac", steps=50_000)], settings={"eval_every": 10_000, "eval_episodes": 3})
    taken = trial(burn_in=50_000, evaluating=1.0)
    assert taken.seconds(run, final_episodes=7) == 50_000 + (5 * 3 + 7) * 200
    (shorter,) = changed([run], settings={"max_episode_steps": 10})
    assert taken.seconds(shorter, final_episodes=7) == 50_000 + (5 * 3 + 7) * 10


@pytest.mark.parametrize(("device", "least", "most"), [("cpu", 10.0, 10.0), ("cuda:0", 1.1, 2.0)])
def test_seeds_cost_as_much_as_was_measured_of_them(device: str, least: float, most: float) -> None:
    one, ten = (trial(device=device).seconds(run_of("sac", seeds=seeds), final_episodes=1) for seeds in (1, 10))
    assert least <= ten / one <= most
