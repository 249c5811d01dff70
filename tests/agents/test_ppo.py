from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from sasr import Host
from sasr.agents import Ppo, PpoConfig
from sasr.agents.ppo import Minibatch, gae
from sasr.training import OnPolicy
from tests.agents.reference_ppo import ReferencePpo, perceptron, slow_gae
from tests.agents.walks import CONTINUOUS, DISCRETE, SMALL, K, Novelty, Walk, go_on, make_learner
from tests.conftest import box


def member_weights(agent: Ppo, p: int) -> dict[str, Tensor]:
    """Everything learned that belongs to member p."""
    learned = {key: value for key, value in agent.state_dict().items() if "steps" not in key and value.dim() > 0}
    return {key: value[p] for key, value in learned.items() if len(value) == agent.members}


# ------------------------------------------------------------------ one epoch is PPO's


@pytest.mark.parametrize("seeds", [(3,), (3, 1, 4, 15, 9)])
@pytest.mark.parametrize(
    ("actions", "options"),
    [
        (DISCRETE, {}),
        (CONTINUOUS, {}),
        (CONTINUOUS, {"value_clip": 0.1, "max_grad_norm": 0.05}),
        (DISCRETE, {"value_heads": 2, "extrinsic_weight": 2.0, "intrinsic_discount": 0.9}),
    ],
)
def test_a_whole_round_of_learning_equals_a_plain_single_member_reference(
    seeds: tuple[int, ...], actions: gym.Space, options: dict[str, Any]
) -> None:
    config = replace(SMALL, lr=1e-3, rollout=24, **options)
    shaper = Novelty() if "value_heads" in options else None
    learner = make_learner(seeds, config, actions=actions, envs=3, shaper=shaper)
    agent, stored, walk = learner.agent, learner.rollouts, Walk(len(seeds), 3)
    go_on(learner, walk, 8)
    assert stored.full
    assert (stored.terminated & stored.truncated).any()
    plain = [ReferencePpo(agent, p) for p in range(len(seeds))]
    kept = copy.deepcopy(agent.update_streams.get_extra_state())
    learner.act(walk.obs)
    learner.learn(1)
    agent.update_streams.set_extra_state(kept)
    orders = [agent.draw_order() for _ in range(config.epochs)]
    for p, own in enumerate(plain):
        rows = (stored.obs[p], stored.next_obs[p], walk.obs[p], stored.reward[p])
        bonus = Novelty.bonus(stored.next_obs[p]) if shaper else torch.zeros_like(stored.reward[p])
        advantage, target, value = own.judge(*rows, bonus, stored.terminated[p], stored.truncated[p])
        action = stored.action[p].flatten(0, 1) - (2 if actions is DISCRETE else 0)
        parts: tuple[torch.Tensor, ...] = (
            stored.obs[p].flatten(0, 1),
            action,
            stored.log_prob[p].flatten(),
            advantage.flatten(),
        )
        parts = (*parts, value.flatten(0, 1), target.flatten(0, 1))
        for order in orders:
            for index in order[:, p]:
                own.update(*(part[index] for part in parts))
        pairs = [(perceptron(agent.net.actor, p), own.actor), (perceptron(agent.net.critic, p), own.critic)]
        for ours, theirs in pairs:
            for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
        if actions is CONTINUOUS:
            policy: Any = agent.policy
            torch.testing.assert_close(policy.log_std[p], own.log_std, rtol=0, atol=1e-5)
            assert own.log_std.abs().min() > 1e-4  # or nothing was learned


def test_the_first_update_sees_ratios_of_one_and_later_ones_do_not() -> None:
    learner = make_learner((0, 1), replace(SMALL, lr=0.02), actions=CONTINUOUS)
    walk = Walk(2, 2)
    go_on(learner, walk, 8)
    learner.order.copy_(learner.agent.draw_order())
    learner.prepare(walk.obs)
    first, second = learner.update(), learner.update()
    assert (first["train/clip_fraction"] == 0).all()
    assert first["train/approx_kl"].abs().max() < 1e-6
    assert (second["train/approx_kl"] > 1e-5).all()


def test_the_step_size_falls_linearly_to_zero_and_stays_there() -> None:
    learner = make_learner(config=replace(SMALL, lr_decay=64))
    walk, seen = Walk(1, 2), []
    for _ in range(6):
        go_on(learner, walk, 8)
        seen.append(float(learner.agent.adam.lr) / SMALL.lr)
    assert seen == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0, 0.0], abs=1e-6)


# ------------------------------------------------------------------ advantages

flags = st.lists(st.sampled_from(["goes on", "terminated", "truncated", "both"]), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(ends=st.lists(flags, min_size=1, max_size=3), lam=st.sampled_from([0.0, 0.95, 1.0]), seed=st.integers(0, 99))
def test_gae_is_the_sum_it_is_defined_by(ends: list[list[str]], lam: float, seed: int) -> None:
    n, E = min(map(len, ends)), len(ends)
    words = np.array([own[:n] for own in ends]).T  # (n, E)
    terminated, truncated = (
        torch.from_numpy(np.isin(words, [name, "both"]))[None] for name in ("terminated", "truncated")
    )
    reward, value, reached = torch.randn(3, 1, n, E, generator=torch.Generator().manual_seed(seed))
    behind, cut = reached.masked_fill(terminated, 0.0), terminated | truncated
    ours = gae(reward, value, behind, cut, discount=0.9, trace=lam)
    for e in range(E):
        theirs = slow_gae(reward[0, :, e], value[0, :, e], behind[0, :, e], cut[0, :, e], 0.9, lam)
        torch.testing.assert_close(ours[0, :, e], theirs, rtol=0, atol=1e-5)


def judged(
    heads: int, terminated: list[bool], truncated: list[bool], bonus: float = 0.0
) -> tuple[Ppo, dict[str, Tensor]]:
    """Targets with λ = 1 of one environment, reward 1 a step, so that they are plain returns."""
    config = replace(SMALL, value_heads=heads, gae_lambda=1.0, intrinsic_discount=0.5)
    agent = make_learner(config=config, shaper=Novelty(), envs=1).agent
    n = len(terminated)
    obs = torch.randn(1, n + 1, 1, K, generator=torch.Generator().manual_seed(0))
    final = torch.randn(1, n, 1, K, generator=torch.Generator().manual_seed(1))
    ended, limit = (torch.tensor(flag).view(1, n, 1) for flag in (terminated, truncated))
    next_obs = torch.where((ended | limit)[..., None], final, obs[:, 1:])
    reward = torch.ones(1, n, 1)
    out = agent.estimate(obs[:, :-1], next_obs, obs[:, -1], reward, bonus * reward, ended, ended | limit)
    with torch.no_grad():
        values = {"final": agent.net.value(final[:, :, 0])[0], "obs": agent.net.value(obs[:, :, 0])[0]}
    return agent, {"target": out.target[0, :, 0], **values}


def test_a_time_limit_is_bootstrapped_from_the_final_observation_and_a_termination_is_not() -> None:
    _, seen = judged(1, [False, True, False, False], [False, False, True, False])
    g = 0.99
    expected = [1 + g, 1.0, float(1 + g * seen["final"][2, 0]), float(1 + g * seen["obs"][4, 0])]
    torch.testing.assert_close(seen["target"][:, 0], torch.tensor(expected))


def test_a_bonus_with_a_head_of_its_own_flows_over_the_ends_of_episodes() -> None:
    _, seen = judged(2, [False, True, False], [True, False, False], bonus=3.0)
    extrinsic: list[Any] = [1 + 0.99 * seen["final"][0, 0], 1.0, 1 + 0.99 * seen["obs"][3, 0]]
    last = 3 + 0.5 * seen["obs"][3, 1]
    intrinsic = [3 + 0.5 * (3 + 0.5 * last), 3 + 0.5 * last, last]
    expected = torch.tensor([[float(first), float(second)] for first, second in zip(extrinsic, intrinsic, strict=True)])
    torch.testing.assert_close(seen["target"], expected)


def test_with_one_head_a_bonus_is_reward() -> None:
    _, paid = judged(1, [False, True], [False, False], bonus=2.0)
    torch.testing.assert_close(paid["target"][:, 0], torch.tensor([3 + 0.99 * 3, 3.0]))


# ------------------------------------------------------------------ members are independent


@pytest.mark.parametrize("harm", ["weights", "data", "nan", "seed"])
def test_members_never_touch_each_other(harm: str) -> None:
    shared = replace(SMALL, value_heads=2, standardise=True)
    plain = make_learner((7, 8, 9), shared, actions=CONTINUOUS, shaper=Novelty())
    harmed = make_learner((7, 80, 9) if harm == "seed" else (7, 8, 9), shared, actions=CONTINUOUS, shaper=Novelty())
    if harm == "weights":
        with torch.no_grad():
            for parameter in harmed.agent.parameters():
                parameter[1] = 100 * torch.randn_like(parameter[1])
    one, other = Walk(3, 2), Walk(3, 2)
    for _ in range(64):  # seven rounds of eight updates
        for learner, walk in ((plain, one), (harmed, other)):
            action = learner.act(walk.obs)
            learner.learn(2)
            step = walk.step(action)
            if learner is harmed and harm in ("data", "nan"):
                step.reward[1], step.next_obs[1] = (1e6, 1e6) if harm == "data" else (torch.nan, torch.nan)
            learner.store(step)
    assert float(plain.agent.adam.get_buffer("steps")) == 56.0
    for p in (0, 2):
        ours, theirs = member_weights(plain.agent, p), member_weights(harmed.agent, p)
        assert len(ours) > 30
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    key = "net.actor.layers.0.weight"
    assert not torch.equal(member_weights(plain.agent, 1)[key], member_weights(harmed.agent, 1)[key])


def test_a_seed_alone_and_in_a_population_agree() -> None:
    crowd, alone = make_learner((5, 6, 7)), make_learner((5,))
    for key, value in member_weights(alone.agent, 0).items():
        assert torch.equal(value, member_weights(crowd.agent, 0)[key]), key
    assert torch.equal(alone.act_randomly()[0], crowd.act_randomly()[0])
    go_on(crowd, Walk(3, 2), 305)
    go_on(alone, Walk(1, 2), 305)
    assert float(alone.agent.adam.get_buffer("steps")) >= 300
    for key, value in member_weights(alone.agent, 0).items():
        torch.testing.assert_close(value, member_weights(crowd.agent, 0)[key], rtol=0, atol=1e-4)
    assert torch.equal(alone.rollouts.action[0], crowd.rollouts.action[0])


# ------------------------------------------------------------------ observations


def test_networks_see_observations_standardised_by_all_rollouts_so_far() -> None:
    scale = torch.tensor([1e-3, 1.0, 1e4])
    learner, plain = (make_learner((0, 1), replace(SMALL, standardise=on)) for on in (True, False))
    seen: list[Any] = []
    for _ in range(2):
        obs = torch.randn(2, 8, 2, K, generator=torch.Generator().manual_seed(len(seen))) * scale + 5 * scale
        seen.append(obs)
        learner.rollouts.obs.copy_(obs)
        learner.prepare(obs[:, -1])
    stack = torch.cat(seen, dim=1).flatten(1, 2)  # (P, 32, K)
    mean, std = stack.mean(1, keepdim=True), stack.std(1, keepdim=True, correction=0)
    for ours, theirs in zip(learner.agent.net(stack), plain.agent.net((stack - mean) / std), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(learner.agent.net.value(stack), plain.agent.net.value(stack), atol=1e-2)


# ------------------------------------------------------------------ pictures


def test_pictures_are_learned_from_through_one_encoder_per_member() -> None:
    space = gym.spaces.Box(0, 255, (36, 36), np.uint8)
    host = Host(observation_space=space, action_space=DISCRETE, seeds=(0, 1), envs=2)
    agent = Ppo(host, replace(SMALL, features=8, rollout=8, minibatches=2))
    g = torch.Generator().manual_seed(0)
    obs = torch.randint(0, 256, (2, 4, 36, 36), generator=g, dtype=torch.uint8)
    outputs, values = agent.net(obs)
    assert outputs.shape == (2, 4, 4)
    assert values.shape == (2, 4, 1)
    assert outputs.abs().max() < 0.1  # nearly uniform at first
    action, log_prob = agent.sample(obs)
    before = member_weights(agent, 0)
    before = {key: value.clone() for key, value in before.items() if key.startswith("net.")}
    agent.learn(Minibatch(obs, action, log_prob, torch.randn(2, 4, generator=g), values.detach(), values.detach() + 1))
    assert all(not torch.equal(value, member_weights(agent, 0)[key]) for key, value in before.items())
    assert len(before) == 10  # three convolutions, a layer, the heads; weights and biases


# ------------------------------------------------------------------ checkpoints


def test_a_saved_agent_continues_bit_for_bit(tmp_path: Path) -> None:
    learner = make_learner((0, 1), replace(SMALL, lr_decay=200), actions=CONTINUOUS)
    go_on(learner, Walk(2, 2), 9)
    agent = learner.agent
    save_file({key: value.contiguous() for key, value in agent.state_dict().items()}, tmp_path / "agent.safetensors")
    resumed = make_learner((2, 3), replace(SMALL, lr_decay=200), actions=CONTINUOUS)
    resumed.agent.load_state_dict(load_file(tmp_path / "agent.safetensors"))
    for own in (learner, resumed):
        own.rollouts.clear()
        go_on(own, Walk(2, 2, offset=50), 20)
    ours, theirs = agent.state_dict(), resumed.agent.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert float(agent.adam.lr) < SMALL.lr


def test_a_state_that_does_not_fit_is_refused_whole() -> None:
    agent, other = make_learner((0, 1)).agent, make_learner((0, 1, 2)).agent
    before = {key: value.clone() for key, value in agent.state_dict().items()}
    with pytest.raises(ValueError, match="make this Ppo with the same spaces, seeds and settings"):
        agent.load_state_dict(other.state_dict())
    assert all(torch.equal(value, agent.state_dict()[key]) for key, value in before.items())


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "wrong",
    [
        {"rollout": 0},
        {"epochs": 0},
        {"minibatches": 0},
        {"features": 0},
        {"lr": -1.0},
        {"entropy_weight": float("nan")},
        {"clip": 0.0},
        {"value_clip": 0.0},
        {"max_grad_norm": -1.0},
        {"lr_decay": 0},
        {"hidden": (64, 0)},
        {"gae_lambda": 1.5},
        {"intrinsic_discount": 1.0},
        {"value_heads": 3},
    ],
)
def test_impossible_settings_are_refused_by_name(wrong: dict[str, Any]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError) as error:
        PpoConfig(**wrong)
    assert f"{name}={value}" in str(error.value)


def test_an_unknown_activation_is_told_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="tanh"):
        make_learner(config=replace(SMALL, activation="tanhh"))


def test_minibatches_of_less_than_two_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rollout=16 of 3 environments gives 9 minibatches of 1 steps"):
        make_learner(config=replace(SMALL, minibatches=9), envs=3)


def test_action_spaces_that_nothing_here_can_draw_from_are_refused() -> None:
    with pytest.raises(TypeError, match="Box or Discrete"):
        make_learner(actions=gym.spaces.MultiDiscrete([2, 3]))


def test_observations_of_another_population_are_refused() -> None:
    agent = make_learner((0, 1)).agent
    with pytest.raises(ValueError, match=r"obs has shape \(1, 1, 3\), expected .* = \(2, environments, 3\)"):
        agent.act(torch.zeros(1, 1, K))
    with pytest.raises(ValueError, match="obs has shape"):
        agent.act(torch.zeros(2, 1, K + 1))


def test_two_heads_without_a_bonus_are_refused() -> None:
    host = Host(observation_space=box(K), action_space=DISCRETE, envs=2)
    with pytest.raises(ValueError, match="value_heads=2 is for a shaper's bonus"):
        OnPolicy(host, Ppo(host, replace(SMALL, value_heads=2)))
