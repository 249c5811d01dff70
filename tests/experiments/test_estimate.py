"""What a cell takes is known before it starts."""

from __future__ import annotations

import pytest

from sasr.api import complete
from sasr.experiments import estimate
from sasr.experiments.estimate import examine, measure
from sasr.experiments.plan import changed, grid
from sasr.training.trainer import Trainer
from tests.experiments.small import cells


def test_memory_grows_with_seeds_and_stored_steps_and_tells_how_many_seeds_fit() -> None:
    short, long = (examine(cells(["Pendulum-v1"], ["sac"], steps=steps)[0]) for steps in (1_000, 1_000_000))
    assert short.learned == long.learned
    # An observation of three floats, an action of one, a reward, two flags and an index, at least.
    assert 4 * 3 + 4 + 4 + 2 + 4 <= long.per_step < 100
    assert long.of(10) > long.of(1) > short.of(1)
    for seeds in (1, 4, 9):
        assert long.seeds_within(long.of(seeds)) == seeds
    assert long.seeds_within(0) == 1


def test_an_agent_without_a_replay_buffer_stores_no_steps() -> None:
    (ppo,) = grid(["Pendulum-v1"], ["ppo"], steps=100_000)
    found = examine(ppo)
    assert found.per_step == 0.0
    assert found.learned > 0


@pytest.mark.parametrize("method", ["sasr", "sac"])
def test_a_trial_scales_with_the_length_of_the_run(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "seconds_per_step", lambda trainer, seconds: (1.0, 2.0))
    made = [cells(["Pendulum-v1"], [method], seeds=1, steps=steps)[0] for steps in (1_000, 1_000_000)]
    took = [measure(cell, device="cpu", workers=0, final_episodes=1) for cell in made]
    assert took[1].seconds > 50 * took[0].seconds
    assert took[1].bytes > took[0].bytes


def test_random_steps_at_the_start_are_not_taken_for_steps_that_are_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimate, "seconds_per_step", lambda trainer, seconds: (1.0, 1000.0))
    own = cells(["Pendulum-v1"], ["sac"], seeds=1, steps=50_000)
    for burn_in, wanted in ((40, 40 + 1000 * 49_960), (50_000, 50_000)):
        (cell,) = changed(own, agent={"burn_in": burn_in}, settings={"eval_every": 0})
        found = measure(cell, device="cpu", workers=0, final_episodes=1).seconds
        assert found == pytest.approx(wanted, abs=100)  # the final evaluation is short


@pytest.mark.parametrize("method", ["sac", "ppo"])
def test_a_trial_times_steps_of_both_kinds(method: str) -> None:
    (cell,) = grid(["Pendulum-v1"], [method], steps=10_000)
    with Trainer(complete(cell.config(device="cpu", workers=0))) as trainer:
        at_random, learned_from = estimate.seconds_per_step(trainer, 0.05)
    assert learned_from > 0.0
    assert at_random >= 0.0
    assert trainer.loop.steps > trainer.learner.burn_in
