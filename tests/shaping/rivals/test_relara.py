from __future__ import annotations

import gymnasium as gym
import pytest
import torch

from sasr import Batch, Host
from sasr.agents import Sac, SacConfig
from sasr.envs.population import Population
from sasr.shaping.rivals.relara import UNKNOWN, Relara
from sasr.training import Loop, OffPolicy
from tests.shaping.rivals.learners import batch_of, host_of, make, make_steps, trained


def test_proposals_stay_within_one_however_far_the_state() -> None:
    host = host_of()
    shaper = trained("relara", host, weight=0.5)
    batch = batch_of(make_steps(host, 40))
    bonus = shaper.shape(batch._replace(obs=1e4 * batch.obs))
    assert (bonus.abs() <= 0.5).all()
    assert (bonus.abs() > 0.4).any()


def test_every_step_is_paid_its_own_proposal() -> None:
    """The released code's targets hold the mean over the batch instead; here each moves by its own bonus."""
    host = host_of()
    shaper, agent = trained("relara", host), Sac(host, SacConfig(hidden=(8,)))
    batch = batch_of(make_steps(host, 40))
    bonus = shaper.shape(batch)
    values = agent.critic(batch.obs, batch.action)
    expected = (values - (batch.reward + bonus)).square().mean(-1).sum()
    loss, _ = agent.critic_loss(batch, bonus, torch.zeros_like(bonus))
    torch.testing.assert_close(loss, expected)
    assert (bonus.std(1) > 1e-3).all()


def test_compat_pays_every_step_the_mean_of_its_batch() -> None:
    host = host_of()
    own, released = (trained("relara", host, compat=compat) for compat in (False, True))
    batch = batch_of(make_steps(host, 40))
    expected = own.shape(batch).mean(1, keepdim=True).expand(-1, 16)
    torch.testing.assert_close(released.shape(batch), expected, rtol=0, atol=1e-6)


def learn_from(shaper: Relara, sign: torch.Tensor, updates: int) -> torch.Tensor:
    """Learn in a bandit whose reward is the proposal times `sign` (P, B), and give the middle proposals back."""
    P, B = sign.shape
    g = torch.Generator().manual_seed(0)
    obs = torch.zeros(P, B, 4)
    obs[..., 0] = sign
    slot = torch.arange(B).repeat(P, 1)
    for _ in range(updates):
        shaper.proposed[:, :B] = torch.rand(P, B, generator=g) * 2 - 1
        reward = shaper.proposed[:, :B] * sign
        done = torch.ones(P, B, dtype=torch.bool)
        shaper.update(Batch(obs, torch.zeros(P, B, 2), reward, obs, done, slot))
    return shaper.propose(obs, torch.zeros(P, B, 2), torch.zeros(P, B))[2]


def test_the_reward_agent_learns_what_brings_reward_in_which_state() -> None:
    shaper = make("relara", host_of((0, 1)), actor_lr=3e-3, critic_lr=3e-3, temperature_lr=0.03)
    sign = torch.ones(2, 32)
    sign[:, 16:] = -1.0
    middle = learn_from(shaper, sign, 250)
    assert (middle[:, :16] > 0.4).all()
    assert (middle[:, 16:] < -0.4).all()


def test_the_target_is_the_environments_reward_and_what_follows() -> None:
    host = host_of()
    shaper = trained("relara", host)
    batch = batch_of(make_steps(host, 40))
    batch.terminated[:, ::3] = True
    following, noise = torch.randn(3, 16, 2).tanh(), torch.randn(3, 16)
    found = shaper.target(batch, following, noise)
    proposal, log_prob, _ = shaper.propose(batch.next_obs, following, noise)
    x = torch.cat([batch.next_obs, following, proposal[..., None]], -1)
    both = shaper.target_critic.body(torch.cat([x, x]))[..., 0].view(2, 3, 16)
    value = torch.minimum(both[0], both[1]) - shaper.log_alpha.exp()[:, None] * log_prob
    expected = batch.reward + 0.99 * value * (~batch.terminated)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_what_was_proposed_is_kept_by_slot_and_forgotten_when_the_slot_is() -> None:
    host = host_of()
    shaper, steps = make("relara", host), make_steps(host, 40)
    for step in steps:
        shaper.observe(step)
    kept = shaper.proposed[:, :40].clone()
    assert (kept.abs() <= 1.0).all()
    assert (shaper.proposed[:, 40:] == UNKNOWN).all()
    batch = batch_of(steps)
    beside, noise = shaper.flat_actions(batch.action), torch.zeros(3, 16)
    assert torch.equal(shaper.stored_proposal(batch, beside, noise), kept.gather(1, batch.slot))
    assert batch.slot is not None
    shaper.release(batch.slot[:, :1])
    fresh = shaper.propose(batch.obs, beside, noise)[0]
    assert torch.equal(shaper.stored_proposal(batch, beside, noise)[:, 0], fresh[:, 0])


def test_nothing_is_kept_for_a_replay_buffer_that_is_gone() -> None:
    shaper = trained("relara")
    shaper.lose_replay()
    assert (shaper.proposed == UNKNOWN).all()


def test_proposals_are_uniform_until_something_was_learned() -> None:
    host = host_of((0, 1), envs=100, capacity=4000)
    shaper = make("relara", host)
    steps = make_steps(host, 20)
    for step in steps:
        shaper.observe(step)
    before = shaper.proposed[:, :2000].clone()
    assert float(before.mean()) == pytest.approx(0.0, abs=0.04)
    assert float(before.std()) == pytest.approx(3**-0.5, abs=0.02)
    shaper.update(batch_of(steps))
    with torch.no_grad():
        shaper.actor.body.last.bias.copy_(torch.tensor([3.0, -9.0]).expand(2, 2))  # a sure proposal near 1
    for step in steps:
        shaper.observe(step)
    assert float(shaper.proposed[:, :2000].mean()) > 0.9


def test_the_reward_agent_learns_from_the_first_step_after_the_burn_in() -> None:
    with Population("Pendulum-v1", seeds=(0,), workers=0) as population:
        host = Host(observation_space=population.observation_space, action_space=population.action_space)
        shaper = Relara(width=8, blocks=1)
        agent = Sac(host, SacConfig(hidden=(8,), burn_in=20, batch_size=8))
        loop = Loop(population, OffPolicy(host, agent, shaper=shaper, capacity=100))
        updates = []
        for _ in range(25):
            loop.turn()
            updates.append(int(shaper.updates))
        assert updates == [0] * 20 + [1, 2, 3, 4, 5]
        assert agent.updates == 5
        known = shaper.proposed[0] != UNKNOWN
        assert known[:24].all()  # the newest step is shown to the shaper while the environment takes the next
        assert not known[24:].any()


def test_discrete_actions_are_seen_one_by_one() -> None:
    host = host_of((0,), action=gym.spaces.Discrete(3))
    shaper = make("relara", host)
    obs, noise = torch.zeros(1, 3, 4), torch.zeros(1, 3)
    proposals = shaper.propose(obs, shaper.flat_actions(torch.tensor([[0, 1, 2]])), noise)[0]
    assert len(proposals.unique()) == 3
