"""The options of SASR that no preset turns on: each does what it says, and nothing else changes."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sasr import SASR, Batch, Host
from sasr.evidence.prior import ENOUGH, MEMORY, SIZES
from sasr.shaping.diagnosis import diagnose
from sasr.shaping.presets import PRESETS
from sasr.shaping.reward_range import range_shift
from tests.conftest import make_batch, make_step

Bound = Callable[..., SASR]
OPTIONS: list[dict[str, Any]] = [
    {"draw": "episode"},
    {"reward_scale": "mean"},
    {"reward_scale": "largest"},
    {"range_rule": "observed"},
    {"range_rule": "observed", "absorbing": False},
    {"weight_rule": "failures"},
    {"background": 50.0},
    {"background": "fitted"},
    {"background": "fitted", "estimator": "squared", "scaling": "density"},
    {"background": 20.0, "draw": "episode", "scaling": "density"},
    {"paid_end": "lost"},
    {"paid_end": "stay", "range_rule": "observed", "draw": "episode"},
    {"retention_rule": "adaptive"},
    {"weighting": "discounted"},
    {"potential": True},
    {"potential": True, "draw": "episode", "range_rule": "observed", "reward_scale": "mean"},
    {"weighting": "discounted", "estimator": "squared"},
]
"""Every option in every kind of state it brings."""


def play(shaper: SASR, length: int, *, seed: int = 0, reward: float = 1.0, end: str = "terminated") -> None:
    """One episode of random states in all of a shaper's environments; member p's states do not depend on P."""
    seeds, envs = shaper.host.seeds, shaper.host.envs
    own = [torch.Generator().manual_seed(1000 * seed + s) for s in seeds]
    states = torch.stack([torch.randn(length, envs, 2, generator=g) for g in own], dim=1)
    for t, obs in enumerate(states):
        last = t == length - 1
        ending = {end: True} if last else {}
        shaper.observe(make_step(obs, reward=reward if last else 0.0, **ending))


def history(shaper: SASR) -> None:
    for seed, (length, reward, end) in enumerate(
        [(30, 0.0, "truncated"), (7, 2.5, "terminated"), (40, 0.0, "terminated"), (90, 0.7, "truncated")]
    ):
        play(shaper, length, seed=seed, reward=reward, end=end)


def a_batch(members: int = 1, *, seed: int = 9, size: int = 40) -> Tensor:
    return torch.randn(members, size, 2, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------ what holds for all of them


def test_no_preset_turns_an_option_on_but_the_default_these_two() -> None:
    own = {("auto", "paid_end", "stay"), ("auto", "weight_rule", "failures")}
    asked = {(name, value) for option in OPTIONS for name, value in option.items()} - {
        ("absorbing", False),
        ("estimator", "squared"),
    }
    presets = ((preset, vars(config)) for preset, config in PRESETS.items())
    assert {(preset, *each) for preset, config in presets for each in asked if config[each[0]] == each[1]} == own


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_a_seed_is_shaped_the_same_alone_and_in_a_population(option: dict[str, Any], bound: Bound) -> None:
    together, alone = bound(seeds=(1, 2, 3), envs=2, **option), bound(seeds=(2,), envs=2, **option)
    for shaper in (together, alone):
        history(shaper)
    obs = a_batch(3)
    for terminated in (False, True):
        found = together.shape(make_batch(obs, terminated=terminated))
        assert torch.equal(found[1], alone.shape(make_batch(obs[1:2], terminated=terminated))[0])


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_a_restored_shaper_goes_on_bit_for_bit(option: dict[str, Any], bound: Bound) -> None:
    original, restored = bound(seeds=(1, 2), **option), bound(seeds=(1, 2), **option)
    history(original)
    for obs in torch.randn(7, 2, 1, 2):  # leaves an episode open
        original.observe(make_step(obs, reward=0.3))
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    for shaper in (original, restored):
        history(shaper)
    batch = make_batch(a_batch(2), reward=1.0, terminated=True)
    assert torch.equal(original.shape(batch), restored.shape(batch))
    assert all(torch.equal(value, restored.state_dict()[key]) for key, value in original.state_dict().items())


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_weight_zero_pays_nothing_and_shaping_changes_no_state(option: dict[str, Any], bound: Bound) -> None:
    shaper = bound(**option, reward_weight=0.0)
    history(shaper)
    before = {k: v.clone() for k, v in shaper.state_dict().items() if "extra_state" not in k}
    for terminated in (False, True):
        assert (shaper.shape(make_batch(a_batch(), terminated=terminated)) == 0).all()
    assert all(torch.equal(value, shaper.state_dict()[key]) for key, value in before.items())


def test_options_that_are_off_add_nothing_to_a_checkpoint(bound: Bound) -> None:
    """So that a checkpoint from before there were options still loads."""
    own = {
        "segmenter": "open_items length was_hit repeated",
        "retention_streams": "_extra_state",
        "beta_streams": "_extra_state",
    }
    evidence = {
        "": "until_rebuild rebuilds observed",
        "store.": "states owner size",
        "normaliser.": "count mean spread centre scale",
        "estimator.": "size total",
        "estimator.features.": "frequency phase bandwidth",
    }
    expected = {f"{part}.{name}" for part, names in own.items() for name in names.split()}
    expected |= {f"evidence.{part}{name}" for part, names in evidence.items() for name in names.split()}
    assert set(bound(paid_end="goal").state_dict()) == expected


class NoReading(TorchDispatchMode):
    """Refuses what a captured graph can't hold: a number read back, or a shape that depends on data."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket.__name__ not in ("_local_scalar_dense", "nonzero", "masked_select"), str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("option", [own for own in OPTIONS if own.get("estimator") != "squared"], ids=str)
def test_shaping_reads_no_number_back(option: dict[str, Any], bound: Bound) -> None:
    shaper, batch = bound(**option), make_batch(a_batch())
    history(shaper)
    with NoReading():
        shaper.shape(batch)
        shaper.update(batch)
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoReading():
        shaper.shape(batch)[0, 0].item()


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_the_doctor_judges_the_states_under_every_option(option: dict[str, Any]) -> None:
    states = torch.randn(1200, 2, generator=torch.Generator().manual_seed(0))
    assert diagnose(states, SASR(**option)).is_signal


# -------------------------------------------------------------------------------------- draws that last


def test_a_draw_lasts_for_an_episode(bound: Bound) -> None:
    shaper, batch = bound(draw="episode", seeds=(1, 2)), make_batch(torch.zeros(2, 5, 2))
    first = shaper.shape(batch)
    assert torch.equal(first, shaper.shape(batch))
    assert (first == first[:, :1]).all()
    assert first[0, 0] != first[1, 0]
    shaper.observe(make_step(torch.zeros(2, 1, 2), truncated=[[True], [False]]))
    second = shaper.shape(batch)
    assert first[0, 0] != second[0, 0]


def test_an_unknown_state_is_judged_uniformly_over_many_episodes(bound: Bound) -> None:
    shaper, found = bound("paper", draw="episode", reward_weight=1.0, estimator="exact"), []
    unknown = make_batch(torch.full((1, 1, 2), 50.0))
    for _ in range(2000):
        found.append(shaper.shape(unknown).item())
        shaper.observe(make_step(torch.zeros(1, 1, 2), truncated=True))
    assert stats.kstest(found, "uniform").pvalue > 0.001


def test_the_first_environment_sets_the_pace(bound: Bound) -> None:
    shaper = bound(draw="episode", envs=2)
    before = shaper.episode_draws.normal.clone()
    shaper.observe(make_step(torch.zeros(1, 2, 2), terminated=[[False, True]]))
    shaper.observe(make_step(torch.zeros(1, 2, 2), terminated=True, valid=torch.tensor([[False, True]])))
    assert torch.equal(shaper.episode_draws.normal, before)
    shaper.observe(make_step(torch.zeros(1, 2, 2), terminated=[[True, False]]))
    assert not torch.equal(shaper.episode_draws.normal, before)


# ------------------------------------------------------------------------------ the reward as the unit


def test_the_bonus_is_paid_in_the_environments_own_coin(bound: Bound) -> None:
    mean, largest, fixed = (
        bound(reward_scale=rule, seeds=(1, 2), sample=False) for rule in ("mean", "largest", "fixed")
    )
    shapers, batch = (mean, largest, fixed), make_batch(a_batch(2))
    for shaper in shapers:
        for reward in (0.0, 2.0, 0.0, -50.0, 4.0):
            shaper.observe(make_step(torch.zeros(2, 1, 2), reward=[[reward], [-0.01]]))
    one = fixed.shape(batch)
    torch.testing.assert_close(mean.shape(batch), one * torch.tensor([[3.0], [1.0]]))
    torch.testing.assert_close(largest.shape(batch), one * torch.tensor([[4.0], [1.0]]))
    assert mean.update(batch)["reward_scale"].tolist() == [3.0, 1.0]
    assert "reward_scale" not in fixed.update(batch)


def test_the_scale_is_told_once_it_has_moved_and_never_far_from_the_truth(bound: Bound) -> None:
    shaper, generator, changes = bound(reward_scale="mean"), torch.Generator().manual_seed(0), 0
    for _ in range(500):
        before = shaper.reward_scale.in_force.clone()
        reward = float(torch.rand((), generator=generator) * 5)
        shaper.observe(make_step(torch.zeros(1, 1, 2), reward=reward))
        truth = float(shaper.reward_scale.total / shaper.reward_scale.steps)
        assert float(shaper.reward_scale.in_force) == pytest.approx(truth, rel=0.0101)
        changes += int(not torch.equal(before, shaper.reward_scale.in_force))
    assert 1 < changes < 100


def test_a_task_that_pays_minus_one_and_zero_keeps_the_unit_one(bound: Bound) -> None:
    shaper = bound(reward_scale="mean", reward_above=-0.5)
    for reward in (-1.0, 0.0, -1.0):
        shaper.observe(make_step(torch.zeros(1, 1, 2), reward=reward))
    assert shaper.reward_scale.in_force.tolist() == [1.0]


def test_a_dead_steps_reward_is_no_reward(bound: Bound) -> None:
    shaper = bound(reward_scale="largest")
    shaper.observe(make_step(torch.zeros(1, 1, 2), reward=100.0, valid=torch.tensor([[False]])))
    assert shaper.reward_scale.in_force.tolist() == [1.0]


# ----------------------------------------------------------------------- a range that follows the ends


def ends(shaper: SASR, *, reward: list[float], count: int = 1, end: str = "terminated") -> None:
    for _ in range(count):
        shaper.observe(make_step(torch.zeros(len(reward), 1, 2), reward=[[own] for own in reward], **{end: True}))


def test_the_range_lies_below_zero_where_success_ends_and_above_where_failure_does(bound: Bound) -> None:
    plain = {"reward_weight": 1.0, "weight_rule": "fixed", "background": 0.0, "estimator": "exact"}
    shaper = bound(range_rule="observed", seeds=(1, 2), **plain)
    unknown = make_batch(torch.full((2, 3000, 2), 50.0))

    def bounds() -> Tensor:
        bonus = shaper.shape(unknown)
        return torch.stack([bonus.min(1).values, bonus.max(1).values], dim=1)

    torch.testing.assert_close(bounds(), torch.tensor([[-1.0, 0.0], [-1.0, 0.0]]), rtol=0, atol=0.01)
    ends(shaper, reward=[0.0, 0.0], count=20, end="truncated")
    assert shaper.observed_range.shift.tolist() == [-1.0, -1.0]
    ends(shaper, reward=[1.0, 0.0], count=199)
    assert shaper.update(unknown)["range_shift"].tolist() == pytest.approx([-1.0, -1 / 200])
    torch.testing.assert_close(bounds(), torch.tensor([[-1.0, 0.0], [0.0, 1.0]]), rtol=0, atol=0.02)


@settings(max_examples=50, deadline=None)
@given(won=st.integers(0, 10**6), lost=st.integers(0, 10**6))
def test_the_shift_stays_in_its_range_and_follows_each_end(won: int, lost: int) -> None:
    here, more_won, more_lost = range_shift(np.array([won, won + 1, won]), np.array([lost, lost, lost + 1])).tolist()
    assert -1.0 <= more_won <= here < more_lost <= 0.0


def test_with_absorbing_a_range_is_worth_the_same_everywhere(bound: Bound) -> None:
    """Moving the range adds c/(1 − γ) to the return of any trajectory, however it ends: no choice depends on it."""
    below, moved = (bound(range_rule="observed", sample=False, discount=0.9) for _ in range(2))
    ends(moved, reward=[0.0], count=4)
    moved.evidence.load_state_dict(below.evidence.state_dict())
    c = moved.config.reward_weight * (float(moved.observed_range.shift[0]) + 1.0)
    obs = a_batch(size=6)
    for reward in (0.0, 1.0):
        returns = []
        for shaper in (below, moved):
            bonus = shaper.shape(make_batch(obs, reward=reward)._replace(terminated=torch.arange(6)[None] == 5))
            returns.append(float((bonus * 0.9 ** torch.arange(6)).sum()))
        assert returns[1] - returns[0] == pytest.approx(c / (1 - 0.9), rel=1e-4)


def test_an_end_is_judged_by_its_last_step_as_the_absorbing_rule_does(bound: Bound) -> None:
    shaper = bound(range_rule="observed")
    shaper.observe(make_step(torch.zeros(1, 1, 2), reward=1.0))
    ends(shaper, reward=[0.0])
    assert (int(shaper.observed_range.succeeded), int(shaper.observed_range.failed)) == (0, 1)


# ---------------------------------------------------------------- ends with a reward: a goal, or pay cut off


def rewards(shaper: SASR, *paid: float, end: str | None = "terminated") -> None:
    """One episode of all members that is paid like this, step by step; without an end, it goes on."""
    members, envs = shaper.host.members, shaper.host.envs
    for t, reward in enumerate(paid):
        ending = {end: True} if end and t == len(paid) - 1 else {}
        shaper.observe(make_step(torch.zeros(members, envs, 2), reward=reward, **ending))


def forever(shaper: SASR, reward: float) -> float:
    """What an end with this reward adds to the bonus of the last state, in units of γ/(1 − γ)·λ."""
    last = make_batch(torch.zeros(1, 1, 2), reward=reward)
    ended, went_on = (shaper.shape(last._replace(terminated=torch.tensor([[own]]))) for own in (True, False))
    gamma = shaper.host.discount
    return float(ended - went_on) / (gamma / (1 - gamma) * shaper.config.reward_weight)


@pytest.mark.parametrize("paid_end", ["lost", "stay"])
def test_an_end_with_a_reward_stays_the_goal_where_rewards_come_alone(bound: Bound, paid_end: str) -> None:
    shaper = bound(paid_end=paid_end, weight_rule="fixed", sample=False)
    assert forever(shaper, 1.0) == pytest.approx(0.0, abs=1e-6)
    for _ in range(50):
        rewards(shaper, 0.0, 0.0, 1.0)
        rewards(shaper, 1.0, 0.0, -1.0, 1.0, 0.0, 1.0)  # goals on the way are no wage either
    assert shaper.reward_runs.lasting.tolist() == [0.0]
    assert forever(shaper, 1.0) == pytest.approx(0.0, abs=1e-6)
    assert forever(shaper, 0.0) == pytest.approx(-1.0)


@pytest.mark.parametrize("paid_end", ["lost", "stay"])
def test_an_end_with_a_reward_is_no_goal_where_rewards_go_on(bound: Bound, paid_end: str) -> None:
    shaper = bound(paid_end=paid_end, weight_rule="fixed", sample=False)
    for _ in range(20):
        rewards(shaper, 0.0, *[1.0] * 20)
    runs = shaper.reward_runs
    assert (int(runs.went_on), int(runs.followed)) == (20 * 19, 20 * 19)
    here = float(shaper.scale(shaper.success_rate(make_batch(torch.zeros(1, 1, 2)))))
    assert here > -0.9  # it is known as a success
    worst = {"lost": -1.0, "stay": here}[paid_end]
    assert forever(shaper, 1.0) == pytest.approx(worst * 380 / 381, abs=0.011)  # the device is told of moves by 0.01
    assert forever(shaper, 0.0) == pytest.approx(-1.0)
    assert shaper.update(make_batch(torch.zeros(1, 1, 2)))["reward_lasts"].tolist() == runs.lasting.tolist()


@settings(max_examples=60, deadline=None)
@given(
    episodes=st.lists(
        st.tuples(st.lists(st.sampled_from([-1.0, 0.0, 0.5]), min_size=1, max_size=8), st.booleans()), max_size=12
    )
)
def test_runs_of_rewards_are_those_that_a_list_shows(episodes: list[tuple[list[float], bool]]) -> None:
    shaper = SASR(paid_end="stay")
    shaper.bind(Host(observation_space=Box(-1.0, 1.0, (2,)), action_space=Box(-1.0, 1.0, (1,))))
    pairs = [pair for paid, _ in episodes for pair in itertools.pairwise(paid) if pair[0] > 0]
    for paid, cut_by_time in episodes:
        rewards(shaper, *paid, end="truncated" if cut_by_time else "terminated")
    again = sum(after > 0 for _, after in pairs)
    runs = shaper.reward_runs
    assert (int(runs.went_on), int(runs.followed)) == (len(pairs), again)
    assert float(runs.lasting) == pytest.approx(again / (len(pairs) + 1), abs=0.0101)


def test_runs_end_where_an_episode_was_dropped_and_wait_where_a_step_is_not_valid(bound: Bound) -> None:
    shaper = bound(paid_end="lost")
    rewards(shaper, 1.0, end=None)
    shaper.interrupt(torch.tensor([[True]]), None)
    rewards(shaper, 1.0, end=None)
    assert int(shaper.reward_runs.went_on) == 0
    shaper.observe(make_step(torch.zeros(1, 1, 2), reward=0.0, valid=torch.tensor([[False]])))
    rewards(shaper, 1.0, end=None)
    assert (int(shaper.reward_runs.went_on), int(shaper.reward_runs.followed)) == (1, 1)


# ------------------------------------------------------------------------------ a weight that follows failures


@settings(max_examples=40, deadline=None)
@given(episodes=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=8))
def test_the_weight_is_that_of_the_share_of_failed_states(episodes: list[tuple[int, bool]]) -> None:
    host = Host(observation_space=Box(-1.0, 1.0, (2,)), action_space=Box(-1.0, 1.0, (1,)))
    fixed, following = (SASR(weight_rule=rule, retention=1.0, sample=False) for rule in ("fixed", "failures"))
    for shaper in (fixed, following):
        shaper.bind(host)
        for seed, (length, won) in enumerate(episodes):
            play(shaper, length, seed=seed, reward=float(won), end="truncated")
    failed = sum(length for length, won in episodes if not won)
    share = (failed + 1) / (sum(length for length, _ in episodes) + 1)
    for terminated in (False, True):
        batch = make_batch(a_batch(), terminated=terminated)
        torch.testing.assert_close(following.shape(batch), share * fixed.shape(batch))


def test_each_member_is_weighed_by_its_own_failures(bound: Bound) -> None:
    shaper = bound(weight_rule="failures", seeds=(1, 2), retention=1.0)
    shaper.add_trajectory(torch.randn(9, 2), success=True, member=0)
    shaper.add_trajectory(torch.randn(9, 2), success=False, member=1)
    assert shaper.evidence.failure_share.flatten().tolist() == pytest.approx([0.1, 1.0])


# ------------------------------------------------------------------------------ a background of average states


@settings(max_examples=40, deadline=None)
@given(
    won=st.integers(1, 30),
    lost=st.integers(0, 30),
    background=st.sampled_from([0.5, 10.0, 100.0]),
    estimator=st.sampled_from(["exact", "linear", "squared"]),
)
def test_every_state_counts_as_so_many_of_the_average_kind(
    won: int, lost: int, background: float, estimator: Any
) -> None:
    host = Host(observation_space=Box(-1.0, 1.0, (2,)), action_space=Box(-1.0, 1.0, (1,)))
    without, over = (SASR(background=own, retention=1.0, estimator=estimator) for own in (0.0, background))
    for shaper in (without, over):
        shaper.bind(host)
        shaper.add_trajectory(torch.randn(won, 2, generator=torch.Generator().manual_seed(won)), success=True)
        if lost:
            shaper.add_trajectory(torch.randn(lost, 2, generator=torch.Generator().manual_seed(lost)), success=False)
    batch = make_batch(a_batch())
    average = background * torch.tensor([won, lost]) / (won + lost)
    torch.testing.assert_close(over.counts(batch), without.counts(batch) + average)


def test_until_something_was_won_unknown_states_are_the_best_hope(bound: Bound) -> None:
    """And from then on they are as good as the average: less than what won, more than what lost."""
    shaper = bound(background=100.0, retention=1.0, sample=False, estimator="exact", bandwidth=0.5, standardise=False)
    lost, won, unknown = torch.zeros(40, 2), torch.full((10, 2), 3.0), torch.full((1, 2), -4.0)
    places = make_batch(torch.stack([lost[0], won[0], unknown[0]])[None])
    shaper.add_trajectory(lost, success=False)
    assert shaper.success_rate(places)[0].tolist() == pytest.approx([1 / 42, 0.5, 0.5])
    shaper.add_trajectory(won, success=True)
    assert shaper.success_rate(places)[0].tolist() == pytest.approx([21 / 142, 31 / 112, 21 / 102])


def test_the_background_of_a_member_is_its_own(bound: Bound) -> None:
    shaper = bound(background=10.0, seeds=(1, 2), retention=1.0, estimator="exact", bandwidth=0.1, standardise=False)
    shaper.add_trajectory(torch.zeros(5, 2), success=True, member=0)
    shaper.add_trajectory(torch.zeros(5, 2), success=False, member=1)
    far = make_batch(torch.full((2, 1, 2), 4.0))
    assert shaper.counts(far).flatten(1).tolist() == [[10.0, 0.0], [0.0, 0.0]]


def feed(shaper: SASR, episodes: int, *, telling: bool, member: int = 0, win: float = 0.3) -> None:
    """Episodes of 20 states, of which a share wins: those off to one side, or whichever."""
    rng = np.random.default_rng(3)
    for _ in range(episodes):
        won = rng.random() < win
        place = rng.normal(size=(20, 2)) * 0.5 + (4.0 * won if telling else 4.0 * (rng.random() < 0.5))
        shaper.add_trajectory(torch.tensor(place, dtype=torch.float32), success=bool(won), member=member)


@pytest.mark.parametrize("estimator", ["linear", "exact"])
def test_a_fitted_background_is_small_where_neighbours_tell_and_large_where_not(bound: Bound, estimator: str) -> None:
    few = {"bandwidth": 0.1, "standardise": False}  # neighbours each, or their share would be the average anyway
    shaper = bound(background="fitted", seeds=(1, 2), retention=1.0, estimator=estimator, **few)
    feed(shaper, 150, telling=True, member=0)
    feed(shaper, 150, telling=False, member=1)
    small, large = shaper.evidence.fitted.chosen.tolist()
    assert small <= 1.0
    assert large >= 100.0
    assert shaper.update(make_batch(a_batch(2)))["background"].tolist() == [small, large]


def test_a_fitted_background_is_the_likeliest_of_an_oracle(bound: Bound) -> None:
    """Every episode judged by hand, with SciPy, before it is counted."""
    shaper = bound(background="fitted", retention=1.0, estimator="exact", bandwidth=0.7, standardise=False)
    rng, known, said = np.random.default_rng(5), {True: [], False: []}, np.zeros(len(SIZES))
    outcomes: list[bool] = []
    for episode in range(25):
        won, states = bool(rng.random() < 0.4), rng.normal(size=(6, 2)).astype(np.float32)
        counts = {
            key: sum(np.exp(-((states - old) ** 2).sum(1) / (2 * 0.7**2)) for old in own) + np.zeros(6)
            for key, own in known.items()
        }
        n = {key: len(own) for key, own in known.items()}
        if n[True] and n[False]:
            share = n[True] / (n[True] + n[False])
            likely = [
                stats.betabinom(1, counts[True] + c * share + 1, counts[False] + c * (1 - share) + 1).logpmf(int(won))
                for c in SIZES
            ]
            said = MEMORY * said + np.mean(likely, axis=1)
        shaper.add_trajectory(torch.tensor(states), success=won)
        known[won] += list(states)
        assert shaper.evidence.fitted.log_likelihood[0].numpy() == pytest.approx(said, abs=1e-4), episode
        outcomes.append(won)
        heard = [sum(MEMORY**age for age, own in enumerate(outcomes[::-1]) if own == which) for which in (True, False)]
        likeliest = SIZES[int(shaper.evidence.fitted.log_likelihood[0].argmax())]
        assert float(shaper.evidence.fitted.chosen) == (likeliest if min(heard) >= ENOUGH else 0.0)
    assert float(shaper.evidence.fitted.chosen) > 0.0


@pytest.mark.parametrize("win", [0.0, 1.0])
def test_a_fitted_background_says_nothing_until_some_won_and_some_lost(bound: Bound, win: float) -> None:
    shaper = bound(background="fitted", retention=1.0)
    feed(shaper, 20, telling=True, win=win)
    assert shaper.evidence.fitted.log_likelihood.abs().sum() == 0.0
    assert shaper.evidence.fitted.chosen.tolist() == [0.0]


def test_a_fitted_background_buries_no_success_while_few_episodes_win(bound: Bound) -> None:
    shaper = bound(background="fitted", retention=1.0, bandwidth=0.1, standardise=False)
    feed(shaper, 200, telling=True, win=0.02)
    fitted = shaper.evidence.fitted
    assert fitted.sizes[fitted.log_likelihood[0].argmax()] > 0.0  # that nothing wins fits well
    assert fitted.chosen.tolist() == [0.0]
    feed(shaper, 100, telling=False, win=0.5)
    assert fitted.chosen.item() > 0.0


def test_a_fitted_background_pays_what_the_same_number_pays(bound: Bound) -> None:
    fitted = bound(background="fitted", retention=1.0, sample=False)
    feed(fitted, 40, telling=False)
    size = float(fitted.evidence.fitted.chosen)
    given = bound(background=size, retention=1.0, sample=False)
    feed(given, 40, telling=False)
    batch = make_batch(a_batch())
    assert size > 0.0
    assert torch.equal(fitted.shape(batch), given.shape(batch))


# ------------------------------------------------------------------------------ retention that adapts


def test_rare_successes_are_kept_whole_and_thinned_when_they_are_many(bound: Bound) -> None:
    shaper = bound(retention_rule="adaptive", seeds=(1, 2))
    size = shaper.evidence.estimator.size
    for seed in range(10):
        play(shaper, 100, seed=seed, reward=0.0, end="truncated")
    assert size.tolist() == [[0, 100]] * 2
    play(shaper, 30, seed=10)
    assert size.tolist() == [[30, 100]] * 2
    for seed in range(11, 61):
        play(shaper, 100, seed=seed)
    success, failure = size[0].tolist()
    assert failure == 100
    assert 500 < success < 800


# ---------------------------------------------------------------------- states weighted along a success


def test_states_of_a_success_count_by_their_distance_to_its_last_reward(bound: Bound) -> None:
    shaper = bound(
        "paper", estimator="exact", retention=1.0, weighting="discounted", weight_discount=0.9, bandwidth=0.1
    )
    for t in range(6):
        reward = float(t in (1, 4))
        shaper.observe(make_step(torch.full((1, 1, 2), 10.0 * t), reward=reward, truncated=t == 5))
    for t in range(3):
        shaper.observe(make_step(torch.full((1, 1, 2), 10.0 * t), truncated=t == 2))
    places = torch.arange(6.0)[None, :, None].expand(-1, -1, 2) * 10
    found = shaper.counts(make_batch(places))[0]
    torch.testing.assert_close(found[:, 0], 0.9 ** torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0, 1.0]))
    assert found[:, 1].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_a_demonstration_counts_back_from_its_end(bound: Bound) -> None:
    shaper = bound(
        "paper", estimator="exact", retention=1.0, weighting="discounted", weight_discount=0.5, bandwidth=0.1
    )
    places = torch.arange(4.0)[:, None].expand(-1, 2) * 10
    shaper.add_trajectory(places, success=True)
    assert shaper.counts(make_batch(places[None]))[0, :, 0].tolist() == [0.125, 0.25, 0.5, 1.0]


def test_weights_of_one_are_no_weights(bound: Bound) -> None:
    weighted, plain = bound(weighting="discounted", weight_discount=1.0), bound()
    for shaper in (weighted, plain):
        history(shaper)
    torch.testing.assert_close(weighted.counts(make_batch(a_batch())), plain.counts(make_batch(a_batch())))


# --------------------------------------------------------------------------------- the potential form


def walk(length: int) -> Batch:
    """A trajectory of `length` steps of one member, each step's next state the following one's state."""
    states = a_batch(size=length + 1)
    return make_batch(states[:, :-1])._replace(next_obs=states[:, 1:])


@pytest.mark.parametrize("draw", ["state", "episode"])
@pytest.mark.parametrize("absorbing", [False, True])
def test_a_potential_adds_to_a_return_what_depends_on_its_ends_alone(draw: str, absorbing: bool, bound: Bound) -> None:
    """Σ γᵗ·(γ·f(s_{t+1}) − f(s_t)) = γᵀ·f(s_T) − f(s_0), and −f(s_0) where the episode truly ends."""
    shaper, batch = bound(potential=True, absorbing=absorbing, draw=draw, discount=0.9), walk(12)
    history(shaper)
    weight = shaper.config.reward_weight * shaper.evidence.failure_share[0, 0]
    first = weight * shaper.scale(shaper.success_rate(batch))[0, 0]
    last = weight * shaper.scale(shaper.success_rate(make_batch(batch.next_obs)))[0, -1]
    gamma = 0.9 ** torch.arange(12)
    torch.testing.assert_close((gamma * shaper.shape(batch)).sum(), 0.9**12 * last - first, rtol=1e-4, atol=1e-5)
    ended = batch._replace(terminated=torch.arange(12)[None] == 11)
    torch.testing.assert_close((gamma * shaper.shape(ended)).sum(), -first, rtol=1e-4, atol=1e-5)


def test_a_potential_goes_on_exactly_as_an_absorbing_state_would(bound: Bound) -> None:
    """At a true end: γ·f∞ − f(s), then γᵗ·(γ·f∞ − f∞) for all t ≥ 1, whatever f∞ is."""
    shaper, batch, steps = bound(potential=True, discount=0.9), walk(1), torch.arange(1, 400)
    history(shaper)
    f = float(shaper.scale(shaper.success_rate(batch)))
    for forever in (-1.0, 0.0, 0.7):
        by_hand = 0.9 * forever - f + float((0.9**steps * (0.9 * forever - forever)).sum())
        found = float(shaper.shape(batch._replace(terminated=torch.tensor([[True]]))))
        assert found == pytest.approx(float(shaper.evidence.failure_share) * by_hand, abs=1e-5)


def test_the_best_policy_of_a_small_task_stays_the_best(bound: Bound) -> None:
    """Five places in a row, a reward for leaving on the right: values of both steps from every place, by iteration."""
    gamma, n = 0.9, 5
    place = torch.arange(n).float()
    after = torch.stack([(place - 1).clamp(min=0), place + 1], dim=1)  # (n, 2): left, right
    ended = after >= n
    reward = torch.where(ended, 1.0, 0.0)

    def gaps(bonus: Tensor) -> Tensor:
        value = torch.zeros(n, 2)
        for _ in range(500):
            best = torch.cat([value.max(1).values, torch.zeros(1)])[after.long()]
            value = reward + bonus + gamma * best
        return value[:, 1] - value[:, 0]

    shaper = bound(potential=True, discount=gamma, reward_weight=2.0, retention=1.0)
    history(shaper)

    def states(at: Tensor) -> Tensor:
        return torch.stack([at.flatten(), torch.zeros(2 * n)], dim=-1)[None] - 2.0

    batch = make_batch(states(place[:, None].expand(n, 2)), reward=0.0)
    batch = batch._replace(next_obs=states(after), terminated=ended.flatten()[None], reward=reward.flatten()[None])
    bonus = shaper.shape(batch).reshape(n, 2)
    assert float(bonus.abs().max()) > 0.05
    torch.testing.assert_close(gaps(bonus), gaps(torch.zeros(n, 2)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weighting": "discounted", "storage": "flags"}, "keeps no weights; use storage='own'"),
        ({"potential": True, "state_action": True}, "drop state_action"),
        ({"weight_discount": 0.0}, r"weight_discount=0.0 must be in \(0, 1\]"),
        ({"weighting": "discount"}, "did you mean 'discounted'"),
        ({"draw": "episodes"}, "did you mean 'episode'"),
        ({"reward_scale": "large"}, "did you mean 'largest'"),
        ({"range_rule": "observe"}, "did you mean 'observed'"),
        ({"paid_end": "gaol"}, "did you mean 'goal'"),
        ({"weight_rule": "failure"}, "did you mean 'failures'"),
        ({"background": "fited"}, "did you mean 'fitted'"),
        ({"background": -1.0}, "background=-1.0 must be 0 or more states"),
        ({"background": float("nan")}, "background=nan must be 0 or more states"),
    ],
)
def test_impossible_settings_raise_and_name_the_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SASR(**options)
