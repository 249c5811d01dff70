"""The page's code blocks and the example run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3 import SAC
from stable_baselines3.common.base_class import BaseAlgorithm

from examples import mountain_car_sb3

PAGE = Path(__file__).parents[2] / "docs" / "stable-baselines3.md"


def test_the_pages_code_blocks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[tuple[str, int]] = []

    def learn(self: BaseAlgorithm, steps: int, **options: Any) -> None:
        learned.append((type(self).__name__, steps))

    for algorithm in ("SAC", "PPO"):
        monkeypatch.setattr(f"stable_baselines3.{algorithm}.learn", learn)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    assert learned == [("SAC", 20_000), ("PPO", 20_000)]
    critic = names["NormalisedCritics"]
    assert issubclass(critic, SAC.policy_aliases["MlpPolicy"])
    assert names["hyperparams"]["MountainCarContinuous-v0"]["replay_buffer_class"].__name__ == "ShapedReplayBuffer"


def test_the_example_draws_learning_curves_with_and_without_shaping(tmp_path: Path) -> None:
    mountain_car_sb3.main(steps=2_016, out=tmp_path)
    assert (tmp_path / "mountain_car.png").stat().st_size > 10_000
