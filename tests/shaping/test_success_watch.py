from __future__ import annotations

import numpy as np
import pytest

from sasr.shaping.success_watch import ENOUGH, SuccessWatch


def warnings(watch: SuccessWatch, *, reward: float, terminated: bool, success: bool = False, steps: int = 50) -> int:
    told = [
        watch.observe(np.full((2, 1), reward), np.full((2, 1), terminated), np.full((2, 1), success))
        for _ in range(steps)
    ]
    return sum(1 for text in told if text)


def test_a_task_that_pays_minus_one_and_zero_is_told_once() -> None:
    watch = SuccessWatch()
    assert warnings(watch, reward=-1.0, terminated=False) == 0
    text = ""
    for _ in range(ENOUGH // 2):
        text = watch.observe(np.zeros((2, 1)), np.ones((2, 1), np.bool_))
    assert "-1 to 0" in text
    assert "reward_above=0" in text
    assert warnings(watch, reward=0.0, terminated=True) == 0


@pytest.mark.parametrize("seen", [{"reward": 1.0}, {"reward": -1.0, "success": True}])
def test_after_one_success_nothing_is_told(seen: dict) -> None:
    watch = SuccessWatch()
    assert warnings(watch, terminated=True, steps=1, **seen) == 0
    assert warnings(watch, reward=-1.0, terminated=True) == 0


def test_what_counts_follows_the_shapers_bar() -> None:
    assert warnings(SuccessWatch(reward_above=-0.5), reward=0.0, terminated=True) == 0
    assert warnings(SuccessWatch(reward_above=2.0), reward=1.0, terminated=True) == 1


def test_time_limits_alone_say_nothing() -> None:
    assert warnings(SuccessWatch(), reward=-1.0, terminated=False) == 0
