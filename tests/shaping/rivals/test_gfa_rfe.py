from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor, nn

from sasr import Batch, Host
from sasr.shaping.rivals.gfa_rfe import GfaRfe
from tests.conftest import box, make_step
from tests.shaping.rivals.learners import Leaning, batch_of, host_of, make, make_steps, trained


def snapshot(shaper: GfaRfe) -> list[Tensor]:
    return [own.clone() for own in shaper.ensemble.by_network([own.data for own in shaper.ensemble.parameters()])]


def moved_networks(before: list[Tensor], after: list[Tensor]) -> set[int]:
    return {
        i for one, two in zip(before, after, strict=True) for i in range(len(one)) if not torch.equal(one[i], two[i])
    }


def test_each_update_moves_one_network_in_turn_and_leaves_the_others_as_they_are() -> None:
    host = host_of()
    shaper, steps = make("gfa_rfe", host), make_steps(host, 40)
    turns = []
    for t in range(6):
        before = snapshot(shaper)
        shaper.update(batch_of(steps, seed=t))
        turns.append(moved_networks(before, snapshot(shaper)))
    assert turns == [{0}, {1}, {2}, {3}, {0}, {1}]


def test_compat_lets_momentum_move_the_others_and_draws_the_output_layer_wide() -> None:
    host = host_of()
    shaper, steps = make("gfa_rfe", host, compat=True), make_steps(host, 40)
    plain = make("gfa_rfe", host)
    assert shaper.ensemble.layers[-1].weight.abs().max() > 0.9
    assert plain.ensemble.layers[-1].weight.abs().max() <= 16**-0.5
    shaper.update(batch_of(steps))
    before = snapshot(shaper)
    shaper.update(batch_of(steps))
    assert moved_networks(before, snapshot(shaper)) == {0, 1}


def reference(shaper: GfaRfe, network: int, member: int) -> nn.Sequential:
    """One value function of one member as a textbook has it."""
    index = network * shaper.ensemble.members + member
    layers: Any = shaper.ensemble.layers
    one, two, three = (nn.Linear(*layer.weight.shape[1:]) for layer in layers)
    norm = nn.LayerNorm(one.out_features)
    with torch.no_grad():
        for own, layer in zip((one, two, three), layers, strict=True):
            own.weight.copy_(layer.weight[index].T)
            own.bias.copy_(layer.bias[index])
    return nn.Sequential(one, norm, nn.Tanh(), two, nn.ReLU(), three)


def test_learning_equals_plain_networks_with_an_adam_each() -> None:
    host = host_of((4, 5))
    shaper = make("gfa_rfe", host, learning_rate=1e-2)
    plain = [[reference(shaper, i, p) for p in range(2)] for i in range(4)]
    adams = [[torch.optim.Adam(net.parameters(), lr=1e-2) for net in row] for row in plain]
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 32, 6, generator=g)
    for t in range(9):
        target, weight = torch.randn(2, 32, generator=g), torch.rand(2, 32, generator=g)
        found = shaper.fit(x, target, weight=weight)
        for p in range(2):
            net, adam = plain[t % 4][p], adams[t % 4][p]
            loss = (weight[p] * (net(x[p])[:, 0] - target[p]) ** 2).mean()
            torch.testing.assert_close(found[p], loss.detach(), rtol=1e-4, atol=1e-6)
            adam.zero_grad()
            loss.backward()
            adam.step()
    values = shaper.ensemble(x)
    for i in range(4):
        for p in range(2):
            torch.testing.assert_close(values[i, p], plain[i][p](x[p])[:, 0], rtol=1e-4, atol=1e-4)


def test_the_bonus_is_the_deviation_of_the_targets_within_its_limits() -> None:
    host = host_of()
    shaper = trained("gfa_rfe", host, weight=0.1, normaliser="none")
    batch = batch_of(make_steps(host, 40))
    x = torch.cat([batch.obs, batch.action], -1)
    expected = 0.1 * 2.0 * shaper.targets(x).std(0, unbiased=True)
    torch.testing.assert_close(shaper.shape(batch), expected)
    with torch.no_grad():
        shaper.targets.layers[-1].weight.mul_(1e4)
    assert float(shaper.shape(batch).max()) == pytest.approx(1.0)  # 0.1 · 10
    assert (shaper.shape(batch) >= 0.0).all()


def test_targets_go_on_behind_the_ends_of_episodes_and_weights_are_bounded() -> None:
    host = host_of()
    shaper = trained("gfa_rfe", host)
    with torch.no_grad():
        shaper.targets.layers[-1].bias.add_(3.0)
    batch = batch_of(make_steps(host, 40))
    action = torch.zeros(3, 16, 2)
    value, _, bonus = shaper.target(batch, action)
    ahead = shaper.targets(torch.cat([batch.next_obs, action], -1))
    torch.testing.assert_close(value, (bonus + 0.99 * ahead.mean(0)).clamp(0.0, 500.0))
    ended = shaper.target(batch._replace(terminated=torch.ones(3, 16, dtype=torch.bool)), action)[0]
    assert torch.equal(value, ended)
    with torch.no_grad():
        for scale in (1e6, 1e-9):
            shaper.targets.layers[-1].weight.mul_(scale)
            weight = shaper.target(batch, action)[1].square().reciprocal()
            assert ((weight >= 0.01 - 1e-6) & (weight <= 100.0 + 1e-3)).all()
            assert (shaper.target(batch, action)[0] <= 500.0).all()


def test_networks_agree_where_they_have_learned() -> None:
    """Two clusters in eight dimensions; 1000 updates towards a constant on one of them."""
    space = box(1)
    shaper = GfaRfe(learning_rate=1e-3, width=128)
    shaper.bind(Host(observation_space=box(7), action_space=space, policy=Leaning(space)))
    g = torch.Generator().manual_seed(0)

    def cluster(at: float) -> Tensor:
        x = 0.3 * torch.randn(1, 64, 8, generator=g)
        x[..., 0] += at
        return x

    for _ in range(1000):
        shaper.fit(cluster(2.0), torch.ones(1, 64), weight=torch.ones(1, 64))
    with torch.no_grad():
        known, unknown = (float(shaper.ensemble(cluster(at)).std(0).mean()) for at in (2.0, -2.0))
    assert known < 0.10 * unknown


def test_two_phases_pay_the_bonus_alone_and_then_nothing() -> None:
    host = host_of()
    shaper, steps = make("gfa_rfe", host, explore_steps=30, normaliser="none"), make_steps(host, 40)
    batch = batch_of(steps)._replace(reward=torch.full((3, 16), 5.0))
    for step in steps[:30]:
        shaper.observe(step)
    total = batch.reward + shaper.shape(batch)
    expected = 0.5 * shaper.bonus(torch.cat([batch.obs, batch.action], -1))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-6)
    shaper.observe(steps[30])
    assert (shaper.shape(batch) == 0.0).all()


def test_targets_follow_all_networks_slowly() -> None:
    host = host_of()
    shaper = trained("gfa_rfe", host)
    slow = [own.clone() for own in shaper.targets.parameters()]
    shaper.update(batch_of(make_steps(host, 40)))
    for before, after, fast in zip(slow, shaper.targets.parameters(), shaper.ensemble.parameters(), strict=True):
        torch.testing.assert_close(after, before + 0.05 / 4 * (fast - before), rtol=1e-5, atol=1e-7)


def room(place: float, g: torch.Generator) -> Batch:
    """Steps of 0.05 from anywhere in a room of size 1 whose near wall is at x = `place`."""
    obs, action = torch.rand(2, 64, 2, generator=g), torch.rand(2, 64, 2, generator=g) * 2 - 1
    after = (obs + 0.05 * action).clamp(0.0, 1.0)
    shift = torch.tensor([place, 0.0])
    none = torch.zeros(2, 64)
    return Batch(obs + shift, action, none, after + shift, none.bool())


def at_home(updates: int, **options: Any) -> tuple[GfaRfe, torch.Generator]:
    """Default settings but for the width and `options`, after updates in one room."""
    shaper, g = GfaRfe(width=64, **options), torch.Generator().manual_seed(0)
    space = gym.spaces.Box(-1.0, 1.0, (2,))
    shaper.bind(Host(observation_space=box(2), action_space=space, seeds=(0, 1), policy=Leaning(space)))
    for _ in range(updates):
        shaper.update(room(0.0, g))
    return shaper, g


def test_a_room_that_was_never_seen_pays_more_after_a_few_episodes_of_updates() -> None:
    """With the released step sizes the ensemble had hardly moved by then, and both rooms paid the same."""
    shaper, g = at_home(500)
    known, unknown = (shaper.shape(room(place, g)).mean(1) for place in (0.0, 1.5))
    assert (unknown > 1.25 * known).all()


def test_a_bonus_that_fades_begins_with_more_weight() -> None:
    batch = room(0.0, torch.Generator().manual_seed(1))
    for weight, options in ((5.0, {}), (0.5, {"normaliser": "none"}), (0.25, {"weight": 0.25})):
        shaper, _ = at_home(0, **options)
        deviation = shaper.targets(torch.cat([batch.obs, batch.action], -1)).std(0)
        torch.testing.assert_close(shaper.shape(batch), weight * 2.0 * deviation)  # nothing to divide by yet


def test_the_bonus_fades_as_the_ensemble_comes_to_agree() -> None:
    shaper, g = at_home(0)
    paid = []
    for _ in range(3):
        for _ in range(100):
            batch = room(0.0, g)
            shaper.observe(make_step(batch.obs[:, :1])._replace(action=batch.action[:, :1]))
            shaper.update(batch)
        paid.append(shaper.shape(room(0.0, g)).mean(1))
    assert (paid[2] < 0.5 * paid[0]).all()


@pytest.mark.parametrize("confidence", [2.0, 0.02])
def test_a_typical_bonus_adds_up_to_its_weight_over_the_horizon_however_well_the_ensemble_agrees(
    confidence: float,
) -> None:
    shaper, g = at_home(20, confidence=confidence, weight=0.5, learning_rate=0.0, normaliser="replay")
    paid = torch.stack([shaper.shape(room(0.0, g)).mean(1) for _ in range(10)]).mean(0)
    torch.testing.assert_close(100.0 * paid, torch.full((2,), 0.5), rtol=0.02, atol=0.0)


@pytest.mark.parametrize("size", [1.0, 0.01])
def test_samples_whose_targets_are_uncertain_weigh_less_however_well_the_ensemble_agrees(size: float) -> None:
    shaper, g = at_home(100)
    with torch.no_grad():
        for own in shaper.targets.layers[-1].parameters():
            own.mul_(size)
    batch = room(0.5, g)
    deviation = shaper.target(batch, batch.action)[1]
    own = shaper.targets(torch.cat([batch.next_obs, batch.action], -1)).std(0)
    weight = deviation.square().reciprocal()
    assert (weight.std(1) > 0.1 * weight.mean(1)).all()
    assert all(torch.equal(a.argsort(), b.argsort(descending=True)) for a, b in zip(weight, own, strict=True))
