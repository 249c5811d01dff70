from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sasr import Batch, Host
from sasr.agents import Sac, SacConfig
from sasr.agents.sac import UpdateNoise
from tests.agents.reference import ReferenceSac
from tests.conftest import box
from tests.networks.plain import plain_mlp

K, B = 5, 32
ACTIONS = gym.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32))
SMALL = SacConfig(hidden=(16, 16))


def make_agent(
    seeds: tuple[int, ...] = (0,), config: SacConfig = SMALL, k: int = K, space: gym.spaces.Box = ACTIONS
) -> Sac:
    return Sac(Host(observation_space=box(k), action_space=space, seeds=seeds), config)


def make_data(P: int, seed: int, k: int = K) -> tuple[Batch, Tensor]:
    """A batch of P members and a bonus; the rows of member p do not depend on P."""
    rows = []
    for p in range(P):
        g = torch.Generator().manual_seed(1000 * seed + p)
        obs, next_obs = torch.randn(2, B, k, generator=g)
        action = torch.rand(B, 2, generator=g) * torch.tensor([4.0, 0.5]) + torch.tensor([-1.0, 0.0])
        reward, bonus = torch.randn(2, B, generator=g)
        rows.append((obs, action, reward, next_obs, torch.rand(B, generator=g) < 0.3, bonus))
    *fields, bonus = (torch.stack(column) for column in zip(*rows, strict=True))
    return Batch(*fields), bonus


def learn(agent: Sac, times: int) -> None:
    for t in range(times):
        batch, bonus = make_data(agent.members, t)
        agent.update(batch, bonus, agent.draw_noise(B))


def member_weights(agent: Sac, p: int) -> dict[str, Tensor]:
    """Everything learned that belongs to member p; the critics' networks p and P + p."""
    P = agent.members
    learned = {key: value for key, value in agent.state_dict().items() if "steps" not in key and value.dim() > 0}
    return {
        key: value.unflatten(0, (2, P))[:, p] if len(value) == 2 * P else value[p]
        for key, value in learned.items()
        if len(value) in (P, 2 * P) and "scale" not in key and "middle" not in key
    }


# ------------------------------------------------------------------ one update is SAC's update


@pytest.mark.parametrize("seeds", [(3,), (3, 1, 4, 15, 9)])
@pytest.mark.parametrize(
    ("hidden", "dtype", "within"),
    # Adam divides a gradient of rounding errors by its own size: among many weights in float32 one such will differ.
    [((16, 16), torch.float32, 1e-5), ((256, 256), torch.float64, 1e-10)],
)
def test_updates_equal_a_plain_single_member_reference(
    seeds: tuple[int, ...], hidden: tuple[int, ...], dtype: torch.dtype, within: float
) -> None:
    agent = make_agent(seeds, SacConfig(hidden=hidden)).to(dtype)
    P = len(seeds)
    plain = [ReferenceSac(agent, p) for p in range(P)]
    for t in range(5):  # the actor learns at the second and the fourth
        made, bonus = make_data(P, t)
        obs, action, reward, next_obs = (field.to(dtype) for field in made[:4])
        batch, bonus = Batch(obs, action, reward, next_obs, made.terminated), bonus.to(dtype)
        noise = UpdateNoise(*(own.to(dtype) for own in agent.draw_noise(B)))
        agent.update(batch, bonus, noise)
        for p, own in enumerate(plain):
            total = batch.reward[p] + bonus[p]
            rows = (batch.obs[p], batch.action[p], total, batch.next_obs[p], batch.terminated[p])
            own.update(*rows, noise.target[p], noise.actor[:, p])
            pairs = [
                (plain_mlp(agent.actor.net, p), own.actor),
                *zip((plain_mlp(agent.critic.net, i) for i in (p, P + p)), own.critics, strict=True),
                *zip((plain_mlp(agent.target_critic.net, i) for i in (p, P + p)), own.targets, strict=True),
            ]
            for ours, theirs in pairs:
                for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                    torch.testing.assert_close(a, b, rtol=0, atol=within)
            torch.testing.assert_close(agent.log_alpha[p], own.log_alpha, rtol=0, atol=within)


def test_actor_learns_at_every_second_update_and_twice() -> None:
    agent = make_agent()
    layer: Any = agent.actor.net.layers[0]
    moved, before = [], layer.weight.detach().clone()
    for t in range(4):
        batch, bonus = make_data(1, t)
        agent.update(batch, bonus, agent.draw_noise(B))
        now = layer.weight.detach().clone()
        moved.append(not torch.equal(now, before))
        before = now
    assert moved == [False, True, False, True]
    assert float(agent.actor_adam.get_buffer("steps")) == 4.0
    assert float(agent.temperature_adam.get_buffer("steps")) == 4.0
    assert float(agent.critic_adam.get_buffer("steps")) == 4.0


def test_terminated_ends_the_return_and_truncated_does_not() -> None:
    agent = make_agent()
    batch, _ = make_data(1, 0)
    noise = agent.draw_noise(B)
    ended = agent.bootstrap(batch._replace(terminated=torch.ones(1, B, dtype=torch.bool)), noise)
    assert (ended == 0.0).all()
    # A batch does not say truncated at all: a step cut by a time limit is one that goes on.
    going = agent.bootstrap(batch._replace(terminated=torch.zeros(1, B, dtype=torch.bool)), noise)
    action, log_prob = agent.actor.sample(batch.next_obs, noise.target)
    value = agent.target_critic(batch.next_obs, action).amin(0) - log_prob
    torch.testing.assert_close(going, 0.99 * value)
    assert going.abs().min() > 0


def test_the_value_after_n_steps_has_the_discount_of_as_many() -> None:
    agent = make_agent()
    batch, _ = make_data(1, 0)
    noise = agent.draw_noise(B)
    one_step = agent.bootstrap(batch, noise)
    discount = torch.linspace(0.5, 1.0, B)[None]
    torch.testing.assert_close(agent.bootstrap(batch._replace(discount=discount), noise), one_step * discount / 0.99)


def test_observations_of_any_scale_are_the_same_to_the_networks() -> None:
    scale, shift = torch.tensor([1e4, 1.0, 1e-2, 5.0, 100.0]), torch.tensor([1e5, -3.0, 0.1, 0.0, 7.0])
    plain, scaled = make_agent(), make_agent()
    for t in range(20):
        batch, bonus = make_data(1, t)
        if t == 0:  # statistics of what is learned from come first
            assert plain.normaliser is not None
            assert scaled.normaliser is not None
            plain.normaliser.update(batch.obs)
            scaled.normaliser.update(batch.obs * scale + shift)
        noise = plain.draw_noise(B)
        plain.update(batch, bonus, noise)
        other = batch._replace(obs=batch.obs * scale + shift, next_obs=batch.next_obs * scale + shift)
        scaled.update(other, bonus, noise)
    obs = torch.randn(1, 50, K, generator=torch.Generator().manual_seed(0))
    ours, theirs = plain.act(obs, deterministic=True), scaled.act(obs * scale + shift, deterministic=True)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.05)


def test_the_papers_settings_are_its_table() -> None:
    paper = SacConfig.paper()
    table = {"actor_lr": 3e-4, "critic_lr": 1e-3, "temperature_lr": 1e-4, "batch_size": 256, "hidden": (256, 256)}
    assert {name: getattr(paper, name) for name in table} == table
    assert (paper.critic_norm, paper.normalise_observations, paper.n_step) == ("none", False, 1)
    agent = make_agent(config=SacConfig.paper(hidden=(16, 16)))
    assert agent.normaliser is None
    assert not any("normaliser" in key for key in agent.state_dict())


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"critic_norm": "layers"}, "did you mean 'layer'"), ({"n_step": 0}, "n_step=0 must be at least 1")],
)
def test_settings_that_can_not_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SacConfig(**settings)


def test_a_ruined_value_behind_a_termination_is_never_looked_at() -> None:
    agent = make_agent()
    batch, _ = make_data(1, 0)
    batch.next_obs[batch.terminated] = torch.nan  # 0 · NaN would be NaN
    assert torch.isfinite(agent.bootstrap(batch, agent.draw_noise(B))).all()


@pytest.mark.parametrize(("target", "falls"), [(-50.0, True), (50.0, False)])
def test_temperature_moves_towards_the_target_entropy(target: float, falls: bool) -> None:
    agent = make_agent((0, 1), SacConfig(hidden=(16, 16), target_entropy=target))
    learn(agent, 10)
    assert ((agent.log_alpha < 0) == falls).all()
    assert agent.log_alpha.abs().min() > 5e-4


def test_value_and_policy_find_the_best_action_of_a_bandit() -> None:
    """Reward −(a − 0.6)², one state, every step terminal: the deterministic action ends near 0.6."""
    space = gym.spaces.Box(-2.0, 2.0, (1,))
    config = SacConfig(hidden=(32, 32), actor_lr=3e-3, critic_lr=3e-3, temperature_lr=0.03, target_entropy=-2.0)
    agent = make_agent((0, 1), config, k=1, space=space)
    zeros, done = torch.zeros(2, 64, 1), torch.ones(2, 64, dtype=torch.bool)
    g = torch.Generator().manual_seed(0)
    for _ in range(600):
        action = torch.rand(2, 64, 1, generator=g) * 4 - 2
        batch = Batch(zeros, action, -(action[..., 0] - 0.6).square(), zeros, done)
        agent.update(batch, torch.zeros(2, 64), agent.draw_noise(64))
    chosen = agent.act(zeros[:, :1], deterministic=True)
    torch.testing.assert_close(chosen, torch.full((2, 1, 1), 0.6), rtol=0, atol=0.1)


# ------------------------------------------------------------------ the policy


def test_density_integrates_to_one() -> None:
    space = gym.spaces.Box(-1.0, 3.0, (1,))
    agent = make_agent((0, 1, 2), k=2, space=space)
    with torch.no_grad():
        u = torch.linspace(-30, 30, 200_001).expand(3, -1)[..., None]
        obs = torch.randn(3, 1, 2, generator=torch.Generator().manual_seed(1))
        mean, log_std = agent.actor.distribution(obs)
        action, log_prob = agent.actor.sample(obs.expand(-1, u.shape[1], -1), (u - mean) / log_std.exp())
    total = torch.trapezoid(log_prob.double().exp(), action[..., 0].double(), dim=1)
    torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-3)


def test_log_density_is_finite_far_out_and_has_a_gradient() -> None:
    agent = make_agent()
    _, log_prob = agent.actor.sample(torch.zeros(1, 1, K), torch.full((1, 1, 2), 60.0))
    assert torch.isfinite(log_prob).all()
    gradients = torch.autograd.grad(log_prob.sum(), list(agent.actor.parameters()))
    assert all(torch.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("bound", [0.7, 1.0, 1e-3])
def test_actions_stay_in_the_space_and_reach_its_ends(bound: float) -> None:
    space = gym.spaces.Box(-np.float32(bound), np.float32(bound) / 3, (2, 2))
    agent = make_agent((0, 1), space=space)
    obs = 1e4 * torch.randn(2, 200, K, generator=torch.Generator().manual_seed(0))
    for actions in (agent.act(obs), agent.act(obs, deterministic=True), agent.act_randomly(200)):
        assert actions.shape == (2, 200, 2, 2)
        assert all(space.contains(action.numpy()) for action in actions.flatten(0, 1))
    middle, half = -bound / 3, 2 * bound / 3
    reached = (agent.act(obs) - middle).abs().amax()
    torch.testing.assert_close(float(reached), half, rtol=1e-4, atol=0)
    uniform = agent.act_randomly(5000)
    torch.testing.assert_close(float(uniform.mean()), middle, rtol=0, atol=0.03 * bound)
    torch.testing.assert_close(float(uniform.std()), 2 * half / 12**0.5, rtol=0.03, atol=0)


def test_deterministic_acting_draws_nothing() -> None:
    one, other = make_agent(), make_agent()
    obs = torch.randn(1, 3, K)
    first = one.act(obs, deterministic=True)
    assert torch.equal(first, one.act(obs, deterministic=True))
    assert torch.equal(one.act(obs), other.act(obs))
    assert not torch.equal(one.act(obs), one.act(obs))


# ------------------------------------------------------------------ members are independent


@pytest.mark.parametrize("harm", ["weights", "data", "nan", "seed"])
def test_members_never_touch_each_other(harm: str) -> None:
    seeds = (7, 8, 9)
    plain = make_agent(seeds)
    harmed = make_agent((7, 80, 9)) if harm == "seed" else copy.deepcopy(plain)
    if harm == "weights":
        with torch.no_grad():
            for name, parameter in harmed.named_parameters():
                rows = [1, 4] if "critic" in name else [1]
                parameter[rows] = 100 * torch.randn_like(parameter[rows])
    for t in range(50):
        batch, bonus = make_data(3, t)
        other = Batch(*(field.clone() for field in batch if field is not None))
        if harm in ("data", "nan"):
            other.obs[1], other.reward[1] = (1e6, -1e6) if harm == "data" else (torch.nan, torch.nan)
            other.terminated[1] = ~other.terminated[1]
        plain.update(batch, bonus, plain.draw_noise(B))
        harmed.update(other, bonus, harmed.draw_noise(B))
    for p in (0, 2):
        ours, theirs = member_weights(plain, p), member_weights(harmed, p)
        assert len(ours) > 30
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    ruined = member_weights(plain, 1)["actor.net.layers.0.weight"]
    assert not torch.equal(ruined, member_weights(harmed, 1)["actor.net.layers.0.weight"])


def test_a_seed_alone_and_in_a_population_agree() -> None:
    crowd, alone = make_agent((5, 6, 7)), make_agent((5,))
    for key, value in member_weights(alone, 0).items():
        assert torch.equal(value, member_weights(crowd, 0)[key]), key
    assert torch.equal(alone.act_randomly(2)[0], crowd.act_randomly(2)[0])
    learn(crowd, 300)
    learn(alone, 300)
    for key, value in member_weights(alone, 0).items():
        torch.testing.assert_close(value, member_weights(crowd, 0)[key], rtol=0, atol=1e-4)
    obs = torch.randn(3, 2, K)
    torch.testing.assert_close(alone.act(obs[:1])[0], crowd.act(obs)[0], rtol=0, atol=1e-4)


def test_seeds_differ() -> None:
    agent = make_agent((0, 1))
    layer: Any = agent.critic.net.layers[0]
    weight = layer.weight
    assert len(set(weight[:, 0, 0].tolist())) == 4
    first, second = agent.draw_noise(B).target
    assert not torch.equal(first, second)


# ------------------------------------------------------------------ checkpoints


def test_a_saved_agent_continues_bit_for_bit(tmp_path: Path) -> None:
    agent = make_agent((0, 1))
    learn(agent, 3)  # an odd number: the schedule must come back too
    save_file({key: value.contiguous() for key, value in agent.state_dict().items()}, tmp_path / "agent.safetensors")
    resumed = make_agent((2, 3))
    resumed.load_state_dict(load_file(tmp_path / "agent.safetensors"))
    learn(agent, 3)
    learn(resumed, 3)
    ours, theirs = agent.state_dict(), resumed.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    obs = torch.randn(2, 1, K)
    assert torch.equal(agent.act(obs), resumed.act(obs))


def test_a_state_that_does_not_fit_is_refused_whole() -> None:
    agent, other = make_agent((0, 1)), make_agent((0, 1, 2))
    before = {key: value.clone() for key, value in agent.state_dict().items()}
    with pytest.raises(ValueError, match="make this Sac with the same spaces, seeds and settings"):
        agent.load_state_dict(other.state_dict())
    assert all(torch.equal(value, agent.state_dict()[key]) for key, value in before.items())


# ------------------------------------------------------------------ bad input


def test_discrete_actions_are_refused_with_the_fix() -> None:
    with pytest.raises(TypeError, match=r"Discrete\(3\).*needs a Box; use agent='sac_discrete'"):
        Sac(Host(observation_space=box(2), action_space=gym.spaces.Discrete(3)))


@pytest.mark.parametrize("space", [box(1), gym.spaces.Box(np.array([0, 1], np.float32), np.array([1, 1], np.float32))])
def test_action_bounds_must_be_finite_and_apart(space: gym.spaces.Box) -> None:
    with pytest.raises(ValueError, match="must have finite bounds, low below high"):
        make_agent(space=space)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tau": 0.0},
        {"tau": 1.5},
        {"policy_frequency": 0},
        {"batch_size": 0},
        {"burn_in": -1},
        {"actor_lr": -1.0},
        {"critic_lr": float("nan")},
        {"hidden": (256, 0)},
        {"log_std_min": 3.0},
    ],
)
def test_impossible_settings_are_refused_by_name(wrong: dict[str, Any]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError) as error:
        SacConfig(**wrong)
    assert f"{name}={value}" in str(error.value)


def test_a_column_of_rewards_is_refused_and_nothing_is_learned() -> None:
    agent = make_agent()
    batch, bonus = make_data(1, 0)
    noise = agent.draw_noise(B)
    before = {key: value.clone() for key, value in agent.state_dict().items()}
    with pytest.raises(ValueError, match=r"bonus has shape \(1, 32, 1\), expected \(seeds, batch\) = \(1, 32\)"):
        agent.update(batch, bonus[..., None], noise)
    with pytest.raises(ValueError, match="reward has shape"):
        agent.update(batch._replace(reward=batch.reward[..., None]), bonus, noise)
    assert all(torch.equal(before[key], value) for key, value in agent.state_dict().items())


def test_observations_of_another_population_are_refused() -> None:
    agent = make_agent((0, 1))
    with pytest.raises(ValueError, match="obs has 1 seeds of 5 features, but this agent has 2 of 5"):
        agent.act(torch.zeros(1, 1, K))
    with pytest.raises(ValueError, match="obs has 2 seeds of 6 features"):
        agent.act(torch.zeros(2, 1, 6))
