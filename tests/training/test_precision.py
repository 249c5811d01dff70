from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch

from sasr import SASR, Host
from sasr.agents import Sac, SacConfig
from sasr.settings import Precision
from sasr.training import OffPolicy
from sasr.training.fast import speed_up
from sasr.training.fast.compiled import has_bf16, products
from tests.conftest import box, make_step


def learned(precision: Precision, updates: int) -> OffPolicy:
    """A learner with 40 random steps and some successes, after a few updates."""
    host = Host(observation_space=box(6), action_space=gym.spaces.Box(-1.0, 1.0, (1,)), seeds=(1, 2))
    agent = Sac(host, SacConfig(hidden=(64, 64), burn_in=32, batch_size=32))
    learner = OffPolicy(host, agent, shaper=SASR(retention=1.0), capacity=100)
    speed_up(learner, "eager", precision)
    generator = torch.Generator().manual_seed(0)
    for number in range(40):
        obs = torch.randn(2, 1, 6, generator=generator)
        learner.store(make_step(obs, reward=float(number % 8 == 0)))
        learner.observe_newest()
    for _ in range(updates):
        learner.update(update_actor=True)
    return learner


def test_bf16_is_refused_where_nothing_supports_it() -> None:
    with pytest.raises(ValueError, match="is for CPUs, but the device is cuda:1; use auto"):
        products("bf16", torch.device("cuda:1"))
    wrong: Any = "fp16"
    with pytest.raises(ValueError, match="precision"):
        products(wrong, torch.device("cpu"))


@pytest.mark.skipif(has_bf16(), reason="needs a processor without bfloat16")
def test_bf16_is_refused_by_a_processor_without_it() -> None:
    with pytest.raises(ValueError, match="use auto"):
        products("bf16", torch.device("cpu"))


@pytest.mark.skipif(not has_bf16(), reason="needs a processor with bfloat16")
def test_bf16_rounds_products_alone() -> None:
    """Bonuses are the same bit for bit, the first update a little different, and all that is kept is float32."""
    exact, rounded = learned("auto", 0), learned("bf16", 0)
    steps = exact.replay.sample_windows(32).steps
    assert torch.equal(exact.shape(steps), rounded.shape(steps))
    assert torch.equal(exact.act(steps.obs), rounded.act(steps.obs))
    exact, rounded = learned("auto", 3), learned("bf16", 3)
    assert torch.get_float32_matmul_precision() == "highest"
    before = exact.agent.state_dict()
    for name, after in rounded.agent.state_dict().items():
        assert after.dtype == before[name].dtype
        if after.is_floating_point():
            torch.testing.assert_close(after, before[name], rtol=0.1, atol=0.02)
    assert any(not torch.equal(before[name], after) for name, after in rounded.agent.state_dict().items())
