from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sasr import Transition
from sasr.shaping.rivals.explors import ExploRS, Window
from tests.shaping.rivals.learners import batch_of, host_of, make, make_steps, trained

GAMMA = 0.99


def bonus_alone(**options: Any) -> ExploRS:
    """Pays B(s′) as it is: codes of raw states, no learned part."""
    return make("explors", host_of((0,)), first_states=0, bonus_weight=1.0, learned_weight=0.0, **options)


def visit(shaper: ExploRS, obs: Tensor, next_obs: Tensor) -> None:
    no = torch.zeros(1, 1, dtype=torch.bool)
    shaper.observe(Transition(obs[None, None], torch.zeros(1, 1, 2), torch.zeros(1, 1), next_obs[None, None], no, no))


# ------------------------------------------------------------------ the bonus


def test_each_visit_makes_a_state_worth_less() -> None:
    shaper, here, there = bonus_alone(), torch.ones(4), -torch.ones(4)
    batch = batch_of(make_steps(host_of((0,)), 1), 1)._replace(next_obs=here.view(1, 1, 4))
    paid = []
    for _ in range(5):
        paid.append(float(shaper.shape(batch)))
        visit(shaper, here, there)
    torch.testing.assert_close(paid, [(1 + n) ** -0.5 for n in range(5)], rtol=1e-6, atol=0)


def test_the_state_that_was_left_is_counted_and_the_one_that_was_reached_is_paid() -> None:
    shaper, here, there = bonus_alone(), torch.ones(4), -torch.ones(4)
    visit(shaper, here, there)
    batch = batch_of(make_steps(host_of((0,)), 1), 1)
    left, reached = (float(shaper.shape(batch._replace(next_obs=x.view(1, 1, 4)))) for x in (here, there))
    assert left == pytest.approx(2**-0.5)
    assert reached == 1.0


def test_the_bonus_follows_its_scale_and_its_largest_value() -> None:
    shaper, here = bonus_alone(bonus_scale=0.5, bonus_max=2.0), torch.ones(4)
    batch = batch_of(make_steps(host_of((0,)), 1), 1)._replace(next_obs=here.view(1, 1, 4))
    assert float(shaper.shape(batch)) == pytest.approx(2.0)
    for _ in range(3):
        visit(shaper, here, -here)
    assert float(shaper.shape(batch)) == pytest.approx(0.5 / (0.25**2 + 3) ** 0.5)


@pytest.mark.parametrize("bonus", ["counts", "network"])
def test_nothing_is_paid_behind_a_termination_and_the_bonus_is_bounded(bonus: str) -> None:
    host = host_of()
    shaper = trained("explors", host, bonus=bonus, learned_weight=0.0)
    batch = batch_of(make_steps(host, 40))
    ended = batch._replace(terminated=torch.ones(3, 16, dtype=torch.bool))
    assert (shaper.shape(ended) == 0.0).all()
    going = shaper.shape(batch._replace(terminated=torch.zeros(3, 16, dtype=torch.bool)))
    assert ((going > 0.0) & (going <= 0.3)).all()


def test_a_network_that_has_learned_a_state_pays_less_for_it() -> None:
    host = host_of((0,))
    shaper = make("explors", host, bonus="network")
    steps = [step._replace(next_obs=0.1 * step.next_obs) for step in make_steps(host, 40)]
    for step in steps:
        shaper.observe(step)
    for t in range(300):
        shaper.update(batch_of(steps, seed=t))
    states = torch.randn(1, 5_000, 4, generator=torch.Generator().manual_seed(0))
    near, far = (shaper.bonus(scale * states).mean() for scale in (0.1, 2.0))
    assert near < 0.5 * far


def test_the_first_states_are_counted_too_once_codes_are_settled() -> None:
    host = host_of((0,))
    shaper = make("explors", host, first_states=20, bits=1)  # two codes
    for step in make_steps(host, 30):
        shaper.observe(step)
    states = 10.0 * torch.randn(1, 500, 4, generator=torch.Generator().manual_seed(0))  # of both codes
    code, counts = shaper.counts.bits(states)[0, :, 0], shaper.counts.counts(states)[0]
    assert int(counts[code][0]) + int(counts[~code][0]) == 30


# ------------------------------------------------------------------ the learned reward


def test_the_learned_reward_is_bounded_and_not_paid_before_its_time() -> None:
    host = host_of()
    shaper, steps = make("explors", host, delay=30, bonus_weight=0.0, weight=1.0), make_steps(host, 40)
    batch = batch_of(steps)
    for t, step in enumerate(steps):
        assert (shaper.shape(batch) == 0.0).all() == (t < 30)
        shaper.observe(step)
        shaper.update(batch_of(steps[: t + 1], seed=t))
    far = shaper.shape(batch._replace(obs=1e5 * batch.obs))
    assert (far.abs() <= 0.1).all()
    assert (far.abs() > 0.09).any()


def two_armed(shaper: ExploRS, better: float, episodes: int = 40, updates: int = 200) -> Tensor:
    """Episodes of one step in one state, whose first arm pays `better`; R of both arms, (P, 2)."""
    P = shaper.bound.members
    yes, no = torch.ones(P, 1, dtype=torch.bool), torch.zeros(P, 1, dtype=torch.bool)
    obs = torch.ones(P, 1, 4)
    for t in range(episodes):
        reward = torch.full((P, 1), better if t % 2 == 0 else 0.0)
        shaper.observe(Transition(obs, torch.full((P, 1), t % 2), reward, obs, yes, no))
    batch = batch_of(make_steps(shaper.bound, 5))
    for _ in range(updates):
        shaper.update(batch)
    return shaper.learned(obs.expand(-1, 2, -1), shaper.flat_actions(torch.tensor([[0, 1]]).repeat(P, 1))).detach()


def test_the_better_of_two_arms_is_rewarded() -> None:
    host = host_of((0, 1), action=gym.spaces.Discrete(2))
    learned = two_armed(make("explors", host, reward_lr=1e-3), better=1.0)
    assert (learned[:, 0] > learned[:, 1] + 0.2).all()


def test_without_any_reward_nothing_is_learned() -> None:
    host = host_of((0, 1), action=gym.spaces.Discrete(2))
    shaper = make("explors", host)
    before = [own.clone() for part in (shaper.reward, shaper.value) for own in part.parameters()]
    two_armed(shaper, better=0.0, updates=20)
    after = [own for part in (shaper.reward, shaper.value) for own in part.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_gain_is_the_published_one() -> None:
    """π(a|s)·A·(R(s, a) − Σ_b π(b|s)·R(s, b)) with four draws of b, written out."""
    host = host_of((0, 1))
    shaper = trained("explors", host)
    batch = batch_of(make_steps(host, 40))
    advantage = torch.randn(2, 16)
    assert host.policy is not None
    drawn = host.policy.propose(batch.obs.repeat_interleave(4, 1), shaper.streams)
    gain, learned = shaper.gain(batch.obs, batch.action, advantage, drawn)
    others = drawn.view(2, 16, 4, 2)
    usual = torch.stack([shaper.learned(batch.obs, others[:, :, i]) for i in range(4)]).mean(0)
    expected = host.policy.likelihood(batch.obs, batch.action) * advantage * (learned - usual)
    torch.testing.assert_close(gain, expected.mean(1), rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------ the returns it learns from


def brute_force(rewards: Sequence[float], ends: Sequence[str], tails: Sequence[float], rows: int) -> dict[int, float]:
    """Returns of the last `rows` steps whose episodes have ended."""
    known, start = {}, 0
    for t, end in enumerate(ends):
        if end != "on":
            for i in range(start, t + 1):
                after = tails[t] * GAMMA ** (t + 1 - i) if end == "cut" else 0.0
                known[i] = sum(GAMMA ** (j - i) * rewards[j] for j in range(i, t + 1)) + after
            start = t + 1
    return {i: value for i, value in known.items() if i >= len(ends) - rows}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.floats(-5, 5), st.sampled_from(["on", "on", "on", "done", "cut"]), st.floats(-5, 5)),
        min_size=1,
        max_size=40,
    ),
    rows=st.integers(1, 30),
)
def test_returns_equal_brute_force(steps: list[tuple[float, str, float]], rows: int) -> None:
    window = Window(host_of((0,)), rows, 2)
    for t, (reward, end, tail) in enumerate(steps):
        obs = torch.full((1, 1, 4), float(t))
        cut = torch.tensor([[tail if end == "cut" else 0.0]])
        window.add(obs, torch.zeros(1, 1, 2), torch.tensor([[reward]]), torch.tensor([[end != "on"]]), cut)
    rewards, ends, tails = (list(column) for column in zip(*steps, strict=True))
    expected = brute_force(rewards, ends, tails, rows)
    found = {
        int(window.obs[0, row, 0, 0]): float(window.ret[0, row, 0]) for row in range(rows) if window.ready[0, row, 0]
    }
    assert found.keys() == expected.keys()
    for i, value in expected.items():
        assert found[i] == pytest.approx(value, rel=1e-4, abs=1e-4)


def test_a_time_limit_is_bridged_by_the_value_and_a_termination_is_not() -> None:
    host = host_of((0,))
    shaper = make("explors", host)
    with torch.no_grad():
        shaper.value.body.layers[-1].bias.fill_(7.0)
    steps = make_steps(host, 20)  # the first episode ends in a reward, the second at a time limit
    for step in steps:
        shaper.observe(step)
    ret = shaper.window.ret[0, :20, 0]
    torch.testing.assert_close(ret[:10], GAMMA ** torch.arange(9.0, -1.0, -1.0), rtol=1e-5, atol=0)
    torch.testing.assert_close(ret[10:], 7.0 * GAMMA ** torch.arange(10.0, 0.0, -1.0), rtol=1e-5, atol=0)


def test_only_what_the_window_holds_is_sampled_and_steps_under_way_are_left_out() -> None:
    host = host_of((0,))
    shaper = make("explors", host, window=100)
    for step in make_steps(host, 25):
        shaper.observe(step)
    uniform = torch.rand(1, 400)
    obs, _, _, known = shaper.window.sample(uniform, shaper.member)
    held = {tuple(row) for row in shaper.window.obs[0, :25, 0].tolist()}
    assert {tuple(row) for row in obs[0].tolist()} == held
    assert float(known.float().mean()) == pytest.approx(20 / 25, abs=0.08)


def test_returns_of_interrupted_episodes_stay_unknown() -> None:
    host = host_of((0,), envs=2)
    shaper = make("explors", host)
    steps = make_steps(host, 20)
    for step in steps[:5]:
        shaper.observe(step)
    shaper.interrupt(torch.tensor([[True, False]]), None)
    for step in steps[5:]:
        shaper.observe(step)
    assert shaper.window.ready[0, :5].tolist() == [[False, True]] * 5
    assert shaper.window.ready[0, 5:20].all()


def test_a_window_smaller_than_the_environments_is_refused() -> None:
    with pytest.raises(ValueError, match="window=3 must hold a step of each of the 4 environments"):
        ExploRS(window=3).bind(host_of(envs=4))
