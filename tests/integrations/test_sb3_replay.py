"""Replay buffers inside Stable-Baselines3: what is stored, what is sampled, what is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize

from sasr import SASR
from sasr.integrations.sb3 import (
    SASRReplayBuffer,
    SASRRolloutBuffer,
    ShapedDictReplayBuffer,
    ShapedReplayBuffer,
    ShapingCallback,
)
from tests.conftest import box
from tests.integrations.corridor import ALGORITHMS, POLICIES, SPACES, Corridor, make_model, shaped, trained, weights

ALWAYS = SASR("paper", reward_weight=1.0, reward_min=0.25, reward_max=0.25)
"""A bonus of 0.25 for every step."""


@pytest.mark.parametrize(("n_envs", "preset"), [(1, "auto"), (3, "paper")])
def test_weight_zero_is_plain_sac_bit_for_bit(n_envs: int, preset: str) -> None:
    def run(**options: Any) -> torch.Tensor:
        return weights(trained(env=make_vec_env(Corridor, n_envs, seed=0), steps=80 * n_envs, **options))

    plain = run()
    assert torch.equal(plain, run(**shaped(SASR(preset, reward_weight=0.0))))
    assert not torch.equal(plain, run(**shaped(SASR(preset))))


def test_weight_zero_is_plain_sac_under_vecnormalize_with_dicts() -> None:
    def run(**options: Any) -> torch.Tensor:
        env = VecNormalize(make_vec_env(lambda: Corridor("dict"), 2, seed=0), norm_obs_keys=["observation"])
        return weights(trained(env=env, policy="MultiInputPolicy", **options))

    assert torch.equal(run(), run(**shaped(SASR(reward_weight=0.0))))


def test_what_the_environment_calls_a_success_is_sampled_and_survives_saving(tmp_path: Path) -> None:
    model = trained(steps=300, env=Corridor(length=1.5, costs=True), **shaped())
    model.save_replay_buffer(tmp_path / "buffer")
    model.load_replay_buffer(tmp_path / "buffer")
    model.replay_buffer.sample(500)
    batch = model.replay_buffer.last_batch
    assert batch.success.any()
    assert torch.equal(batch.success, batch.terminated)
    assert not torch.equal(batch.success, batch.reward > 0.0)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("shaper", ["sasr", "gfa_rfe"])  # of the shapers that ask the policy, and of the others
def test_observation_spaces(kind: str, shaper: str) -> None:
    env = make_vec_env(lambda: Corridor(kind), 2, seed=0)
    model = trained(env=env, steps=60, policy=POLICIES.get(kind, "MlpPolicy"), buffer_size=100, **shaped(shaper))
    buffer = model.replay_buffer
    assert isinstance(buffer, ShapedDictReplayBuffer if kind == "dict" else ShapedReplayBuffer)
    assert buffer.last_batch is not None
    assert buffer.last_bonus is not None
    state = {"dict": (5,), "image": (1, 36, 36), "discrete": (61,), "multidiscrete": (82,), "multibinary": (4,)}
    assert buffer.last_batch.obs.shape[2:] == state.get(kind, (2,))
    assert torch.isfinite(buffer.last_bonus).all()
    if kind in ("discrete", "multidiscrete"):
        entries = buffer.last_batch.obs.sum(-1)
        assert torch.equal(entries, torch.full_like(entries, 1.0 if kind == "discrete" else 2.0))


@pytest.mark.usefixtures("mean_rates")
def test_stored_rewards_are_the_environments_and_samples_add_the_bonus() -> None:
    buffer = trained(steps=200, **shaped(SASR("paper", retention=1.0))).replay_buffer
    stored = buffer.rewards.copy()
    np.random.seed(3)
    slots = np.random.randint(0, buffer.pos, size=64)
    np.random.seed(3)
    sample = buffer.sample(64)
    batch = buffer.last_batch
    assert torch.equal(batch.reward[0], torch.tensor(buffer.rewards[slots, 0]))
    bonus = buffer.shaper.shape(batch)[0]
    assert bonus.abs().max() > 0.0
    torch.testing.assert_close(sample.rewards[:, 0], batch.reward[0] + bonus)
    assert np.array_equal(buffer.rewards, stored)
    assert set(np.unique(stored)) <= {0.0, 1.0}


@pytest.mark.parametrize("normalise", [False, True])
def test_n_step_returns_have_the_bonus_of_every_step_discounted(normalise: bool) -> None:
    """Beside Stable-Baselines3's own n-step buffer with the same steps: an episode's end cuts both off."""
    model = trained(env=VecNormalize(make_vec_env(Corridor, 2, seed=0)), steps=150, buffer_size=120, gamma=0.9)
    source, env = model.replay_buffer, model.get_vec_normalize_env() if normalise else None
    spaces = (source.observation_space, source.action_space)
    plain = NStepReplayBuffer(120, *spaces, device="cpu", n_envs=2, n_steps=3, gamma=0.9)
    ours = ShapedReplayBuffer(120, *spaces, device="cpu", n_envs=2, n_steps=3, gamma=0.9, shaper=ALWAYS)
    for buffer in (plain, ours):
        for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts", "pos", "full"):
            setattr(buffer, name, getattr(source, name))
    assert plain.full
    samples = []
    for buffer in (plain, ours):
        np.random.seed(0)
        samples.append(buffer.sample(500, env))
    expected, sample = samples
    for name in ("observations", "actions", "next_observations", "dones", "discounts"):
        torch.testing.assert_close(getattr(sample, name), getattr(expected, name))
    assert expected.discounts is not None
    bonus = 0.25 * (1.0 - expected.discounts) / (1.0 - 0.9)
    assert isinstance(bonus, torch.Tensor)
    assert len(bonus.unique()) == 3  # windows of one, two and three steps
    torch.testing.assert_close(sample.rewards, expected.rewards + bonus)


def test_timeouts_are_not_terminations_in_the_batch() -> None:
    buffer = trained(steps=300, env=Corridor(length=1.5), **shaped()).replay_buffer
    buffer.sample(2000)
    succeeded = buffer.last_batch.reward > 0
    assert buffer.timeouts.sum() > 0
    assert succeeded.any()
    assert torch.equal(buffer.last_batch.terminated, succeeded)  # in this task only success ends an episode


def test_authors_preset_stores_truncation_as_terminal() -> None:
    buffer = trained(**shaped("authors")).replay_buffer
    assert not buffer.handle_timeout_termination
    assert buffer.dones.sum() > 0
    assert buffer.timeouts.sum() == 0


def test_a_buffer_is_extended_by_the_steps_of_another_with_their_time_limits() -> None:
    """As Stable-Baselines3's own tests do it: each flag of a time limit is an array of one entry."""
    source = trained(steps=60, **shaped("rnd")).replay_buffer
    target = make_model(buffer_size=200, **shaped("rnd")).replay_buffer
    count = source.pos
    infos = [[{"TimeLimit.truncated": row}] for row in source.timeouts[:count]]
    target.extend(*(getattr(source, name)[:count] for name in ("observations", "next_observations", "actions")),
                  source.rewards[:count], source.dones[:count], infos)  # fmt: skip
    assert count > 0
    assert source.timeouts.sum() > 0
    for name in ("observations", "rewards", "dones", "timeouts"):
        assert np.array_equal(getattr(target, name)[:count], getattr(source, name)[:count])


# ------------------------------------------------------------------ seed, γ


def test_the_shapers_seed_and_discount_are_the_models() -> None:
    buffer = make_model(seed=7, gamma=0.9, **shaped()).replay_buffer
    assert buffer.host.seeds == (7,)
    assert buffer.host.discount == buffer.gamma == 0.9
    one, other = (make_model(seed=None, **shaped()).replay_buffer.host.seeds for _ in range(2))
    assert one != other
    assert make_model(**shaped(seed=5)).replay_buffer.host.seeds == (5,)


def test_another_gamma_than_the_models_is_warned_about() -> None:
    with pytest.warns(UserWarning, match=r"gamma=0.5 .* the model's gamma is 0.9"):
        assert make_model(gamma=0.9, **shaped(gamma=0.5)).replay_buffer.host.discount == 0.5


def test_a_dozen_ends_without_a_success_are_warned_about_once() -> None:
    class Hopeless(Corridor):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            obs, *_ = super().step(action)
            return obs, -1.0, self.t == 2, False, {}

    with pytest.warns(UserWarning, match="nothing has counted as a success") as caught:
        trained(env=Hopeless(), steps=60, learning_starts=100, **shaped())
    assert sum("success" in str(warning.message) for warning in caught) == 1


# ------------------------------------------------------------- save and load


@pytest.mark.parametrize("shaper", [{"storage": "own"}, {"storage": "flags"}, "relara"])
def test_saved_replay_buffer_keeps_what_its_shaper_learned(shaper: Any, tmp_path: Path) -> None:
    model = trained(**shaped(shaper))
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    before = {name: tensor.clone() for name, tensor in model.replay_buffer.shaper.state_dict().items()}
    fresh = make_model(**shaped(shaper))
    fresh.load_replay_buffer(tmp_path / "buffer.pkl")
    after = fresh.replay_buffer.shaper.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    rewards = []
    for buffer in (model.replay_buffer, fresh.replay_buffer):
        np.random.seed(0)
        rewards.append(buffer.sample(32).rewards)
    assert torch.equal(*rewards)
    fresh.learn(40, reset_num_timesteps=False)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_saved_models_load_with_and_without_env_and_learn_on(algorithm: str, tmp_path: Path) -> None:
    kind = "rollout" if algorithm in ("PPO", "A2C") else "replay"
    shaper = SASR("auto", retention=0.5)
    buffer_class = SASRReplayBuffer if kind == "replay" else SASRRolloutBuffer
    options = {f"{kind}_buffer_class": buffer_class, f"{kind}_buffer_kwargs": {"shaper": shaper}}
    model, plain = trained(algorithm, steps=64, **options), trained(algorithm, steps=64)
    model.save(tmp_path / "model.zip")
    plain.save(tmp_path / "plain.zip")
    assert shaper.host is None
    assert (tmp_path / "model.zip").stat().st_size < (tmp_path / "plain.zip").stat().st_size + 10_000

    alone = type(model).load(tmp_path / "model.zip", device="cpu")
    obs = np.zeros((4, 2), np.float32)
    assert np.array_equal(alone.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    further = type(model).load(tmp_path / "model.zip", env=model.get_env(), device="cpu")
    further.learn(64, reset_num_timesteps=False)
    assert getattr(further, f"{kind}_buffer").shaper.config.retention == 0.5
    assert not torch.equal(weights(further), weights(model))


@pytest.mark.parametrize("shaper", [{"storage": "own"}, {"storage": "flags"}, "rnd"])
def test_what_was_learned_follows_the_buffer_onto_another_device(shaper: Any) -> None:
    buffer = trained(**shaped(shaper)).replay_buffer
    before = {name: tensor.clone() for name, tensor in buffer.shaper.state_dict().items()}
    buffer.device = torch.device("cpu", 0)  # what load_replay_buffer does where the model is elsewhere
    after = buffer.shaper.state_dict()
    assert buffer.host.device == torch.device("cpu", 0)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert torch.isfinite(buffer.sample(16).rewards).all()


def test_one_shaper_serves_several_models() -> None:
    shaper = SASR("auto")
    first, second = (trained(steps=60, **shaped(shaper)).replay_buffer.shaper for _ in range(2))
    assert first is not second
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_flags_in_a_ring_that_wraps_count_only_what_is_still_there(kind: str) -> None:
    env = make_vec_env(lambda: Corridor(kind), 2, seed=0)
    shaper = SASR("paper", storage="flags", retention=1.0, bandwidth=1.0)
    model = trained(env=env, steps=400, learning_starts=350, policy=POLICIES.get(kind, "MlpPolicy"), buffer_size=120,
                    **shaped(shaper))  # fmt: skip
    evidence = model.replay_buffer.shaper.evidence
    size = int(evidence.estimator.size.sum())
    assert 60 < size <= 120
    query = torch.randn(1, 20, model.replay_buffer.shaper.width)
    streamed = evidence.raw(query)
    evidence.rebuild(0)
    torch.testing.assert_close(streamed, evidence.raw(query), rtol=1e-3, atol=1e-3)


# -------------------------------------------------------------- log, errors


def test_callback_logs_shaping_and_leaves_the_return_the_environments(tmp_path: Path) -> None:
    model = make_model(**shaped(SASR(reward_weight=50.0)))
    model.set_logger(configure(str(tmp_path), ["json"]))
    model.learn(200, callback=ShapingCallback(), log_interval=1)
    logged: dict[str, float] = {}
    for line in (tmp_path / "progress.json").read_text().splitlines():
        logged |= json.loads(line)
    for name in ("bonus_mean", "bonus_std", "retained_success", "retained_failure", "n_success", "clamped"):
        assert f"shaping/{name}" in logged
    assert 0.0 <= logged["rollout/ep_rew_mean"] <= 1.0
    with pytest.raises(TypeError, match="pass replay_buffer_class=ShapedReplayBuffer"):
        trained(steps=10, callback=ShapingCallback())


def test_a_refused_step_is_not_stored() -> None:
    buffer = trained(steps=40, **shaped()).replay_buffer
    position, rewards = buffer.pos, buffer.rewards.copy()
    obs = np.array([[np.nan, 0.0]], np.float32)
    with pytest.raises(ValueError, match="obs of seed "):
        buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    assert buffer.pos == position
    assert np.array_equal(buffer.rewards, rewards)


def test_settings_that_cannot_work_together_are_refused() -> None:
    def make(shaper: Any, **kwargs: Any) -> None:
        ShapedReplayBuffer(100, box(2), box(1), device="cpu", shaper=shaper, **kwargs)

    lean = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    with pytest.raises(ValueError, match="needs optimize_memory_usage=False"):
        make(SASR("paper", storage="flags"), **lean)
    with pytest.raises(ValueError, match="must tell a time limit from an end"):
        make(SASR("auto"), **lean)
    with pytest.raises(NotImplementedError, match="needs optimize_memory_usage=False"):
        make(SASR("paper"), n_steps=3, **lean)
    with pytest.raises(ValueError, match="n_steps=0 must be at least 1"):
        make("rnd", n_steps=0)
    with pytest.raises(TypeError, match="option of the shaper"):
        make("sasr", reward_weight=0.3)
    with pytest.raises(TypeError, match="ShapedHerReplayBuffer"):
        make("sasr", n_sampled_goal=4)
    make(SASR("paper"), **lean)
