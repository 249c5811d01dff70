"""What the tests share: made-up transitions and batches, and one real run that is small."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

import sasr
from pages.chromium import CHROMIUM, chromium
from sasr import SASR, Batch, Host, Transition, api
from sasr.agents import SacConfig
from sasr.randomness import MemberStreams
from sasr.shaping.beta import beta_mean
from sasr.training import TrainConfig


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    # The suite runs two processes on two cores; more threads only wait for each other.
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _hears_ctrl_c() -> None:
    # A shell starts background jobs deaf to Ctrl-C, and so would be all that the tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    # A test that draws from the global generators draws the same numbers every time, in whatever order tests run.
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; without it the test is skipped."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with chromium() as started:
        yield started


def box(k: int) -> gym.spaces.Box:
    return gym.spaces.Box(-np.inf, np.inf, (k,), np.float32)


def make_step(
    obs: Tensor,
    *,
    reward: float | list[list[float]] = 0.0,
    terminated: bool | list[list[bool]] = False,
    truncated: bool | list[list[bool]] = False,
    **fields: Tensor,
) -> Transition:
    """A transition of obs (P, E, k); scalars hold for every environment."""
    shape = obs.shape[:2]
    return Transition(
        obs=obs,
        action=torch.zeros(*shape, 1),
        reward=torch.as_tensor(reward, dtype=torch.float32).expand(shape).clone(),
        next_obs=obs,
        terminated=torch.as_tensor(terminated).expand(shape).clone(),
        truncated=torch.as_tensor(truncated).expand(shape).clone(),
        **fields,
    )


def make_batch(obs: Tensor, *, reward: float = 0.0, terminated: bool = False) -> Batch:
    shape = obs.shape[:2]
    return Batch(obs, torch.zeros(*shape, 1), torch.full(shape, reward), obs, torch.full(shape, terminated))


@pytest.fixture
def bound() -> Callable[..., SASR]:
    """A function that makes a bound shaper: bound(preset, k=…, seeds=…, envs=…, **options)."""

    def make(preset: str = "auto", *, k: int = 2, seeds: tuple[int, ...] = (0,), envs: int = 1, **options: Any) -> SASR:
        host_options: dict[str, Any] = {name: options.pop(name) for name in ("replay", "discount") if name in options}
        shaper = SASR(preset, **options)
        shaper.bind(Host(observation_space=box(k), action_space=box(1), seeds=seeds, envs=envs, **host_options))
        return shaper

    return make


@pytest.fixture
def mean_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """SASR takes the mean of each success rate and not a draw: what it adds can then be computed by hand."""

    def mean(n_success: Tensor, n_failure: Tensor, streams: MemberStreams) -> Tensor:
        return beta_mean(n_success, n_failure)

    monkeypatch.setattr("sasr.shaping.sasr.beta_draw", mean)


TINY = SacConfig(hidden=(8, 8), burn_in=30, batch_size=16)


def settings(**changes: Any) -> TrainConfig:
    plain: dict[str, Any] = {
        "task": "Pendulum-v1",
        "seeds": (3, 5),
        "steps": 450,
        "workers": 0,
        "eval_every": 150,
        "log_every": 50,
    }
    return TrainConfig(**(plain | {"eval_episodes": 2, "agent": "sac", "agent_config": TINY} | changes))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> sasr.Run:
    """Two seeds of Pendulum with everything recorded; not to be changed."""
    return api.start(settings(), out=tmp_path_factory.mktemp("runs") / "pendulum")


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., sasr.Run]:
    """A function that makes another run: started("name", steps=…, …)."""

    def make(name: str, **changes: Any) -> sasr.Run:
        return api.start(settings(**changes), out=tmp_path / name, events=False)

    return make
