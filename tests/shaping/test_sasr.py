from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sasr import SASR, Host, LinearSchedule, SasrConfig
from sasr.experience.retained import StatePool
from sasr.shaping.presets import PRESETS
from tests.conftest import box, make_batch, make_step

Bound = Callable[..., SASR]


def episode(shaper: SASR, states: torch.Tensor, *, success: bool) -> None:
    """Play states (T, P, E, k) as one episode that ends in a reward or a time limit."""
    for t, obs in enumerate(states):
        last = t == len(states) - 1
        shaper.observe(
            make_step(obs, reward=float(last and success), terminated=last and success, truncated=last and not success)
        )


# ------------------------------------------------------------------ the presets are what they say


@pytest.mark.usefixtures("mean_rates")
def test_paper_reproduces_the_equations(bound: Bound) -> None:
    """Ñ_X = z(s)ᵀ Σ z(s_j), Beta(Ñ_S + 1, Ñ_F + 1), r = λ·f(rate): by hand from the same W and b."""
    shaper = bound("paper", k=3, retention=1.0)
    won, lost = torch.randn(2, 30, 1, 1, 3)
    episode(shaper, won, success=True)
    episode(shaper, lost, success=False)
    features: Any = shaper.evidence.estimator.features
    query = torch.randn(20, 3)
    W, b = features.frequency[0].double() / 0.2, features.phase[0].double()

    def z(states: torch.Tensor) -> torch.Tensor:
        return (2 / 1000) ** 0.5 * torch.cos(states.double() @ W + b)

    n_success = (z(query) @ z(won[:, 0, 0]).T).sum(1).clamp(min=0)
    n_failure = (z(query) @ z(lost[:, 0, 0]).T).sum(1).clamp(min=0)
    expected = 0.6 * (n_success + 1) / (n_success + n_failure + 2)
    bonus = shaper.shape(make_batch(query[None]))[0]
    torch.testing.assert_close(bonus.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("mean_rates")
def test_authors_reproduces_the_released_estimator(bound: Bound) -> None:
    """Σ_j (z·z_j)² on the same W and b, every 11th state, nothing until more than 1000 are stored, λ halved."""
    shaper = bound("authors", k=4)
    states = torch.randn(11 * 1001, 1, 1, 4)
    episode(shaper, states, success=False)
    assert shaper.evidence.estimator.size.tolist() == [[0, 1001]]
    features: Any = shaper.evidence.estimator.features
    query, stored = torch.randn(16, 4), states[::11, 0, 0]
    W, b = features.frequency[0].double() / 0.2, features.phase[0].double()

    def z(states: torch.Tensor) -> torch.Tensor:
        return (2 / 1000) ** 0.5 * torch.cos(states.double() @ W + b)

    expected = ((z(query) @ z(stored).T) ** 2).sum(1)
    found = shaper.counts(make_batch(query[None]))[0]
    torch.testing.assert_close(found[:, 1].double(), expected, rtol=1e-5, atol=1e-5)
    assert (found[:, 0] == 0).all()
    bonus = shaper.shape(make_batch(query[None]))[0]
    torch.testing.assert_close(bonus.double(), 0.3 / (expected + 2), rtol=1e-5, atol=1e-6)


def test_authors_counts_nothing_up_to_a_thousand_states(bound: Bound) -> None:
    shaper = bound("authors", k=2)
    episode(shaper, torch.randn(11 * 1000, 1, 1, 2), success=False)
    assert shaper.evidence.estimator.size.tolist() == [[0, 1000]]
    assert (shaper.counts(make_batch(torch.randn(1, 5, 2))) == 0).all()


def test_unvisited_states_keep_beta_one_one_under_paper(bound: Bound) -> None:
    far = make_batch(torch.randn(1, 50_000, 2) * 5 + 1000.0)
    exact = bound("paper", estimator="exact", retention=1.0)
    estimated = bound("paper", retention=1.0)
    for shaper in (exact, estimated):
        episode(shaper, torch.randn(300, 1, 1, 2), success=False)
    assert (exact.counts(far) == 0).all()
    rate = exact.success_rate(far)
    assert float(rate.mean()) == pytest.approx(0.5, abs=3 * (1 / 12) ** 0.5 / 50_000**0.5)
    # With random features the estimate of nothing scatters around 0 with √(D/M), and no more than that.
    scatter = (300 / 1000) ** 0.5
    assert float(estimated.evidence.raw(far.obs).std()) < 2 * scatter
    assert abs(float(estimated.evidence.raw(far.obs).mean())) < scatter


def test_presets_are_configs_and_authors_rewards_stay_in_their_range(bound: Bound) -> None:
    assert all(isinstance(config, SasrConfig) for config in PRESETS.values())
    shaper = bound("authors", burn_in=0)
    episode(shaper, torch.randn(60, 1, 1, 2), success=True)
    bonus = shaper.shape(make_batch(torch.randn(1, 500, 2)))
    assert ((bonus >= 0) & (bonus <= 0.3)).all()


# ----------------------------------------------------------------------------- what shape promises


def test_success_draws_the_bonus_up_and_failure_down(bound: Bound) -> None:
    shaper = bound("auto", retention=1.0, reward_weight=0.3, weight_rule="fixed", background=0.0)
    good, bad = torch.full((60, 1, 1, 2), 2.0), torch.full((60, 1, 1, 2), -2.0)
    for _ in range(5):
        episode(shaper, good + 0.1 * torch.randn(60, 1, 1, 2), success=True)
        episode(shaper, bad + 0.1 * torch.randn(60, 1, 1, 2), success=False)
    near_good, near_bad = (shaper.shape(make_batch(torch.full((1, 200, 2), x))).mean() for x in (2.0, -2.0))
    assert float(near_good) == pytest.approx(0.3, abs=0.05)
    assert float(near_bad) == pytest.approx(0.0, abs=0.05)


def test_draws_sharpen_as_evidence_grows(bound: Bound) -> None:
    shaper, batch = bound("paper", retention=1.0), make_batch(torch.zeros(1, 4000, 2))
    spread = []
    for _ in range(3):
        spread.append(float(shaper.shape(batch).std()))
        episode(shaper, torch.zeros(100, 1, 1, 2), success=True)
        episode(shaper, torch.zeros(100, 1, 1, 2), success=False)
    assert spread[0] > 3 * spread[1] > 3 * spread[2]


@settings(max_examples=20, deadline=None)
@given(low=st.floats(-5, 5), width=st.floats(0, 5), weight=st.floats(-2, 2))
def test_bonus_lies_between_its_bounds(low: float, width: float, weight: float) -> None:
    shaper = SASR("paper", reward_min=low, reward_max=low + width, reward_weight=weight)
    shaper.bind(Host(observation_space=box(2), action_space=box(1)))
    bonus = shaper.shape(make_batch(torch.randn(1, 200, 2)))
    bounds = sorted((weight * low, weight * (low + width)))
    assert float(bonus.min()) >= bounds[0] - 1e-5
    assert float(bonus.max()) <= bounds[1] + 1e-5


def test_shape_does_not_change_state(bound: Bound) -> None:
    shaper = bound("auto")
    episode(shaper, torch.randn(50, 1, 1, 2), success=True)
    before = {k: v.clone() for k, v in shaper.state_dict().items() if "extra_state" not in k}
    shaper.shape(make_batch(torch.randn(1, 100, 2)))
    assert all(torch.equal(value, shaper.state_dict()[key]) for key, value in before.items())


@pytest.mark.usefixtures("mean_rates")
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 0.0), (-0.5, 2.0)])
def test_absorbing_rule_continues_the_shaped_return_at_true_termination(bound: Bound, low: float, high: float) -> None:
    """A terminal state pays f for its own step, then R_max (success) or R_min (failure) for ever: γ/(1−γ)·f."""
    shaper = bound("auto", discount=0.9, reward_weight=0.3, reward_min=low, reward_max=high)
    obs = torch.zeros(1, 1, 2)
    state = (low + high) / 2.0  # no evidence: rate 1/2
    assert shaper.shape(make_batch(obs)).item() == pytest.approx(0.3 * state)
    for reward, absorbed in ((0.0, low), (1.0, high)):
        ended = shaper.shape(make_batch(obs, terminated=True, reward=reward)).item()
        assert ended == pytest.approx(0.3 * (state + 9.0 * absorbed))


@pytest.mark.usefixtures("mean_rates")
def test_state_action_mode_tells_actions_apart() -> None:
    shaper = SASR("paper", state_action=True, retention=1.0, bandwidth=0.5)
    shaper.bind(Host(observation_space=box(1), action_space=gym.spaces.Discrete(2)))
    for success, action in ((True, 0), (False, 1)):
        for t in range(50):
            step = make_step(torch.zeros(1, 1, 1), reward=float(success and t == 49), terminated=t == 49)
            shaper.observe(step._replace(action=torch.tensor([[action]])))
    batch = make_batch(torch.zeros(1, 2, 1))._replace(action=torch.tensor([[[0], [1]]]))
    good, bad = shaper.shape(batch)[0].tolist()
    assert good > 0.5 > 0.1 > bad


def test_seeds_reproduce_and_differ(bound: Bound) -> None:
    states, batch = torch.randn(80, 1, 1, 2), make_batch(torch.randn(1, 64, 2))

    def run(seed: int) -> torch.Tensor:
        shaper = bound("auto", seeds=(seed,))
        episode(shaper, states, success=True)
        return shaper.shape(batch)

    assert torch.equal(run(3), run(3))
    assert not torch.equal(run(3), run(4))


def test_a_seed_is_shaped_the_same_alone_and_in_a_population(bound: Bound) -> None:
    together, alone = bound("auto", seeds=(1, 2, 3), envs=2), bound("auto", seeds=(2,), envs=2)
    generator = torch.Generator().manual_seed(0)
    for length in (30, 7, 90):
        states = torch.randn(length, 3, 2, 2, generator=generator)
        episode(together, states, success=length == 7)
        episode(alone, states[:, 1:2], success=length == 7)
    batch = torch.randn(3, 40, 2, generator=generator)
    assert torch.equal(together.shape(make_batch(batch))[1], alone.shape(make_batch(batch[1:2]))[0])


# ------------------------------------------------------------------------- saving, flags, trajectories


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_state_round_trips_through_safetensors_and_goes_on_alike(preset: str, bound: Bound, tmp_path: Path) -> None:
    original = bound(preset, seeds=(5, 6), burn_in=0, retention=0.5)
    episode(original, torch.randn(150, 2, 1, 2), success=True)
    for obs in torch.randn(70, 2, 1, 2):  # leaves a segment open
        original.observe(make_step(obs))
    save_file({k: v.contiguous() for k, v in original.state_dict().items()}, tmp_path / "shaper.safetensors")
    restored = bound(preset, seeds=(5, 6), burn_in=0, retention=0.5)
    restored.load_state_dict(load_file(tmp_path / "shaper.safetensors"))
    rest, batch = torch.randn(40, 2, 1, 2), make_batch(torch.randn(2, 30, 2))
    for shaper in (original, restored):
        episode(shaper, rest, success=False)
    assert torch.equal(original.shape(batch), restored.shape(batch))
    assert all(torch.equal(v, restored.state_dict()[k]) for k, v in original.state_dict().items())


class Replay:
    """A ring buffer as a host has it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.obs = torch.zeros(1, capacity, 2)

    def read(self, member: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.obs[member, slots], torch.zeros(len(slots), 1)


def test_flag_mode_counts_what_its_own_storage_counts_and_stores_no_state(bound: Bound) -> None:
    replay = Replay(500)
    flagged, owning = bound("paper", storage="flags", replay=replay, retention=0.5), bound("paper", retention=0.5)
    states = torch.randn(300, 1, 1, 2)
    for t, obs in enumerate(states):
        end = t % 60 == 59
        step = make_step(obs, reward=float(t == 119), truncated=end)
        slot = torch.tensor([[t]])
        flagged.release(slot)
        replay.obs[0, t] = obs[0, 0]
        flagged.observe(step._replace(slot=slot))
        owning.observe(step)
    batch = torch.randn(1, 30, 2)
    torch.testing.assert_close(flagged.evidence.raw(batch), owning.evidence.raw(batch), rtol=1e-5, atol=1e-5)
    stored = sum(v.numel() for k, v in flagged.state_dict().items() if "states" in k or "open_items" in k)
    assert stored < 200  # slots of one open segment; the other one keeps states
    assert not any(k.endswith("store.states") for k in flagged.state_dict())


def test_flag_mode_forgets_overwritten_states(bound: Bound) -> None:
    replay = Replay(100)
    shaper = bound("paper", storage="flags", replay=replay, retention=1.0)
    for t in range(1000):
        slot = torch.tensor([[t % 100]])
        shaper.release(slot)
        replay.obs[0, t % 100] = torch.full((2,), float(t // 500))
        shaper.observe(make_step(replay.obs[:, t % 100][:, None], truncated=t % 50 == 49, slot=slot))
    assert shaper.evidence.estimator.size.tolist() == [[0, 100]]
    old, new = shaper.evidence.raw(torch.tensor([[[0.0, 0.0], [1.0, 1.0]]]))[0, :, 1].tolist()
    assert new == pytest.approx(100.0, rel=0.15)
    assert abs(old) < 15.0


def test_an_episode_longer_than_the_replay_buffer_is_refused_in_flag_mode(bound: Bound) -> None:
    shaper = bound("paper", storage="flags", replay=Replay(10))
    for t in range(10):
        shaper.observe(make_step(torch.zeros(1, 1, 2), slot=torch.tensor([[t]])))
    with pytest.raises(ValueError, match="an episode of more than 10 steps does not fit the replay buffer"):
        shaper.observe(make_step(torch.zeros(1, 1, 2), slot=torch.tensor([[0]])))


def test_trajectories_of_states_and_actions(bound: Bound) -> None:
    shaper = bound("paper", k=2, state_action=True, retention=1.0)
    shaper.add_trajectory(torch.zeros(5, 3), success=True)
    assert shaper.evidence.estimator.size.tolist() == [[5, 0]]
    with pytest.raises(ValueError, match="trajectory has 2 features, but this shaper was bound to 3"):
        shaper.add_trajectory(torch.zeros(5, 2), success=True)


@pytest.mark.usefixtures("mean_rates")
def test_trajectories_from_elsewhere_count(bound: Bound) -> None:
    shaper = bound("paper", seeds=(1, 2), retention=1.0)
    shaper.add_trajectory(torch.zeros(40, 2), success=True, member=1)
    first, second = shaper.shape(make_batch(torch.zeros(2, 1, 2))).flatten().tolist()
    assert first == pytest.approx(0.3)
    assert second > 0.55


def test_scheduled_bandwidth_is_a_setting(bound: Bound) -> None:
    shaper = bound("paper", bandwidth=LinearSchedule(0.5, 0.1, 200), retention=1.0)
    for _ in range(4):
        episode(shaper, torch.randn(50, 1, 1, 2), success=False)
    assert float(shaper.evidence.h[0]) == pytest.approx(0.1)


def test_image_states_stay_bytes() -> None:
    shaper = SASR("auto", retention=1.0)
    shaper.bind(Host(observation_space=gym.spaces.Box(0, 255, (8, 8), np.uint8), action_space=box(1)))
    images = torch.randint(0, 256, (20, 1, 1, 8, 8), dtype=torch.uint8)
    episode(shaper, images, success=True)
    assert isinstance(shaper.evidence.store, StatePool)
    assert shaper.evidence.store.states.dtype == torch.uint8
    assert torch.isfinite(shaper.shape(make_batch(images[:, 0].transpose(0, 1)))).all()


# --------------------------------------------------------------------------------------- bad input

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": 0.0}, r"retention=0.0 must be in \(0, 1\]; the paper uses 0.1"),
        ({"retention": 1.5}, "retention=1.5"),
        ({"bandwidth": 0.0}, "bandwidth=0.0 must be above 0"),
        ({"features": 0}, "features=0 must be at least 1"),
        ({"reward_weight": NAN}, "reward_weight=nan must be a finite number"),
        ({"reward_min": 1.0, "reward_max": 0.0}, "reward_min=1.0 is above reward_max=0.0; swap them"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"burn_in": -1}, "burn_in=-1"),
        ({"kernel": "gaussain"}, "did you mean 'gaussian'"),
        ({"estimator": "quadratic"}, "estimator 'quadratic' is unknown"),
        ({"success_rule": "episodes"}, "did you mean 'episode'"),
        ({"retention_rule": "author"}, "did you mean 'authors'"),
        ({"scaling": "densty"}, "did you mean 'density'"),
        ({"storage": "replay"}, "storage 'replay' is unknown"),
        ({"storage": "flags", "estimator": "exact"}, "exact counts can't forget"),
        ({"retentoin": 0.1}, "did you mean 'retention'"),
    ],
)
def test_impossible_settings_raise_and_name_the_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SASR("paper", **options)


def test_unknown_preset_offers_the_closest() -> None:
    with pytest.raises(ValueError, match="preset 'papers' is unknown; did you mean 'paper'"):
        SASR("papers")


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("field", ["obs", "next_obs", "reward"])
def test_a_step_that_is_not_finite_is_refused_and_changes_nothing(bad: float, field: str, bound: Bound) -> None:
    shaper = bound("auto", seeds=(1, 2), envs=2, k=3)
    episode(shaper, torch.randn(20, 2, 2, 3), success=True)
    before = {k: v.clone() for k, v in shaper.state_dict().items()}
    step = make_step(torch.randn(2, 2, 3))
    broken = getattr(step, field).clone()
    broken[(1, 0, 2)[: broken.dim()]] = bad
    message = f"{field} of seed 2, environment 0 is .* in dimension"
    with pytest.raises(ValueError, match=message):
        shaper.observe(step._replace(**{field: broken}))
    assert all(torch.equal(value, shaper.state_dict()[key]) for key, value in before.items())


def test_wrong_widths_devices_and_empty_trajectories_are_named(bound: Bound) -> None:
    shaper = bound("auto", k=3)
    with pytest.raises(ValueError, match="obs has 4 features, but this shaper was bound to 3"):
        shaper.observe(make_step(torch.zeros(1, 1, 4)))
    with pytest.raises(ValueError, match=r"leading axes \(2, 1\), expected \(seeds, environments\) = \(1, 1\)"):
        shaper.observe(make_step(torch.zeros(2, 1, 3)))
    with pytest.raises(ValueError, match="1 seeds of 4 features"):
        shaper.shape(make_batch(torch.zeros(1, 5, 4)))
    with pytest.raises(
        ValueError, match=r"batch is on meta, but this shaper was bound to cpu; move it with \.to\('cpu'\)"
    ):
        shaper.shape(make_batch(torch.zeros(1, 5, 3, device="meta")))
    with pytest.raises(ValueError, match="a trajectory of 0 states"):
        shaper.add_trajectory(torch.zeros(0, 3), success=True)
    with pytest.raises(ValueError, match="member=2 is not in this population of 1"):
        shaper.add_trajectory(torch.zeros(2, 3), success=True, member=2)


def test_a_foreign_state_dict_is_refused_and_nothing_is_lost(bound: Bound) -> None:
    shaper, other = bound("auto", k=3), bound("auto", k=4)
    episode(shaper, torch.randn(30, 1, 1, 3), success=True)
    before = copy.deepcopy(shaper.state_dict())
    with pytest.raises(ValueError, match=r"has shape .* expected .* make this SASR with the same spaces"):
        shaper.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="state_dict is of something else: missing"):
        shaper.load_state_dict(bound("authors", k=3).state_dict())
    assert all(torch.equal(value, shaper.state_dict()[key]) for key, value in before.items())


def test_binding_is_needed_and_happens_once(bound: Bound) -> None:
    with pytest.raises(RuntimeError, match=r"call shaper\.bind"):
        SASR().shape(make_batch(torch.zeros(1, 1, 2)))
    with pytest.raises(RuntimeError, match="bound to a host already"):
        bound().bind(Host(observation_space=box(2), action_space=box(1)))
    with pytest.raises(TypeError, match="use Box"):
        SASR().bind(Host(observation_space=gym.spaces.Discrete(3), action_space=box(1)))
    refused = SASR(storage="flags")
    with pytest.raises(ValueError, match="this host has none"):
        refused.bind(Host(observation_space=box(2), action_space=box(1)))
    refused.bind(Host(observation_space=box(2), action_space=box(1), replay=Replay(10)))
    flagged = bound(storage="flags", replay=Replay(10))
    with pytest.raises(ValueError, match=r"set Transition\.slot"):
        flagged.observe(make_step(torch.zeros(1, 1, 2)))
    with pytest.raises(ValueError, match="use storage='own'"):
        flagged.add_trajectory(torch.zeros(3, 2), success=True)
