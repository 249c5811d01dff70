from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sasr.shaping.rivals.moments import RecentSum, ReturnSpread, RunningMoments, TransposedSpread

CPU = torch.device("cpu")


def yes(rows: torch.Tensor) -> torch.Tensor:
    return torch.ones(rows.shape[:2], dtype=torch.bool)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 10_000))
def test_moments_merged_batch_by_batch_are_those_of_all_rows(sizes: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(2, sum(sizes) + 100, 3, generator=generator, dtype=torch.float64) * 4.0 + 50.0
    moments = RunningMoments(2, 3, CPU)
    for batch in rows.split([*sizes, 100], dim=1):
        moments.merge(batch, yes(batch))
    # They start as 1e-4 of a row with mean 0 and variance 1.
    torch.testing.assert_close(moments.mean, rows.mean(1), rtol=1e-5, atol=0)
    torch.testing.assert_close(moments.var, rows.var(1, correction=0), rtol=2e-2, atol=0)


def test_rows_that_are_not_valid_are_left_out_even_if_they_are_nan() -> None:
    rows = torch.randn(1, 50, 2)
    with_dead = torch.cat([rows, torch.full((1, 5, 2), torch.nan)], dim=1)
    valid = torch.arange(55)[None] < 50
    one, other = RunningMoments(1, 2, CPU), RunningMoments(1, 2, CPU)
    one.merge(rows, yes(rows))
    other.merge(with_dead, valid)
    other.merge(with_dead, torch.zeros_like(valid))
    torch.testing.assert_close(one.mean, other.mean)
    torch.testing.assert_close(one.var, other.var)


def test_features_that_never_change_standardise_to_zero() -> None:
    moments, rows = RunningMoments(1, 1, CPU), torch.full((1, 200_000, 1), 3.0)
    moments.merge(rows, yes(rows))
    assert float(moments.standardise(rows, 5.0).abs().max()) < 0.1
    assert float(moments.standardise(rows + 100.0, 5.0).max()) == 5.0


def test_discounted_sums_are_those_computed_by_hand_and_run_over_episode_ends() -> None:
    spread = ReturnSpread(1, 2, discount=0.5, device=CPU)
    rewards = [[1.0, 0.0], [2.0, 4.0], [0.0, 8.0]]
    for row in rewards:
        reward = torch.tensor([row])
        spread.advance(reward, yes(reward))
    # First environment: 1, 0.5 + 2, 1.25 + 0; second: 0, 4, 2 + 8.
    assert spread.running.tolist() == [[1.25, 10.0]]
    expected = np.std([1.0, 2.5, 1.25, 0.0, 4.0, 10.0])
    assert spread().item() == pytest.approx(expected, rel=1e-3)
    standing = torch.tensor([[True, False]])
    spread.advance(torch.tensor([[1.0, torch.nan]]), standing)
    assert spread.running.tolist() == [[1.625, 10.0]]


def test_sums_divided_by_their_spread_have_a_deviation_of_one() -> None:
    generator, sums = torch.Generator().manual_seed(0), []
    spread = ReturnSpread(1, 8, discount=0.99, device=CPU)
    for _ in range(4_000):
        reward = torch.rand(1, 8, generator=generator).square()
        spread.advance(reward, yes(reward))
        sums.append(spread.running.clone())
    assert float((torch.stack(sums) / spread()).std()) == pytest.approx(1.0, abs=0.05)


def test_what_came_before_learning_weighs_as_one_horizon() -> None:
    large, small = torch.full((1, 1), 100.0), torch.full((1, 1), 1.0)
    spreads = {learning: ReturnSpread(1, 1, discount=0.9, device=CPU, learning=learning) for learning in (True, False)}
    for spread in spreads.values():
        for _ in range(5_000):
            spread.advance(large, yes(large))
        spread.update(torch.zeros(1, 8))
        after_first = spread.moments.count.clone()
        spread.update(torch.zeros(1, 8))  # only the first call counts
        assert torch.equal(spread.moments.count, after_first)
        for _ in range(1_000):
            spread.advance(small, yes(small))
    assert spreads[True].moments.count.item() == pytest.approx(6_000, abs=1)
    assert spreads[False].moments.count.item() == pytest.approx(1_010, abs=1)
    # Ten rows of a thousand have the large sums, in place of five thousand of six; then all those on the way down.
    assert spreads[False]().item() < 0.4 * spreads[True]().item()


def test_a_discount_of_zero_gives_the_deviation_of_the_reward_itself() -> None:
    spread = ReturnSpread(1, 50, discount=0.0, device=CPU)
    rewards = torch.rand(40, 1, 50)
    for reward in rewards:
        spread.advance(reward, yes(reward))
    assert spread().item() == pytest.approx(float(rewards.std(correction=0)), rel=1e-2)


def test_a_recent_sum_is_the_mean_over_the_horizon_and_follows_a_reward_that_shrinks() -> None:
    recent = RecentSum(2, discount=0.9, device=CPU)
    recent.update(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    assert recent()[:, 0].tolist() == pytest.approx([20.0, 0.0], abs=1e-5)
    for _ in range(1500):
        recent.update(torch.full((2, 5), 1e-4))
    assert recent()[:, 0].tolist() == pytest.approx([1e-3, 1e-3], rel=0.05)


@pytest.mark.parametrize("envs", [1, 3])
def test_the_transposed_spread_is_the_released_loop(envs: int) -> None:
    """CleanRL: filter the rows of rewards[T, E].T one after another, then merge their moments with a count of E."""
    T, rollouts, discount = 7, 5, 0.9
    rewards = np.random.default_rng(0).random((rollouts, T, envs))
    running, mean, var, count = np.zeros(T), 0.0, 1.0, 1e-4
    for rollout in rewards:
        filtered = []
        for row in rollout.T:
            running = running * discount + row
            filtered.append(running.copy())
        new, total = len(filtered), count + len(filtered)
        delta = np.mean(filtered) - mean
        var = (var * count + np.std(filtered) ** 2 * new + delta**2 * count * new / total) / total
        mean, count = mean + delta * new / total, total
    spread = TransposedSpread(1, envs, discount=discount, rollout=T, device=CPU)
    for reward in rewards.reshape(-1, 1, envs):
        spread.advance(torch.from_numpy(reward), torch.ones(1, envs, dtype=torch.bool))
    assert spread().item() == pytest.approx(var**0.5, rel=1e-5)
