"""Counts for images, on a small world drawn as images, where the true visits are known."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from sasr import SASR, Host, check_shaper
from sasr.evidence.places import PlaceCounts, PlaceFeatures
from sasr.shaping.diagnosis import rank_correlation
from tests.conftest import make_batch, make_step
from tests.evidence.small_world import IMAGE, MOVES, PLACES, SIDE, World


def bound(seeds: tuple[int, ...] = (0,), space: Any = IMAGE, actions: Any = None, **options: Any) -> SASR:
    settings: dict[str, Any] = {"retention": 1.0, "background": 0.0}
    shaper = SASR(**(settings | options))
    shaper.bind(Host(observation_space=space, action_space=actions or gym.spaces.Discrete(5), seeds=seeds))
    return shaper


def train(shaper: SASR, world: World, updates: int) -> list[float]:
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(updates):
        index = torch.randint(len(world.places), (1, 64), generator=generator).expand(shaper.bound.members, -1)
        losses.append(float(shaper.update(world.batch(index))["action_loss"].mean()))
    return losses


def test_counts_follow_the_visits_of_what_is_controlled() -> None:
    """The oracle: the true visits of the agent's place. Others move as much as the agent, so pixels do not tell."""
    world, shaper = World(1500), bound()
    shaper.add_trajectory(world.frames.flatten(1), success=False)
    losses = train(shaper, world, 250)
    shaper.evidence.rebuild(0)
    assert losses[-1] < 0.5 * losses[0]

    new = World(400, seed=1)
    visits = np.bincount(world.places, minlength=PLACES**2)[new.places]
    counted = shaper.counts(new.batch(torch.arange(400)[None]))[0]
    assert rank_correlation(counted.sum(-1).numpy(), visits) > 0.8

    of_pixels = bound(images="pixels")
    of_pixels.add_trajectory(world.frames.flatten(1), success=False)
    by_pixels = of_pixels.counts(new.batch(torch.arange(400)[None]))[0]
    assert rank_correlation(counted.sum(-1).numpy(), visits) > rank_correlation(by_pixels.sum(-1).numpy(), visits)


@pytest.mark.usefixtures("mean_rates")
def test_successes_and_failures_are_told_apart_by_the_place() -> None:
    world, shaper = World(1500), bound()
    right = torch.from_numpy(world.places % PLACES >= 2)
    shaper.add_trajectory(world.frames[right].flatten(1), success=True)
    shaper.add_trajectory(world.frames[~right].flatten(1), success=False)
    train(shaper, world, 250)
    shaper.evidence.rebuild(0)
    new = World(400, seed=1)
    rate = shaper.success_rate(new.batch(torch.arange(400)[None]))[0].numpy()
    succeeds = new.places % PLACES >= 2
    assert rate[succeeds].mean() > 0.75
    assert rate[~succeeds].mean() < 0.25


def test_the_sum_is_over_products_of_features_and_an_equal_frame_counts_one() -> None:
    world, shaper = World(60), bound()
    states = world.frames.flatten(1)
    shaper.add_trajectory(states[:50], success=False)
    shaper.evidence.rebuild(0)
    evidence: Any = shaper.evidence
    z = evidence.estimator.features.of_member(0, evidence.normaliser.of_member(0, states))
    assert z.shape == (60, 9 * 9)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(60))
    counted = evidence.raw(states[None])[0, :, 1]
    torch.testing.assert_close(counted, (z @ z[:50].T).sum(1))


def test_learning_moves_no_count_before_the_rebuild() -> None:
    world, shaper = World(100), bound()
    shaper.add_trajectory(world.frames.flatten(1), success=False)
    batch = world.batch(torch.arange(50)[None])
    before = shaper.counts(batch)
    train(shaper, world, 3)
    assert torch.equal(shaper.counts(batch), before)
    shaper.evidence.rebuild(0)
    assert not torch.equal(shaper.counts(batch), before)


def test_a_seed_counts_the_same_alone_and_in_a_population() -> None:
    world, query = World(200), torch.arange(40)[None]
    alone, three = bound((7,)), bound((3, 7, 9))
    for shaper, member in ((alone, 0), (three, 1)):
        shaper.add_trajectory(world.frames.flatten(1), success=False, member=member)
        train(shaper, world, 3)
        shaper.evidence.rebuild(member)
    found = three.counts(world.batch(query.expand(3, -1)))
    torch.testing.assert_close(found[1], alone.counts(world.batch(query))[0], rtol=1e-3, atol=1e-2)
    assert (found[[0, 2]] == 0).all()


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((3, SIDE, SIDE), lambda frames: frames[:, None].expand(-1, 3, -1, -1)),
     ((SIDE, SIDE, 3), lambda frames: frames[..., None].expand(-1, -1, -1, 3))],
)  # fmt: skip
def test_channels_may_stand_first_or_last(shape: tuple[int, ...], layout: Any) -> None:
    world = World(30)
    first = PlaceFeatures(gym.spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8), gym.spaces.Discrete(5))
    found = PlaceFeatures(gym.spaces.Box(0, 255, shape, np.uint8), gym.spaces.Discrete(5))
    states, stacked = (
        x.reshape(30, -1).float() for x in (layout(world.frames), world.frames[:, None].expand(-1, 3, -1, -1))
    )
    assert torch.equal(found.of_member(0, states), first.of_member(0, stacked))


def test_continuous_actions_are_learned_from_too() -> None:
    world, shaper = World(600), bound(actions=gym.spaces.Box(-1.0, 1.0, (2,), np.float32))
    shaper.add_trajectory(world.frames.flatten(1), success=False)
    moves = torch.from_numpy(MOVES[world.actions]).float()
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(150):
        index = torch.randint(600, (1, 64), generator=generator)
        losses.append(float(shaper.update(world.batch(index)._replace(action=moves[index]))["action_loss"][0]))
    assert losses[-1] < 0.6 * losses[0]


def test_a_saved_shaper_goes_on_as_the_first() -> None:
    world, shaper = World(200), bound((0, 1))
    shaper.add_trajectory(world.frames.flatten(1), success=True, member=1)
    train(shaper, world, 3)
    other = bound((0, 1))
    other.load_state_dict(copy.deepcopy(shaper.state_dict()))
    batch = world.batch(torch.arange(64).expand(2, -1))
    assert torch.equal(shaper.update(batch)["action_loss"], other.update(batch)["action_loss"])
    for one in (shaper, other):
        one.evidence.rebuild(1)
    assert torch.equal(shaper.counts(batch), other.counts(batch))


@pytest.mark.parametrize("options", [{}, {"storage": "flags", "burn_in": 5}])
def test_an_image_shaper_keeps_the_contract(options: dict[str, Any]) -> None:
    check_shaper(SASR(**options), IMAGE)


def test_images_choose_it_and_vectors_do_not() -> None:
    assert isinstance(bound().evidence.estimator, PlaceCounts)
    for other in (bound(images="pixels"), bound(space=gym.spaces.Box(-1.0, 1.0, (3,)))):
        assert not isinstance(other.evidence.estimator, PlaceCounts)
    # What lies between two images can't be predicted as one class or as numbers here.
    assert not isinstance(bound(actions=gym.spaces.MultiDiscrete([2, 3])).evidence.estimator, PlaceCounts)


@pytest.mark.parametrize("option", [{"estimator": "squared"}, {"standardise": False}, {"state_action": True}])
def test_settings_of_the_kernel_are_refused_on_images(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(option))}=.* set images='pixels'"):
        bound(**option)
    bound(**option, images="pixels")


@pytest.mark.parametrize("shape", [(3, SIDE, SIDE), (SIDE, 40, 3), (SIDE, SIDE)])
def test_images_of_another_size_or_order_are_refused(shape: tuple[int, ...]) -> None:
    shaper = bound(space=gym.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8))
    expected = rf"shape \({', '.join(map(str, shape))}\), but .* images of \(36, 36, 3\)"
    obs = torch.zeros(1, 1, *shape, dtype=torch.uint8)
    with pytest.raises(ValueError, match=expected):
        shaper.observe(make_step(obs))
    with pytest.raises(ValueError, match=expected):
        shaper.shape(make_batch(obs))


def test_a_vector_is_no_image() -> None:
    with pytest.raises(ValueError, match="two axes of at least 36 pixels"):
        PlaceFeatures(gym.spaces.Box(-1.0, 1.0, (128,)), gym.spaces.Discrete(2))
