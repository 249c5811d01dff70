"""Rollout buffers inside Stable-Baselines3's PPO and A2C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize

from sasr import SASR
from sasr.integrations.sb3 import ShapedDictRolloutBuffer, ShapedRolloutBuffer, ShapingCallback
from tests.conftest import box
from tests.integrations.corridor import POLICIES, Corridor, make_model, shaped_rollouts, trained, weights


@pytest.mark.parametrize(
    ("algorithm", "kind", "normalise"),
    [("PPO", "box", True), ("PPO", "dict", True), ("A2C", "dict", False), ("A2C", "discrete", False)],
)
def test_spaces_and_vecnormalize(algorithm: str, kind: str, normalise: bool) -> None:
    env = make_vec_env(lambda: Corridor(kind), 2, seed=0)
    keys = ["observation"] if kind == "dict" else None
    env = VecNormalize(env, norm_obs_keys=keys) if normalise else env
    model = trained(algorithm, env, steps=192, policy=POLICIES.get(kind, "MlpPolicy"),
                    **shaped_rollouts(SASR(retention=1.0)))  # fmt: skip
    buffer = model.rollout_buffer
    assert isinstance(buffer, ShapedDictRolloutBuffer if kind == "dict" else ShapedRolloutBuffer)
    states = buffer.shaper.evidence.store.states[: int(buffer.shaper.evidence.store.size)]
    assert len(states) > 0
    if kind != "discrete":
        # The kernel sees the environment's own states, whatever VecNormalize makes of them: time is a whole number.
        assert torch.equal(states[:, 1].round(), states[:, 1])


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_weight_zero_is_plain_on_policy_learning_bit_for_bit(algorithm: str) -> None:
    def run(**options: Any) -> torch.Tensor:
        return weights(trained(algorithm, make_vec_env(Corridor, 2, seed=0), steps=128, **options))

    plain = run()
    assert torch.equal(plain, run(**shaped_rollouts({"name": "rnd", "weight": 0.0})))
    assert not torch.equal(plain, run(**shaped_rollouts(SASR())))


def test_shaping_enters_the_advantages_and_leaves_the_rewards() -> None:
    """A bonus of c on every step raises an advantage by c·Σ(γλ)^t over what is left of its episode."""
    always = SASR("paper", reward_weight=1.0, reward_min=0.25, reward_max=0.25)
    buffers = []
    for options in ({}, shaped_rollouts(always)):
        model = make_model("A2C", Corridor(), n_steps=30, gamma=0.8, gae_lambda=0.9, **options)
        collected: dict[str, Any] = {}

        def keep(local: dict[str, Any], _: Any, model: Any = model, collected: dict[str, Any] = collected) -> bool:
            collected["dones"] = [*collected.get("dones", []), bool(local["dones"][0])]
            return True

        model.learn(30, callback=keep)
        buffers.append((model.rollout_buffer, collected["dones"]))
    (plain, dones), (ours, same_dones) = buffers
    assert dones == same_dones
    assert any(dones)
    left, raised = 0, np.zeros(30)
    for t in reversed(range(30)):
        left = 1 if dones[t] else left + 1
        raised[t] = 0.25 * (1 - 0.72**left) / (1 - 0.72)
    np.testing.assert_allclose(ours.advantages.reshape(-1) - plain.advantages.reshape(-1), raised, rtol=1e-4)
    assert np.array_equal(ours.rewards, plain.rewards)


@pytest.mark.parametrize("consolation", [0.0, 0.5])
@pytest.mark.parametrize("normalise", [False, True])
def test_the_shaper_observes_the_environments_rewards_and_ends(consolation: float, normalise: bool) -> None:
    """At a time limit Stable-Baselines3 adds a value to the reward before the buffer gets it."""
    env: Any = make_vec_env(lambda: Corridor(consolation=consolation, length=2.0), 2, seed=0)
    env = VecNormalize(env, norm_reward=False) if normalise else env
    model = trained("PPO", env, steps=128, n_steps=64, **shaped_rollouts())
    steps = model.rollout_buffer.steps
    reward, terminated, truncated, after = (
        torch.cat([getattr(step, name)[0] for step in steps])
        for name in ("reward", "terminated", "truncated", "next_obs")
    )
    assert truncated.any()
    torch.testing.assert_close(reward[truncated], torch.full_like(reward[truncated], consolation), rtol=0, atol=1e-6)
    assert torch.equal(reward[~truncated] > 0.0, terminated[~truncated])
    if consolation == 0.0:
        assert (reward[truncated] == 0.0).all()
    assert torch.equal(after[truncated, 1], torch.full_like(after[truncated, 1], 20.0))  # not the next episode's first


def test_callback_logs_shaping(tmp_path: Path) -> None:
    model = make_model("PPO", **shaped_rollouts("rnd"))
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(96, callback=ShapingCallback())
    header = (tmp_path / "progress.csv").read_text().splitlines()[0]
    for name in ("bonus_mean", "bonus_std", "prediction_error"):
        assert f"shaping/{name}" in header


def test_what_the_environment_calls_a_success_is_in_the_rollout() -> None:
    # From a start beyond its end, every step of the corridor succeeds.
    model = trained("PPO", Corridor(length=-9.0, costs=True), steps=64, **shaped_rollouts())
    batch = model.rollout_buffer.rollout
    assert batch.success.all()
    assert torch.equal(batch.success, batch.terminated)


def test_a_rollout_that_was_collected_elsewhere_is_refused() -> None:
    buffer = ShapedRolloutBuffer(2, box(2), box(1), device="cpu")
    for _ in range(2):
        buffer.add(np.zeros((1, 2)), np.zeros((1, 1)), np.zeros(1), np.zeros(1), torch.zeros(1), torch.zeros(1))
    with pytest.raises(RuntimeError, match="observed 0 of 2 steps"):
        buffer.compute_returns_and_advantage(torch.zeros(1), np.array([True]))
