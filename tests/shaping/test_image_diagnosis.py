"""On images the doctor judges by what it can check: visits of the agent's place, or what follows there."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import pytest

from sasr import SASR, diagnose, diagnose_images
from sasr.experience.random_rollout import random_rollout
from sasr.shaping.image_diagnosis import ImageDiagnosis, diagnoses_images
from tests.evidence.small_world import SmallWorld


def judge(steps: int = 1500, updates: int = 250, **world: bool) -> ImageDiagnosis:
    return diagnose_images(random_rollout(SmallWorld(**world), steps), SASR(), updates=updates)


def test_counts_that_follow_the_agents_place_are_signal() -> None:
    found = judge()
    assert (found.verdict, found.stored, found.cells) == ("signal", 1250, 81)
    assert found.visits > 0.5
    assert found.action_loss < math.log(5)


def test_an_agent_that_is_not_in_the_image_makes_noise() -> None:
    found = judge(visible=False, updates=60)
    assert found.verdict == "noise"
    assert found.visits < 0.5
    assert "do not follow the visits" in found.reason


def test_without_a_known_place_rewards_decide() -> None:
    assert judge(tells_place=False, rewards=True).verdict == "signal"
    unseen = judge(tells_place=False, rewards=True, visible=False, updates=60)
    assert max(unseen.explained.values()) < 0.3


def test_with_nothing_to_check_against_the_verdict_is_unknown() -> None:
    found = judge(steps=300, updates=5, tells_place=False)
    assert found.verdict == "unknown"
    assert math.isnan(found.visits)


def test_the_same_seed_says_the_same() -> None:
    assert judge(steps=300, updates=5) == judge(steps=300, updates=5)


def test_it_is_for_images_whose_places_are_counted() -> None:
    images = random_rollout(SmallWorld(), 100)
    vectors = random_rollout(gym.make("CartPole-v1"), 100)
    assert diagnoses_images(images, SASR())
    assert not diagnoses_images(images, SASR("paper"))
    assert not diagnoses_images(vectors, SASR())
    with pytest.raises(ValueError, match="diagnose_images"):
        diagnose(images, SASR())
    with pytest.raises(ValueError, match="diagnose"):
        diagnose_images(vectors)


@pytest.mark.parametrize("steps", [30])
def test_too_few_images_are_refused(steps: Any) -> None:
    with pytest.raises(ValueError, match="30 images are too few"):
        diagnose_images(SmallWorld(), steps=steps)
