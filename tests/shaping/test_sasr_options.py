"""The options of SASR that no preset turns on: each does what it says, and nothing else changes."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sasr import SASR, Host
from sasr.experiments.plan import Method
from sasr.settings import TrainConfig, with_settings
from sasr.shaping.diagnosis import diagnose
from sasr.shaping.presets import PRESETS, SasrConfig
from tests.conftest import make_batch, make_step

Bound = Callable[..., SASR]
OPTIONS: list[dict[str, Any]] = [
    {"sample": "ratio"},
    {"weight_rule": "failures"},
    {"background": 50.0},
    {"background": 20.0, "estimator": "squared", "scaling": "density"},
    {"paid_end": "lost"},
    {"paid_end": "stay", "success_rule": "episode"},
]
"""Every option in every kind of state it brings."""


def play(shaper: SASR, length: int, *, seed: int = 0, reward: float = 1.0, end: str = "terminated") -> None:
    """One episode of random states in all of a shaper's environments; member p's states do not depend on P."""
    assert shaper.host is not None
    seeds, envs = shaper.host.seeds, shaper.host.envs
    own = [torch.Generator().manual_seed(1000 * seed + s) for s in seeds]
    states = torch.stack([torch.randn(length, envs, 2, generator=g) for g in own], dim=1)
    for t, obs in enumerate(states):
        last = t == length - 1
        ending: dict[str, Any] = {end: True} if last else {}
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
    asked = {(name, value) for option in OPTIONS for name, value in option.items()} - {("estimator", "squared")}
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


# ---------------------------------------------------------------- ends with a reward: a goal, or pay cut off


def rewards(shaper: SASR, *paid: float, end: str | None = "terminated") -> None:
    """One episode of all members that is paid like this, step by step; without an end, it goes on."""
    assert shaper.host is not None
    members, envs = shaper.host.members, shaper.host.envs
    for t, reward in enumerate(paid):
        ending: dict[str, Any] = {end: True} if end and t == len(paid) - 1 else {}
        shaper.observe(make_step(torch.zeros(members, envs, 2), reward=reward, **ending))


def forever(shaper: SASR, reward: float) -> float:
    """What an end with this reward adds to the bonus of the last state, in units of γ/(1 − γ)·λ."""
    last = make_batch(torch.zeros(1, 1, 2), reward=reward)
    ended, went_on = (shaper.shape(last._replace(terminated=torch.tensor([[own]]))) for own in (True, False))
    assert shaper.host is not None
    gamma = shaper.host.discount
    return float(ended - went_on) / (gamma / (1 - gamma) * shaper.config.reward_weight)


@pytest.mark.usefixtures("mean_rates")
@pytest.mark.parametrize("paid_end", ["lost", "stay"])
def test_an_end_with_a_reward_stays_the_goal_where_rewards_come_alone(bound: Bound, paid_end: str) -> None:
    shaper = bound(paid_end=paid_end, weight_rule="fixed")
    assert forever(shaper, 1.0) == pytest.approx(1.0)
    for _ in range(50):
        rewards(shaper, 0.0, 0.0, 1.0)
        rewards(shaper, 1.0, 0.0, -1.0, 1.0, 0.0, 1.0)  # goals on the way are no wage either
    assert shaper.reward_runs is not None
    assert shaper.reward_runs.lasting.tolist() == [0.0]
    assert forever(shaper, 1.0) == pytest.approx(1.0)
    assert forever(shaper, 0.0) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.usefixtures("mean_rates")
def test_an_end_that_the_environment_calls_a_success_is_a_goal_whatever_it_pays(bound: Bound) -> None:
    shaper = bound(weight_rule="fixed")
    last = make_batch(torch.zeros(1, 3, 2), reward=-1.0, terminated=True)
    told = last._replace(success=torch.tensor([[True, False, True]]))
    paid = last._replace(reward=torch.tensor([[1.0, -1.0, 1.0]]))
    assert torch.equal(shaper.shape(told), shaper.shape(paid))
    assert torch.equal(shaper.shape(told._replace(success=None)), shaper.shape(last))
    assert shaper.shape(told)[0, 0] > shaper.shape(last)[0, 0] + 0.9 * 0.3 / (1.0 - 0.99)


@pytest.mark.usefixtures("mean_rates")
@pytest.mark.parametrize("paid_end", ["lost", "stay"])
def test_an_end_with_a_reward_is_no_goal_where_rewards_go_on(bound: Bound, paid_end: str) -> None:
    shaper = bound(paid_end=paid_end, weight_rule="fixed")
    for _ in range(20):
        rewards(shaper, 0.0, *[1.0] * 20)
    runs = shaper.reward_runs
    assert runs is not None
    assert (int(runs.went_on), int(runs.followed)) == (20 * 19, 20 * 19)
    here = float(shaper.success_rate(make_batch(torch.zeros(1, 1, 2))))
    assert here > 0.1  # it is known as a success
    cut_off = {"lost": 0.0, "stay": here}[paid_end]
    expected = 1.0 - 380 / 381 * (1.0 - cut_off)
    assert forever(shaper, 1.0) == pytest.approx(expected, abs=0.011)  # the device is told of moves by 0.01
    assert forever(shaper, 0.0) == pytest.approx(0.0, abs=1e-6)
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
    assert runs is not None
    assert (int(runs.went_on), int(runs.followed)) == (len(pairs), again)
    assert float(runs.lasting) == pytest.approx(again / (len(pairs) + 1), abs=0.0101)


def test_runs_end_where_an_episode_was_dropped_and_wait_where_a_step_is_not_valid(bound: Bound) -> None:
    shaper = bound(paid_end="lost")
    rewards(shaper, 1.0, end=None)
    shaper.interrupt(torch.tensor([[True]]), None)
    rewards(shaper, 1.0, end=None)
    assert shaper.reward_runs is not None
    assert int(shaper.reward_runs.went_on) == 0
    shaper.observe(make_step(torch.zeros(1, 1, 2), reward=0.0, valid=torch.tensor([[False]])))
    rewards(shaper, 1.0, end=None)
    assert (int(shaper.reward_runs.went_on), int(shaper.reward_runs.followed)) == (1, 1)


# ------------------------------------------------------------------------------ a weight that follows failures


@settings(max_examples=40, deadline=None)
@given(episodes=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=8))
def test_the_weight_is_that_of_the_share_of_failed_states(episodes: list[tuple[int, bool]]) -> None:
    host = Host(observation_space=Box(-1.0, 1.0, (2,)), action_space=Box(-1.0, 1.0, (1,)))
    fixed, following = (SASR(weight_rule=rule, retention=1.0) for rule in ("fixed", "failures"))
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


@pytest.mark.usefixtures("mean_rates")
def test_until_something_was_won_unknown_states_are_the_best_hope(bound: Bound) -> None:
    """And from then on they are as good as the average: less than what won, more than what lost."""
    shaper = bound(background=100.0, retention=1.0, estimator="exact", bandwidth=0.5, standardise=False)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paid_end": "gaol"}, "did you mean 'goal'"),
        ({"weight_rule": "failure"}, "did you mean 'failures'"),
        ({"sample": "rate"}, "did you mean 'ratio'"),
        ({"segment_steps": 0}, "segment_steps=0 must be at least 1"),
        ({"background": -1.0}, "background=-1.0 must be 0 or more states"),
        ({"background": float("nan")}, "background=nan must be 0 or more states"),
    ],
)
def test_impossible_settings_raise_and_name_the_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SASR(**options)


REMOVED = [
    ("potential", True),
    ("draw", "episode"),
    ("range_rule", "observed"),
    ("reward_scale", "mean"),
    ("weighting", "discounted"),
    ("weight_discount", 0.9),
    ("background", "fitted"),
    ("retention_rule", "adaptive"),
    ("retention_rule", "strided"),
    ("bandwidth", "scott"),
    ("bandwidth", "silverman"),
    ("frequencies", "orthogonal"),
    ("form", "paired"),
    ("subtract_floor", True),
    ("sample", "mean"),
    ("sample", False),
]


@pytest.mark.parametrize(("name", "value"), REMOVED)
def test_a_removed_option_is_refused_wherever_it_is_written(name: str, value: Any) -> None:
    message = f"{name}={value} was removed in sasr 0.1.0: nothing shows it helps"
    text, json = {name: str(value).lower()}, TrainConfig(task="MountainCar", shaper_config=SasrConfig()).to_json()
    json["shaper_config"][name] = value
    with pytest.raises(ValueError, match=message):
        SASR(**{name: value})
    with pytest.raises(ValueError, match=message):
        SASR(config=SasrConfig(), **{name: value})
    with pytest.raises(ValueError, match=message):
        Method(name="mine", shaper="sasr", shaper_settings={name: value})
    with pytest.raises(ValueError, match=message):
        TrainConfig.from_json(json)
    with pytest.raises(ValueError, match=message.lower()):
        with_settings("shaper", SasrConfig(), text)


def test_a_sample_that_is_true_is_answered_with_its_name_today() -> None:
    message = "sample={} is called sample='beta' since sasr 0.1.0"
    with pytest.raises(ValueError, match=message.format(True)):
        SASR(sample=True)
    with pytest.raises(ValueError, match=message.format("true")):
        with_settings("shaper", SasrConfig(), {"sample": "true"})


def test_without_sampling_the_rate_is_the_ratio_of_counts(bound: Bound) -> None:
    shaper = bound("paper", sample="ratio", retention=1.0, estimator="exact", bandwidth=0.1)
    places = torch.tensor([[0.0, 0.0], [9.0, 9.0], [-9.0, 9.0]])
    shaper.add_trajectory(places[[0, 0, 0, 1]], success=True)
    shaper.add_trajectory(places[[0]], success=False)
    assert shaper.success_rate(make_batch(places[None]))[0].tolist() == pytest.approx([3 / 4, 1.0, 1 / 2])
