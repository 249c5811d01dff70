"""n-step windows of the replay buffer are those that a loop over the stored steps finds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sasr import Host, Transition
from sasr.experience.replay import Replay
from tests.conftest import box, make_step

GAMMA = 0.9


def filled(lengths: list[tuple[int, bool]], *, capacity: int, envs: int = 1) -> tuple[Replay, list[Transition]]:
    """A replay of episodes, each of a length and ended by termination or a time limit; observations count the steps."""
    replay = Replay(Host(observation_space=box(1), action_space=box(1), envs=envs), capacity=capacity)
    steps = []
    number = 0.0
    for length, terminated in lengths:
        for t in range(length):
            number += 1.0
            obs = number + 1000.0 * torch.arange(envs).view(1, envs, 1)
            last = torch.full((1, envs), t == length - 1)
            ends = torch.full((1, envs), terminated)
            step = Transition(obs, obs, obs[..., 0], obs + 0.5, last & ends, last & ~ends)
            replay.add(step)
            steps.append(step)
            number += 0.5 if t < length - 1 else 100.0
            number -= 1.0 if t < length - 1 else 0.0
    return replay, steps


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=2, max_size=8),
    n=st.integers(1, 5),
    envs=st.integers(1, 2),
    room=st.integers(4, 60),
)
def test_windows_are_those_of_a_loop_over_the_steps(
    lengths: list[tuple[int, bool]], n: int, envs: int, room: int
) -> None:
    replay, steps = filled(lengths, capacity=room * envs, envs=envs)
    stored = {(float(s.reward[0, e]), e): (i, e) for i, s in enumerate(steps) for e in range(envs)}
    window = replay.gather(torch.linspace(0, 0.999, 50, dtype=torch.float64)[None], n)
    batch = window.batch(GAMMA)
    sampled = window.first()
    for b in range(50):
        reward = float(sampled.reward[0, b])
        i, e = stored[reward, int(reward >= 1000.0)]
        total, m = 0.0, 0
        while m < n and i + m < len(steps):
            step = steps[i + m]
            total += GAMMA**m * float(step.reward[0, e])
            m += 1
            if bool(step.terminated[0, e] | step.truncated[0, e]):
                break
        last = steps[i + m - 1]
        assert float(batch.reward[0, b]) == pytest.approx(total, rel=1e-5)
        assert float(batch.next_obs[0, b]) == float(last.next_obs[0, e])
        assert bool(batch.terminated[0, b]) == bool(last.terminated[0, e])
        discount = GAMMA if batch.discount is None else float(batch.discount[0, b])
        assert discount == pytest.approx(GAMMA**m)


def test_a_restarted_environment_ends_a_window() -> None:
    replay, _ = filled([(3, True)], capacity=50)
    elsewhere = torch.full((1, 1, 1), 77.0)
    no = torch.zeros(1, 1, dtype=torch.bool)
    for _ in range(2):  # neither step ends an episode, but the second does not begin where the first one led
        replay.add(Transition(elsewhere, elsewhere, elsewhere[..., 0], elsewhere + 1.0, no, no))
    window = replay.gather(torch.tensor([[0.3]], dtype=torch.float64), 3)
    assert float(window.first().obs[0, 0, 0]) == 77.0
    assert window.counts[0, :, 0].tolist() == [True, False, False]


def test_each_step_of_a_window_has_the_success_that_the_environment_told() -> None:
    replay = Replay(Host(observation_space=box(1), action_space=box(1)), capacity=50)
    for t in range(40):
        step = make_step(torch.full((1, 1, 1), float(t)), success=torch.tensor([[t % 3 == 0]]))
        replay.add(step._replace(next_obs=step.obs + 1.0))
    window = replay.sample_windows(200, 3)
    for batch in (window.steps, window.first(), replay.sample(30)):
        assert batch.success is not None
        assert torch.equal(batch.success, batch.obs[..., 0] % 3 == 0)


def test_one_step_windows_are_the_sampled_steps() -> None:
    replay, _ = filled([(5, True), (5, False)], capacity=50)
    window = replay.gather(torch.rand(1, 20, dtype=torch.float64), 1)
    assert window.batch(GAMMA) is window.steps
    values = torch.randn(1, 20)
    assert torch.equal(window.total(values, GAMMA), values)
