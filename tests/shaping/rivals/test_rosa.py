from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sasr import Batch
from sasr.shaping.rivals.rosa import UNKNOWN, Rosa
from tests.shaping.rivals.learners import batch_of, host_of, make, make_steps, trained

GAMMA = 0.99


def play(steps: int = 300, *, length: int = 37, envs: int = 2, **options: Any) -> tuple[Rosa, Tensor]:
    """A shaper that has decided for some episodes, and which of its stored steps ended one, (steps,)."""
    host = host_of((0, 1), envs=envs, capacity=steps * envs)
    shaper = make("rosa", host, **options)
    for step in make_steps(host, steps, length=length):
        shaper.observe(step)
    return shaper, torch.arange(steps) % length == length - 1


def by_environment(column: Tensor, envs: int = 2, steps: int = 300) -> Tensor:
    """A column by slot as (P, E, steps)."""
    return column[:, : steps * envs].view(len(column), steps, envs).transpose(1, 2)


@settings(max_examples=6, deadline=None)
@given(stop=st.sampled_from([0.05, 0.1, 0.5, 1.0]), length=st.sampled_from([7, 37, 1000]))
def test_shaping_sums_to_nothing_over_every_interval(stop: float, length: int) -> None:
    shaper, ends = play(120, length=length, stop_probability=stop)
    columns = (shaper.stored_bonus, shaper.decision > 0)
    paid, on = (by_environment(column, steps=120).flatten(0, 1) for column in columns)
    closed = 0
    for own_paid, own_on in zip(paid.double(), on, strict=True):
        total, start = 0.0, 0
        for t in range(120):
            total += GAMMA ** (t - start) * float(own_paid[t])
            if ends[t] or not own_on[t]:  # the step after an interval, or an episode's last, closes it
                assert abs(total) < 1e-5
                closed, total, start = closed + 1, 0.0, t + 1
    assert closed >= 4


def test_what_is_still_to_be_paid_does_not_depend_on_what_the_agent_does() -> None:
    """Two futures of one past, to the end of the episode: no action is worth more than another for being shaped."""
    sums = []
    for future in (1, 2):
        host = host_of((0, 1), envs=8, capacity=8 * 40)
        shaper, past, ahead = (
            make("rosa", host),
            make_steps(host, 40, length=40),
            make_steps(host, 40, length=40, seed=future),
        )
        for step in past[:20]:
            shaper.observe(step)
        before = shaper.potential.clone()
        for step in ahead[20:]:
            shaper.observe(step)
        paid = by_environment(shaper.stored_bonus, envs=8, steps=40)[..., 20:]
        sums.append((paid * GAMMA ** torch.arange(20)).sum(-1))
        torch.testing.assert_close(sums[-1], -before / GAMMA, rtol=0, atol=1e-4)
        assert (before != 0.0).any()
    torch.testing.assert_close(*sums, rtol=0, atol=1e-4)


def test_nothing_is_paid_while_off_except_what_closes_an_interval() -> None:
    shaper, ends = play(stop_probability=0.5)
    paid, decision = by_environment(shaper.stored_bonus), by_environment(shaper.decision)
    started = torch.cat([torch.tensor([True]), ends[:-1]])
    before = torch.cat([torch.zeros_like(decision[..., :1]), decision[..., :-1]], -1).masked_fill(started, 0)
    idle = (decision == 0) & (before == 0)
    assert idle.any()
    assert (paid[idle] == 0.0).all()
    assert (paid[(decision == 0) & (before > 0)] != 0.0).all()
    assert torch.equal(by_environment(shaper.was_on), before > 0)


def test_switching_on_is_paid_for_once() -> None:
    free, dear = (make("rosa", switch_cost=cost) for cost in (0.0, 0.1))
    shaper, _ = play()
    decision, was_on = by_environment(shaper.decision), by_environment(shaper.was_on)
    switched_on = ((decision > 0) & ~was_on).flatten(0, 1)
    zeros = torch.zeros(switched_on.shape)
    cost = free.shaper_reward(zeros, zeros, switched_on=switched_on, novelty=zeros) - dear.shaper_reward(
        zeros, zeros, switched_on=switched_on, novelty=zeros
    )
    on = (decision > 0).flatten(0, 1)
    starts = on & ~torch.cat([torch.zeros_like(on[:, :1]), on[:, :-1]], 1)
    assert float(cost.sum()) >= 0.1 * int(starts.sum()) > 0
    assert 0 < int(switched_on.sum()) < int(on.sum())
    torch.testing.assert_close(cost, 0.1 * switched_on.float())


def test_intervals_end_by_chance() -> None:
    shaper, _ = play(200, length=10_000, envs=10, stop_probability=0.2)
    decision, was_on = (by_environment(column, envs=10, steps=200) for column in (shaper.decision, shaper.was_on))
    assert float((decision[was_on] == 0).float().mean()) == pytest.approx(0.2, abs=0.03)


def test_the_frozen_network_stays_bit_for_bit_and_its_values_are_about_one() -> None:
    host = host_of((0, 1))
    shaper, steps = make("rosa", host), make_steps(host, 60)
    before = [own.clone() for own in shaper.features.parameters()]
    for t, step in enumerate(steps):
        shaper.observe(step)
        if t > 20:
            shaper.update(batch_of(steps[: t + 1], seed=t))
    assert all(torch.equal(a, b) for a, b in zip(before, shaper.features.parameters(), strict=True))
    chosen = shaper.stored_bonus[:, :60][shaper.decision[:, :60] > 0]
    assert 0.3 < float(chosen.abs().mean()) < 3.0


def test_a_shaper_with_no_components_never_shapes() -> None:
    shaper, _ = play(50, components=0)
    assert (shaper.stored_bonus == 0.0).all()
    assert (shaper.decision[:, :100] == 0).all()
    host = host_of((0, 1))
    assert (trained("rosa", host, components=0).shape(batch_of(make_steps(host, 40))) == 0.0).all()


def test_the_bonus_is_what_was_kept_for_the_slot_and_is_forgotten_with_it() -> None:
    host = host_of()
    shaper = trained("rosa", host, weight=0.3)
    batch = batch_of(make_steps(host, 40))
    torch.testing.assert_close(shaper.shape(batch), 0.3 * shaper.stored_bonus.gather(1, batch.slot))
    assert batch.slot is not None
    shaper.release(batch.slot[:, :1])
    assert (shaper.shape(batch)[:, 0] == 0.0).all()
    assert (shaper.decision.gather(1, batch.slot)[:, 0] == UNKNOWN).all()


def test_steps_that_nothing_was_decided_for_are_not_learned_from() -> None:
    host = host_of()
    one, two = trained("rosa", host), trained("rosa", host)
    batch = batch_of(make_steps(host, 40))
    for shaper, reward in ((one, 0.0), (two, 1e6)):
        shaper.release(batch.slot)
        losses = shaper.update(batch._replace(reward=torch.full((3, 16), reward)))["shaper_critic_loss"]
        assert (losses == 0.0).all()
    assert torch.equal(one.critic.body.layers[0].weight, two.critic.body.layers[0].weight)


def test_the_shaper_learns_which_decision_brings_reward() -> None:
    """A bandit that pays for decision 2 alone."""
    options = {"actor_lr": 3e-3, "critic_lr": 3e-3, "weight": 0.0, "novelty_weight": 0.0, "switch_cost": 0.0}
    shaper = make("rosa", host_of((0, 1)), **options)
    g = torch.Generator().manual_seed(0)
    obs, slot = torch.zeros(2, 64, 4), torch.arange(64).repeat(2, 1)
    done = torch.ones(2, 64, dtype=torch.bool)
    for _ in range(200):
        decision = torch.randint(5, (2, 64), generator=g)
        shaper.decision[:, :64] = decision.to(torch.int8)
        shaper.update(Batch(obs, torch.zeros(2, 64, 2), (decision == 2).float(), obs, done, slot))
    off = torch.zeros(2, 1, dtype=torch.bool)
    probability = shaper.logits(shaper.inputs(obs[:, :1]), off).softmax(-1)[:, 0]
    assert (probability.argmax(-1) == 2).all()
    assert (probability[:, 2] > 0.5).all()


def test_while_on_only_chance_switches_off() -> None:
    shaper = trained("rosa")
    on = torch.ones(3, 5, dtype=torch.bool)
    probability = shaper.logits(torch.randn(3, 5, 4), on).softmax(-1)
    assert (probability[..., 0] == 0.0).all()
    value = shaper.value(torch.randn(3, 5, 4), on)
    assert torch.isfinite(value).all()


def test_a_host_without_replay_or_a_step_without_a_slot_is_refused() -> None:
    host = host_of()
    with pytest.raises(ValueError, match="this host has none"):
        Rosa().bind(type(host)(observation_space=host.observation_space, action_space=host.action_space))
    with pytest.raises(ValueError, match=r"discount=0\.0 must be above 0"):
        Rosa().bind(type(host)(**{**host.__dict__, "discount": 0.0}))
    shaper, steps = make("rosa", host), make_steps(host, 1)
    with pytest.raises(ValueError, match=r"set Transition\.slot"):
        shaper.observe(steps[0]._replace(slot=None))
    with pytest.raises(ValueError, match=r"set Batch\.slot"):
        shaper.shape(batch_of(steps)._replace(slot=None))
