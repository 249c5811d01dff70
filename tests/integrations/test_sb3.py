from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sasr import SASR
from sasr.integrations.sb3 import (
    SASRCallback,
    SASRDictReplayBuffer,
    SASRDictRolloutBuffer,
    SASRReplayBuffer,
    SASRRolloutBuffer,
)
from tests.conftest import box, make_step

SMALL = {"net_arch": [16, 16]}  # Stable-Baselines3 writes into the dict it is given: hand out copies


class Corridor(gym.Env):
    """Walk right to be paid 1 and end; give up after 20 steps. Observations in any of the spaces we support."""

    def __init__(self, kind: str = "box", discrete: bool = False) -> None:
        box = gym.spaces.Box(-30, 30, (2,), np.float32)
        self.kind, self.discrete = kind, discrete
        self.observation_space = {
            "box": box,
            "double": gym.spaces.Box(-30, 30, (2,), np.float64),
            "dict": gym.spaces.Dict(observation=box, goal=box),
            "image": gym.spaces.Box(0, 255, (1, 36, 36), np.uint8),
        }[kind]
        self.action_space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-1, 1)), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += float(np.asarray(action).item()) * 2 - 1 if self.discrete else float(np.asarray(action).item())
        self.t += 1
        won = self.x > 3
        return self._obs(), float(won), won, not won and self.t >= 20, {}

    def _obs(self) -> Any:
        state = np.array([self.x, self.t], np.float32)
        if self.kind == "dict":
            return {"observation": state, "goal": np.full(2, 3, np.float32)}
        if self.kind == "image":
            return np.full((1, 36, 36), np.clip(self.x * 10 + 128, 0, 255), np.uint8)
        return state.astype(self.observation_space.dtype)


def weights(model: BaseAlgorithm) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten().float() for tensor in model.policy.state_dict().values()])


def sac(env: Any = None, *, steps: int = 250, callback: Any = None, **options: Any) -> SAC:
    options = {
        "policy": "MlpPolicy",
        "learning_starts": 50,
        "batch_size": 32,
        "policy_kwargs": dict(SMALL),
        "seed": 0,
    } | options
    model = SAC(env=env or Corridor(), **options)
    return model.learn(steps, callback=callback)


def shaped(shaper: Any = "auto", **kwargs: Any) -> dict[str, Any]:
    return {"replay_buffer_class": SASRReplayBuffer, "replay_buffer_kwargs": {"shaper": shaper, **kwargs}}


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("preset", ["auto", "paper"])
def test_weight_zero_is_plain_sac_bit_for_bit_after_500_updates(n_envs: int, preset: str) -> None:
    def run(**options: Any) -> torch.Tensor:
        env = make_vec_env(Corridor, n_envs, seed=0)
        model = sac(env, steps=50 + 500 * n_envs, gradient_steps=1, train_freq=1, **options)
        assert model._n_updates >= 499
        return weights(model)

    plain = run()
    assert torch.equal(plain, run(**shaped(SASR(preset, reward_weight=0.0))))
    assert not torch.equal(plain, run(**shaped(SASR(preset))))


def test_weight_zero_is_plain_sac_under_vecnormalize() -> None:
    def run(**options: Any) -> torch.Tensor:
        return weights(sac(VecNormalize(make_vec_env(Corridor, 2, seed=0)), steps=300, **options))

    assert torch.equal(run(), run(**shaped(SASR(reward_weight=0.0))))


@pytest.mark.parametrize("kind", ["box", "double", "dict", "image"])
@pytest.mark.parametrize("n_envs", [1, 2])
def test_observation_kinds(kind: str, n_envs: int) -> None:
    env = make_vec_env(lambda: Corridor(kind), n_envs, seed=0)
    policy = {"dict": "MultiInputPolicy", "image": "CnnPolicy"}.get(kind, "MlpPolicy")
    model = sac(env, steps=90, policy=policy, buffer_size=500, **shaped())
    buffer = model.replay_buffer
    assert isinstance(buffer, SASRDictReplayBuffer if kind == "dict" else SASRReplayBuffer)
    assert int(buffer.shaper.evidence.estimator.size.sum()) > 0
    assert buffer.shaper.width == {"dict": 4, "image": 36 * 36}.get(kind, 2)


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG, DQN])
def test_off_policy_algorithms(algorithm: type) -> None:
    env = Corridor(discrete=algorithm is DQN)
    model = algorithm("MlpPolicy", env, learning_starts=50, policy_kwargs=dict(SMALL), buffer_size=500, **shaped())
    model.learn(150, callback=SASRCallback())
    assert int(model.replay_buffer.shaper.evidence.estimator.size.sum()) > 0


def test_stored_rewards_are_the_environments() -> None:
    buffer = sac(steps=300, **shaped(SASR("paper", retention=1.0))).replay_buffer
    stored = buffer.rewards.copy()
    assert set(np.unique(stored)) <= {0.0, 1.0}
    sampled = buffer.sample(200).rewards
    assert not set(sampled.unique().tolist()) <= {0.0, 1.0}
    assert np.array_equal(buffer.rewards, stored)


def test_sampled_reward_is_stored_reward_plus_bonus() -> None:
    """With the mean form nothing is random but the slots, so the sum can be checked slot by slot."""
    buffer = sac(steps=300, **shaped(SASR("paper", retention=1.0, sample="mean"))).replay_buffer
    np.random.seed(3)
    slots = np.random.randint(0, buffer.pos, size=64)
    np.random.seed(3)
    sample = buffer.sample(64)
    batch = buffer.last_batch
    assert torch.equal(batch.reward[0], torch.tensor(buffer.rewards[slots, 0]))
    torch.testing.assert_close(sample.rewards[:, 0], batch.reward[0] + buffer.shaper.shape(batch)[0])


def test_timeouts_are_not_terminations_in_the_batch() -> None:
    buffer = sac(steps=400, **shaped()).replay_buffer
    assert buffer.timeouts.sum() > 0
    ends = buffer.dones[: buffer.pos, 0] * (1 - buffer.timeouts[: buffer.pos, 0])
    buffer.sample(2000)
    won = buffer.last_batch.reward > 0
    assert torch.equal(buffer.last_batch.terminated, won)  # in this task only winning ends an episode
    assert ends.sum() == (buffer.rewards > 0).sum()


def test_authors_preset_stores_truncation_as_terminal() -> None:
    buffer = sac(steps=300, **shaped("authors")).replay_buffer
    assert not buffer.handle_timeout_termination
    assert buffer.dones.sum() > 0
    assert buffer.timeouts.sum() == 0


@pytest.mark.parametrize("storage", ["own", "flags"])
def test_saved_replay_buffer_keeps_its_evidence(storage: str, tmp_path: Path) -> None:
    model = sac(steps=300, **shaped({"preset": "auto", "storage": storage}))
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    before = {k: v.clone() for k, v in model.replay_buffer.shaper.state_dict().items()}
    fresh = sac(steps=1, **shaped({"preset": "auto", "storage": storage}))
    fresh.load_replay_buffer(tmp_path / "buffer.pkl")
    after = fresh.replay_buffer.shaper.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    np.random.seed(0)
    mine = model.replay_buffer.sample(32).rewards
    np.random.seed(0)
    assert torch.equal(mine, fresh.replay_buffer.sample(32).rewards)
    fresh.learn(60, reset_num_timesteps=False)


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG, DQN, PPO, A2C])
def test_saved_models_load_with_and_without_env_and_learn_on(algorithm: type, tmp_path: Path) -> None:
    on_policy = algorithm in (PPO, A2C)

    def corridor() -> Corridor:
        return Corridor(discrete=algorithm is DQN)

    def learned(name: str, callback: Any = None, **options: Any) -> BaseAlgorithm:
        options |= {"n_steps": 50} if on_policy else {"buffer_size": 500, "learning_starts": 50}
        model = algorithm("MlpPolicy", corridor(), policy_kwargs=dict(SMALL), **options)
        model.learn(150, callback=callback).save(tmp_path / name)
        return model

    shaper = SASR("auto", retention=0.5)
    kind = "rollout" if on_policy else "replay"
    buffer_class = SASRRolloutBuffer if on_policy else SASRReplayBuffer
    options = {f"{kind}_buffer_class": buffer_class, f"{kind}_buffer_kwargs": {"shaper": shaper}}
    model = learned("model.zip", SASRCallback(), **options)
    assert shaper.host is None
    learned("plain.zip")
    assert (tmp_path / "model.zip").stat().st_size < (tmp_path / "plain.zip").stat().st_size + 10_000

    alone = algorithm.load(tmp_path / "model.zip", device="cpu")
    obs = np.zeros((4, 2), np.float32)
    assert np.array_equal(alone.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    further = algorithm.load(tmp_path / "model.zip", env=corridor(), device="cpu")
    further.learn(100, callback=SASRCallback(), reset_num_timesteps=False)
    assert getattr(further, f"{kind}_buffer").shaper.config.retention == 0.5
    assert not torch.equal(weights(further), weights(model))


@pytest.mark.parametrize("storage", ["own", "flags"])
def test_evidence_follows_the_buffer_onto_another_device(storage: str) -> None:
    buffer = sac(steps=300, **shaped({"storage": storage})).replay_buffer
    before = {name: tensor.clone() for name, tensor in buffer.shaper.state_dict().items()}
    buffer.device = torch.device("cpu", 0)  # what load_replay_buffer does where the model is elsewhere
    assert buffer.shaper.host.device == torch.device("cpu", 0)
    after = buffer.shaper.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert torch.isfinite(buffer.sample(16).rewards).all()


def test_one_shaper_serves_several_models() -> None:
    shaper = SASR("auto")
    first, second = (sac(steps=80, **shaped(shaper)).replay_buffer.shaper for _ in range(2))
    assert first is not second
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_flags_in_a_ring_that_wraps_count_only_what_is_still_there(kind: str) -> None:
    env = make_vec_env(lambda: Corridor(kind), 2, seed=0)
    policy = "MultiInputPolicy" if kind == "dict" else "MlpPolicy"
    shaper = SASR("paper", storage="flags", retention=1.0, bandwidth=1.0)
    model = sac(env, steps=700, policy=policy, buffer_size=200, **shaped(shaper))
    evidence = model.replay_buffer.shaper.evidence
    size = int(evidence.estimator.size.sum())
    assert 100 < size <= 200
    query = torch.randn(1, 20, model.replay_buffer.shaper.width)
    streamed = evidence.raw(query)
    evidence.rebuild(0)
    torch.testing.assert_close(streamed, evidence.raw(query), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize("kind", ["box", "dict"])
@pytest.mark.parametrize("normalise", [False, True])
def test_on_policy_algorithms(algorithm: type, kind: str, normalise: bool) -> None:
    env = make_vec_env(lambda: Corridor(kind), 2, seed=0)
    env = VecNormalize(env) if normalise else env
    policy = "MultiInputPolicy" if kind == "dict" else "MlpPolicy"
    model = algorithm(policy, env, n_steps=32, rollout_buffer_class=SASRRolloutBuffer, policy_kwargs=dict(SMALL))
    model.learn(300, callback=SASRCallback())
    buffer = model.rollout_buffer
    assert isinstance(buffer, SASRDictRolloutBuffer if kind == "dict" else SASRRolloutBuffer)
    states = buffer.shaper.evidence.store.states[: int(buffer.shaper.evidence.store.size)]
    assert len(states) > 0
    # The kernel sees the environment's own states, whatever VecNormalize makes of them: the time is a whole number.
    assert torch.equal(states[:, 1].round(), states[:, 1])


def rollout_run(shaper: SASR | None, algorithm: type = PPO) -> tuple[torch.Tensor, Any]:
    options = {"rollout_buffer_class": SASRRolloutBuffer, "rollout_buffer_kwargs": {"shaper": shaper}} if shaper else {}
    env = make_vec_env(Corridor, 2, seed=0)
    model = algorithm("MlpPolicy", env, n_steps=32, seed=0, policy_kwargs=dict(SMALL), **options)
    model.learn(200, callback=SASRCallback() if shaper else None)
    return weights(model), model.rollout_buffer


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_weight_zero_is_plain_on_policy_learning_bit_for_bit(algorithm: type) -> None:
    plain, _ = rollout_run(None, algorithm)
    assert torch.equal(plain, rollout_run(SASR(reward_weight=0.0), algorithm)[0])
    assert not torch.equal(plain, rollout_run(SASR(), algorithm)[0])


def test_shaping_enters_the_advantages_and_leaves_the_rewards() -> None:
    """A bonus of c on every step raises an advantage by c·Σ(γλ)^t over what is left of its episode."""
    buffer = SASRRolloutBuffer(
        5, box(2), box(1), device="cpu", gae_lambda=0.9, gamma=0.8,
        shaper=SASR("paper", reward_weight=1.0, reward_min=0.25, reward_max=0.25),
    )  # fmt: skip
    starts = [1.0, 0.0, 0.0, 1.0, 0.0]  # episodes of 3 and of 2 steps
    for t in range(5):
        obs = np.full((1, 2), t, np.float32)
        buffer.add(obs, np.zeros((1, 1)), np.array([t == 2]), np.array([starts[t]]), torch.zeros(1), torch.zeros(1))
        buffer.report(make_step(torch.tensor(obs)[None], reward=float(t == 2), terminated=t in (2, 4)))
    stored = buffer.rewards.copy()
    buffer.compute_returns_and_advantage(torch.zeros(1), np.array([True]))
    left = np.array([3, 2, 1, 2, 1])
    raised = 0.25 * (1 - 0.72**left) / (1 - 0.72)
    plain = np.array([0.72**2, 0.72, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(buffer.advantages[:, 0], plain + raised, rtol=1e-5)
    assert np.array_equal(buffer.rewards, stored)


def test_a_rollout_buffer_without_the_callback_says_what_to_pass() -> None:
    model = PPO("MlpPolicy", Corridor(), n_steps=32, rollout_buffer_class=SASRRolloutBuffer)
    with pytest.raises(RuntimeError, match=r"pass callback=SASRCallback\(\) to learn"):
        model.learn(64)


@pytest.mark.parametrize("on_policy", [False, True])
def test_callback_logs_shaping_and_leaves_the_return_the_environments(on_policy: bool, tmp_path: Path) -> None:
    if on_policy:
        model: Any = PPO("MlpPolicy", Corridor(), n_steps=64, rollout_buffer_class=SASRRolloutBuffer)
    else:
        model = SAC(
            "MlpPolicy", Corridor(), learning_starts=50, policy_kwargs=dict(SMALL), **shaped(SASR(reward_weight=50.0))
        )
    model.set_logger(configure(str(tmp_path), ["tensorboard"]))
    model.learn(300, callback=SASRCallback(), log_interval=1)
    events = EventAccumulator(str(tmp_path)).Reload()
    tags = events.Tags()["scalars"]
    for name in (
        "bonus_mean",
        "bonus_std",
        "retained_success",
        "retained_failure",
        "bandwidth",
        "n_success",
        "clamped",
    ):
        assert f"shaping/{name}" in tags
    returns = [event.value for event in events.Scalars("rollout/ep_rew_mean")]
    assert all(0.0 <= value <= 1.0 for value in returns)


def test_callback_warns_when_the_discounts_differ_and_refuses_a_plain_buffer() -> None:
    with pytest.warns(UserWarning, match=r"put discount=0.9 into replay_buffer_kwargs"):
        sac(steps=10, gamma=0.9, callback=SASRCallback(), **shaped())
    with pytest.raises(TypeError, match="pass replay_buffer_class=SASRReplayBuffer"):
        sac(steps=10, callback=SASRCallback())


def test_shapers_can_be_named_as_a_configuration_file_would() -> None:
    model = sac(steps=60, **shaped({"preset": "paper", "retention": 0.5}))
    assert model.replay_buffer.shaper.config.retention == 0.5
    with pytest.raises(ValueError, match="did you mean 'auto'"):
        sac(steps=1, **shaped("aut"))


def test_a_refused_step_is_not_stored() -> None:
    buffer = sac(steps=60, **shaped()).replay_buffer
    position, rewards = buffer.pos, buffer.rewards.copy()
    obs = np.array([[np.nan, 0.0]], np.float32)
    with pytest.raises(ValueError, match="obs of seed "):
        buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    assert buffer.pos == position
    assert np.array_equal(buffer.rewards, rewards)


def test_settings_that_cannot_work_together_are_refused() -> None:
    with pytest.raises(ValueError, match="needs optimize_memory_usage=False"):
        sac(
            optimize_memory_usage=True,
            **shaped(SASR("paper", storage="flags"), handle_timeout_termination=False),
        )
    with pytest.raises(ValueError, match="must tell a time limit from an end"):
        sac(optimize_memory_usage=True, **shaped(SASR("auto"), handle_timeout_termination=False))
    sac(steps=80, optimize_memory_usage=True, **shaped(SASR("paper"), handle_timeout_termination=False))


def test_discrete_observations_are_refused_with_the_spaces_that_work() -> None:
    with pytest.raises(TypeError, match="use Box, MultiBinary, or a Dict"):
        DQN("MlpPolicy", "FrozenLake-v1", **shaped())
