"""Every shaper in every algorithm: what the table of docs/stable-baselines3.md promises."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import Tensor

from sasr import SASR, Batch, Host, Transition
from sasr.integrations.sb3 import ShapedHerReplayBuffer, ShapedReplayBuffer, make_shaper
from sasr.randomness import MemberStreams
from sasr.shaping.registry import SHAPERS
from sasr.shaping.rivals.rnd import RND
from tests.conftest import box
from tests.integrations.corridor import ALGORITHMS, Corridor, make_model, shaped, shaped_rollouts, trained, weights

PAGE = Path(__file__).parents[2] / "docs" / "stable-baselines3.md"


def table() -> list[tuple[str, str, bool]]:
    """Shaper, algorithm and whether they go together; an entry of the page's table has several of both."""
    lines = PAGE.read_text().split("<!-- what works with what -->")[1].split("<!-- end -->")[0].strip().splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    cells = []
    for shapers, *marks in rows:
        for algorithms, mark in zip(header[1:], marks, strict=True):
            assert mark in ("yes", "no")
            for shaper, algorithm in product(shapers.split(", "), algorithms.split(", ")):
                cells.append((shaper.strip("`"), algorithm.replace("-", ""), mark == "yes"))
    return cells


def hindsight(shaper: Any, **options: Any) -> Any:
    env = BitFlippingEnv(n_bits=3, continuous=True, max_steps=3)
    return make_model(
        "SAC", env, policy="MultiInputPolicy", learning_starts=12, replay_buffer_class=ShapedHerReplayBuffer,
        replay_buffer_kwargs={"shaper": shaper}, **options,
    )  # fmt: skip


def make(shaper: str, algorithm: str) -> Any:
    if algorithm == "HER":
        return hindsight(shaper)
    if algorithm in ("PPO", "A2C"):
        return make_model(algorithm, n_steps=16, **shaped_rollouts(shaper))
    return make_model(algorithm, learning_starts=12, batch_size=8, **shaped(shaper))


def test_the_table_has_every_shaper_and_algorithm() -> None:
    assert {shaper for shaper, _, _ in table()} == set(SHAPERS)
    assert {algorithm for _, algorithm, _ in table()} == {*ALGORITHMS, "HER"}


@pytest.mark.parametrize(("shaper", "algorithm", "works"), table())
def test_what_works_with_what(shaper: str, algorithm: str, works: bool) -> None:
    if not works:
        with pytest.raises(ValueError, match=r"take (sasr|another)"):
            make(shaper, algorithm)
        return
    model = make(shaper, algorithm).learn(17)
    buffer = model.rollout_buffer if algorithm in ("PPO", "A2C") else model.replay_buffer
    assert isinstance(buffer.shaper, type(SHAPERS[shaper].make()))
    assert torch.isfinite(buffer.last_bonus).all()
    assert torch.isfinite(weights(model)).all()
    assert buffer.last_figures


# ----------------------------------------------------------------- learning

LOSSES: list[tuple[dict[str, Any], str]] = [
    ({"name": "rnd", "hidden": (32,)}, "prediction_error"),
    ({"name": "drnd", "hidden": (32,)}, "prediction_error"),
    ({"name": "explors", "hidden": (32,), "first_states": 0}, "value_loss"),
    ({"name": "relara", "width": 16, "blocks": 1}, "reward_agent_critic_loss"),
]


def falls(losses: list[float]) -> bool:
    return float(np.mean(losses[-10:])) < 0.8 * float(np.mean(losses[:10]))


@pytest.mark.parametrize(("shaper", "figure"), LOSSES, ids=[shaper["name"] for shaper, _ in LOSSES])
def test_shapers_learn_from_what_is_sampled_without_a_callback(shaper: dict[str, Any], figure: str) -> None:
    model = trained(steps=150, env=Corridor(length=1.5), learning_starts=150, **shaped(shaper))
    buffer = model.replay_buffer  # which does not keep its model alive
    losses = []
    for _ in range(150):
        buffer.sample(32)
        losses.append(float(buffer.last_figures[figure]))
    assert falls(losses)


def test_a_shaper_whose_targets_move_learns_too() -> None:
    model = trained(steps=60, learning_starts=60, **shaped({"name": "gfa_rfe", "width": 16}))
    buffer = model.replay_buffer
    before = {name: parameter.clone() for name, parameter in buffer.shaper.named_parameters()}
    buffer.sample(32)
    changed = [name for name, parameter in buffer.shaper.named_parameters() if not torch.equal(parameter, before[name])]
    assert changed


def test_shapers_learn_from_the_minibatches_of_a_rollout() -> None:
    model = trained("PPO", steps=32, **shaped_rollouts({"name": "rnd", "hidden": (32,)}))
    losses = []
    for _ in range(40):
        for _ in model.rollout_buffer.get(16):
            losses.append(float(model.rollout_buffer.last_figures["prediction_error"]))
    assert falls(losses)


# ------------------------------------------------------------- what is given


class Distance:
    """Somebody's own shaper: nothing but the protocol."""

    def bind(self, host: Host) -> None:
        self.host, self.seen, self.updates = host, torch.zeros(()), torch.zeros(())

    def observe(self, step: Transition) -> None:
        self.seen = self.seen + step.obs.shape[1]

    def release(self, slots: Tensor) -> None:
        pass

    def shape(self, batch: Batch) -> Tensor:
        return batch.next_obs[..., 0] * 10.0

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        self.updates = self.updates + 1
        return {"updates": self.updates[None].clone()}

    def state_dict(self) -> Mapping[str, Any]:
        return {"seen": self.seen, "updates": self.updates}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.seen, self.updates = state_dict["seen"], state_dict["updates"]


def test_somebodys_own_shaper_is_copied_observes_shapes_learns_and_is_saved(tmp_path: Path) -> None:
    own = Distance()
    model = trained(steps=60, **shaped(own))
    buffer = model.replay_buffer
    assert not hasattr(own, "host")
    assert buffer.shaper.seen == 60
    assert buffer.shaper.updates == model._n_updates > 0
    sample = buffer.sample(8)
    torch.testing.assert_close(
        sample.rewards[:, 0], buffer.last_batch.reward[0] + 10.0 * sample.next_observations[:, 0]
    )
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    model.load_replay_buffer(tmp_path / "buffer.pkl")
    assert model.replay_buffer.shaper.seen == 60
    assert trained("A2C", steps=64, **shaped_rollouts(own)).rollout_buffer.shaper.seen == 64


def test_shapers_can_be_named_as_a_configuration_file_would() -> None:
    for given, meant in (
        ("authors", SASR("authors")),
        ({"preset": "paper", "retention": 0.5}, SASR("paper", retention=0.5)),
        ({"name": "rnd", "weight": 0.2}, RND(weight=0.2)),
    ):
        shaper = make_shaper(given)
        assert isinstance(shaper, SASR | RND)
        assert shaper.config == meant.config
    used = SASR("paper")
    used.bind(Host(observation_space=box(2), action_space=box(1)))
    unbound = make_shaper(used)
    assert isinstance(unbound, SASR)
    assert unbound.host is None


def test_what_is_no_shaper_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'rnd'"):
        make_shaper("rndd")
    with pytest.raises(ValueError, match="'rosa' was removed"):
        make_shaper("rosa")
    with pytest.raises(ValueError, match="belongs to"):
        make_shaper({"name": "rnd", "retention": 0.5})
    with pytest.raises(TypeError, match=r"an object with the methods of sasr\.RewardShaper"):
        make_shaper(SASR)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no policy to ask"):
        ShapedReplayBuffer(100, box(2), box(1), device="cpu", shaper="relara")


# ------------------------------------------------------------------- policy


OFF_POLICY = [name for name in ALGORITHMS if name not in ("PPO", "A2C")]
ON_DICTS = [name for name in OFF_POLICY if name != "CrossQ"]  # which has no policy for them


@pytest.mark.parametrize(
    ("algorithm", "kind"), [(name, "box") for name in OFF_POLICY] + [(name, "dict") for name in ON_DICTS]
)
def test_asking_the_policy_changes_nothing(algorithm: str, kind: str) -> None:
    discrete = algorithm in ("DQN", "QRDQN")
    env = VecNormalize(
        DummyVecEnv([lambda: Corridor(kind, discrete)]), norm_obs_keys=["observation"] if kind == "dict" else None
    )
    policy_class = "MultiInputPolicy" if kind == "dict" else "MlpPolicy"
    model = trained(algorithm, env, steps=25, policy=policy_class, **shaped("gfa_rfe"))
    buffer = model.replay_buffer
    policy, obs = buffer.host.policy, buffer.last_batch.obs
    before = (weights(model), torch.get_rng_state(), repr(np.random.get_state()))
    model.policy.set_training_mode(True)
    streams = MemberStreams((0,), "test", torch.device("cpu"))
    action = policy.propose(obs, streams)
    again = policy.propose(obs, MemberStreams((0,), "test", torch.device("cpu")))
    other = policy.propose(obs, streams)
    assert all(module.training for module in model.policy.actor.modules()) if not discrete else True
    assert torch.equal(before[0], weights(model))
    assert torch.equal(before[1], torch.get_rng_state())
    assert before[2] == repr(np.random.get_state())
    assert torch.equal(action, again)
    assert discrete or not torch.equal(action, other)
    assert action.shape == (obs.shape[:2] if discrete else (*obs.shape[:2], 1))
    assert action.abs().max() <= 1

    stored = env.normalize_obs(env.get_original_obs())
    best = model.predict(stored, deterministic=True)[0]
    state = torch.as_tensor(buffer.encoder.encode(env.get_original_obs()))[None]
    likelihood = policy.likelihood(state, torch.as_tensor(best).view(1, 1, *model.action_space.shape))
    assert likelihood.item() == pytest.approx(1.0, abs=1e-3)
    assert ((policy.likelihood(obs, action) >= 0) & (policy.likelihood(obs, action) <= 1)).all()


# ---------------------------------------------------------------------- HER


def test_hindsight_relabels_first_and_shapes_then() -> None:
    always = SASR("paper", reward_weight=1.0, reward_min=0.25, reward_max=0.25)
    model = hindsight(always).learn(30)
    ours = model.replay_buffer
    plain = HerReplayBuffer(
        ours.buffer_size, ours.observation_space, ours.action_space, model.get_env(), device="cpu", n_sampled_goal=4
    )
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts", "pos", "full",
                 "ep_start", "ep_length", "_current_ep_start"):  # fmt: skip
        setattr(plain, name, getattr(ours, name))
    samples = []
    for buffer in (plain, ours):
        np.random.seed(0)
        samples.append(buffer.sample(40))
    expected, sample = samples
    torch.testing.assert_close(sample.rewards, expected.rewards + 0.25)
    for key, part in expected.observations.items():
        assert torch.equal(sample.observations[key], part)
    assert torch.equal(ours.last_batch.reward[0], expected.rewards[:, 0])
    goals = ours.encoder.decode(ours.last_batch.obs[0])["desired_goal"]
    assert torch.equal(goals, expected.observations["desired_goal"].float())
    stored_goal = ours.observations["desired_goal"][0, 0]
    assert not (goals == torch.as_tensor(stored_goal)).all(), "no goal was relabelled"


def test_hindsight_says_which_relabelled_steps_are_successes() -> None:
    # Bits are flipped until the goal is there, which ends the episode: rewards are −1, and 0 at the goal.
    model = hindsight("paper").learn(60)
    buffer = model.replay_buffer
    buffer.sample(200)
    reward, success = buffer.last_batch.reward[0], buffer.last_batch.success[0]
    ended = buffer.last_batch.terminated[0]
    assert torch.equal(success, ended & (reward == 0.0))
    assert success.any()
    assert ((reward == 0.0) & ~success).any(), "no goal was relabelled"


def test_a_saved_hindsight_buffer_loads_with_its_environment(tmp_path: Path) -> None:
    model = hindsight("rnd").learn(20)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    with pytest.warns(UserWarning, match="will be truncated"):
        model.load_replay_buffer(tmp_path / "buffer.pkl")
    model.learn(10, reset_num_timesteps=False)
    with pytest.raises(NotImplementedError, match="does not go with hindsight"):
        make_model(
            "SAC", BitFlippingEnv(n_bits=3, continuous=True), policy="MultiInputPolicy",
            replay_buffer_class=ShapedHerReplayBuffer, replay_buffer_kwargs={"n_steps": 3},
        )  # fmt: skip


def test_spaces_that_stable_baselines3_lacks_are_refused() -> None:
    from sasr.integrations.sb3.observations import StateEncoder

    with pytest.raises(TypeError, match="is not supported"):
        StateEncoder(gym.spaces.Text(3))
