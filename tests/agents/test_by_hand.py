"""Gradients that are written out are autograd's."""

from __future__ import annotations

import pytest
import torch

from sasr.agents import SacConfig, by_hand
from tests.agents.test_sac import B, learn, make_agent, make_data, member_weights


@pytest.mark.parametrize("hidden", [(), (16,), (16, 8, 12)])
@pytest.mark.parametrize("P", [1, 3])
def test_gradients_are_autograds(P: int, hidden: tuple[int, ...]) -> None:
    agent = make_agent(tuple(range(P)), SacConfig(hidden=hidden))
    learn(agent, 6)
    (batch, bonus), noise = make_data(P, 9), agent.draw_noise(B)
    ahead = agent.look_ahead(batch, noise)
    target = batch.reward + bonus + ahead

    loss, figures = agent.critic_loss(batch, bonus, ahead)
    of_critic = torch.autograd.grad(loss, list(agent.critic.parameters()))
    gradients, values = by_hand.critic_gradients(agent.critic.net, batch.obs, batch.action, target)
    torch.testing.assert_close(values.mean((0, 2)), figures["q_mean"], rtol=0, atol=1e-6)
    torch.testing.assert_close(gradients, list(of_critic), rtol=1e-4, atol=1e-6)

    loss, _, figures = agent.actor_loss(batch, noise.actor[0])
    of_actor = torch.autograd.grad(loss, list(agent.actor.parameters()))
    gradients, log_prob, least = by_hand.actor_gradients(
        agent.actor.net, agent.critic.net, batch.obs, noise.actor[0], figures["alpha"], agent.actor.squashing
    )
    torch.testing.assert_close(-log_prob.mean(1), figures["entropy"], rtol=0, atol=1e-5)
    lowered = (figures["alpha"][:, None] * log_prob - least).mean(1)
    torch.testing.assert_close(lowered, figures["actor_loss"], rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients, list(of_actor), rtol=1e-4, atol=1e-6)


def test_actions_far_outside_have_a_log_density_and_a_gradient() -> None:
    squashing = make_agent().actor.squashing
    outputs = torch.tensor([[[60.0, -60.0, 30.0, -30.0]]])
    drawn = by_hand.draw(outputs, torch.tensor([[[1.0, -1.0]]]), squashing)
    of_outputs = by_hand.outputs_gradient(drawn, torch.ones(1, 1, 2), torch.ones(1, 1, 1), squashing)
    assert drawn.log_prob.isfinite().all()
    assert of_outputs.isfinite().all()


def test_a_population_learns_by_hand_what_it_learns_by_autograd() -> None:
    seeds = (4, 5, 6)
    plain, ours = make_agent(seeds), make_agent(seeds)
    plain.by_hand = False
    learn(plain, 50)
    learn(ours, 50)
    assert plain.state_dict().keys() == ours.state_dict().keys()
    for p in range(3):
        for key, own in member_weights(ours, p).items():
            torch.testing.assert_close(own, member_weights(plain, p)[key], rtol=0, atol=1e-4, msg=key)
