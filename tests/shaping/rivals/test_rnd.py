from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sasr import Host
from sasr.experience.replay import Replay
from sasr.networks.adam import Adam
from sasr.shaping.rivals.rnd import RND
from tests.conftest import box, make_batch, make_step
from tests.shaping.rivals.novelty import bind, clusters


def ready(**options: Any) -> tuple[RND, torch.Tensor, torch.Tensor]:
    """RND that has seen no state yet and so standardises none, and the two clusters."""
    shaper = bind(RND(**{"learning_rate": 1e-3, "trained_share": 1.0} | options), 8)
    return shaper, *clusters()


def test_a_visited_cluster_is_paid_less_than_a_tenth_of_an_unvisited_one() -> None:
    shaper, visited, unvisited = ready()
    before = shaper.shape(make_batch(visited)).mean() / shaper.shape(make_batch(unvisited)).mean()
    assert 0.3 < float(before) < 3.0
    for seed in range(200):
        shaper.update(make_batch(clusters(seed=seed)[0]))
    visited, unvisited = clusters(seed=1000)
    ratio = shaper.shape(make_batch(visited)).mean() / shaper.shape(make_batch(unvisited)).mean()
    assert float(ratio) < 0.1


def test_the_bonus_of_what_is_sampled_adds_up_to_the_weight_however_small_errors_get() -> None:
    shaper, visited, _ = ready(weight=0.7, hidden=(16, 16), normaliser="replay")
    batch = make_batch(visited[:, :32])
    first = shaper.update(batch)["prediction_error"]
    for _ in range(1500):
        shaper.update(batch)
    assert shaper.update(batch)["prediction_error"] < 0.01 * first
    paid = shaper.shape(batch).mean() / (1.0 - 0.99)
    assert float(paid) == pytest.approx(0.7, rel=0.5)


def test_a_bonus_that_fades_beside_the_reward_begins_with_more_weight() -> None:
    rollouts = Host(observation_space=box(2), action_space=box(1))
    replay = replace(rollouts, replay=Replay(rollouts, capacity=10))
    apart = replace(rollouts, separate_stream=True)
    weights: list[tuple[float, Host, dict[str, Any]]] = [
        (10.0, replay, {}),
        (0.5, replay, {"normaliser": "replay"}),
        (1.0, apart, {}),
        (0.5, rollouts, {}),
        (0.25, apart, {"weight": 0.25}),
    ]
    visited = torch.randn(1, 8, 2)
    for weight, host, options in weights:
        shaper = RND(**options)
        shaper.bind(host)
        torch.testing.assert_close(shaper.shape(make_batch(visited)), weight * shaper.novelty(visited))


def test_biases_make_what_is_far_away_stand_out_more() -> None:
    """Without biases, as published, the predictor carries what it learned straight on along each direction."""
    contrast = {}
    for bias in (0.0, 1.0):
        shaper = bind(RND(bias=bias, learning_rate=1e-3, trained_share=1.0), 2)
        room = torch.rand(1, 256, 2, generator=torch.Generator().manual_seed(0))
        for t in range(200):
            shaper.observe(make_step(room[:, t : t + 1]))
        for _ in range(100):
            shaper.update(make_batch(room))
        next_door = room + torch.tensor([1.0, 0.0])
        paid = [shaper.shape(make_batch(states)).mean() for states in (next_door, room)]
        contrast[bias] = float(paid[0] / paid[1])
    assert contrast[1.0] > 2.0 * contrast[0.0]


def test_the_random_network_never_learns_and_the_predictor_does() -> None:
    shaper, visited, _ = ready()
    before = {name: own.clone() for name, own in shaper.named_parameters()}
    for _ in range(5):
        shaper.update(make_batch(visited))
    for name, own in shaper.named_parameters():
        assert torch.equal(own, before[name]) == name.startswith("target."), name


def test_one_update_is_a_step_down_the_masked_error() -> None:
    """The kept share of the batch and no other rows: an update by hand from the same mask."""
    shaper, visited, _ = ready(trained_share=0.25)
    twin, _, _ = ready(trained_share=0.25)
    generator = twin.mask_streams.generators[0]
    keep = torch.rand(1, 256, generator=generator) < 0.25
    assert 30 < int(keep.sum()) < 100
    adam = Adam(list(twin.predictor.parameters()), lr=1e-3)
    adam.minimise(twin.raw_novelty(twin.states(visited[:, keep[0]])).mean(1).sum())
    shaper.update(make_batch(visited))
    for ours, theirs in zip(shaper.predictor.parameters(), twin.predictor.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


def test_the_bonus_is_the_error_over_the_spread_and_fades_as_the_predictor_learns() -> None:
    shaper, visited, _ = ready(weight=2.0)
    batch = make_batch(visited)
    shaper.update(batch)
    for t in range(100):
        shaper.observe(make_step(visited[:, t : t + 1]))
    scale: Any = shaper.scale
    with torch.no_grad():
        x = shaper.moments.standardise(visited, 5.0)
        expected = 2.0 * (shaper.predictor(x) - shaper.target(x)).square().mean(-1) / scale.moments.var.sqrt()
    torch.testing.assert_close(shaper.shape(batch), expected.float(), rtol=1e-5, atol=0)
    paid = [float(shaper.shape(batch).mean())]
    for _ in range(3):
        for _ in range(20):
            shaper.update(batch)
        paid.append(float(shaper.shape(batch).mean()))
    assert paid == sorted(paid, reverse=True)
