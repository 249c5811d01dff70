"""What every agent that learns from replay promises; what is SAC's own is in test_sac.py."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sasr import Batch, Host
from sasr.agents import Sac, SacConfig, SacDiscrete, SacDiscreteConfig, Td3, Td3Config
from sasr.agents.registry import AGENTS, agent_named
from sasr.training.fast import can_compile, compile_parts
from tests.agents.cases import CASES, learn, make_agent, make_data, member_state
from tests.agents.reference_others import ReferenceSacDiscrete, ReferenceTd3, plain_net
from tests.conftest import box
from tests.networks.plain import plain_mlp

OTHERS = [name for name in CASES if name != "sac"]
every_other = pytest.mark.parametrize("name", OTHERS)


def networks_of(agent: Td3 | SacDiscrete, p: int) -> list[torch.nn.Module]:
    """Member p's networks in the order of the reference's."""
    both = (p, agent.members + p)
    if isinstance(agent, Td3):
        critics = [plain_mlp(net.net, i) for net in (agent.critic, agent.target_critic) for i in both]
        return [plain_mlp(agent.actor.net, p), *critics[:2], plain_mlp(agent.target_actor.net, p), *critics[2:]]
    critics = [plain_net(net.net, i) for net in (agent.critic, agent.target_critic) for i in both]
    return [plain_net(agent.actor, p), *critics]


# ------------------------------------------------------------------ one update is the algorithm's


# In float32 not on pictures: among a hundred thousand weights Adam divides some rounding error by its own size.
PRECISION = [(name, torch.float64, 1e-10) for name in OTHERS]
PRECISION += [(name, torch.float32, 1e-5) for name in OTHERS if "pictures" not in name]


@pytest.mark.parametrize("seeds", [(3,), (3, 1, 4, 15, 9)])
@pytest.mark.parametrize(("name", "dtype", "within"), PRECISION)
def test_updates_equal_a_plain_single_member_reference(
    name: str, seeds: tuple[int, ...], dtype: torch.dtype, within: float
) -> None:
    agent = make_agent(name, seeds).to(dtype)
    reference = ReferenceTd3 if isinstance(agent, Td3) else ReferenceSacDiscrete
    plain: list[Any] = [reference(agent, p) for p in range(len(seeds))]
    for t in range(5):  # TD3's actor and targets move at the second and the fourth
        batch, bonus = make_data(name, len(seeds), t)
        fields = (field for field in batch if field is not None)
        batch = Batch(*(field.to(dtype) if field.is_floating_point() else field for field in fields))
        noise = agent.draw_noise(CASES[name].rows)
        noise, bonus = None if noise is None else noise.to(dtype), bonus.to(dtype)
        agent.update(batch, bonus, noise)
        for p, own in enumerate(plain):
            reward = batch.reward[p] + bonus[p]
            rows = (batch.obs[p], batch.action[p], reward, batch.next_obs[p], batch.terminated[p])
            own.update(*rows, None if noise is None else noise[p])
            for ours, theirs in zip(networks_of(agent, p), own.networks, strict=True):
                for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                    torch.testing.assert_close(a, b, rtol=0, atol=within)
            if isinstance(own, ReferenceSacDiscrete):
                torch.testing.assert_close(agent.log_alpha[p], own.log_alpha, rtol=0, atol=within)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "td3", "sac_discrete"])
@pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="needs a C++ compiler")
def test_compiled_updates_equal_plain_ones(name: str) -> None:
    plain, compiled = make_agent(name, (0, 1)), make_agent(name, (0, 1))
    compile_parts([compiled])
    learn(name, plain, 4)
    learn(name, compiled, 4)
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[key], value, rtol=1e-4, atol=1e-5, msg=key)


@every_other
def test_a_ruined_value_behind_a_termination_is_never_looked_at(name: str) -> None:
    agent = make_agent(name)
    batch, _ = make_data(name, 1, 0)
    with torch.no_grad():
        for parameter in agent.target_critic.parameters():
            parameter.fill_(torch.nan)  # 0 · NaN would be NaN
    ahead = agent.bootstrap(batch, agent.draw_noise(CASES[name].rows))
    ended = batch.terminated
    assert ended.any()
    assert (ahead[ended] == 0.0).all()
    assert ahead[~ended].isnan().all()


# ------------------------------------------------------------------ members are independent


@every_other
@pytest.mark.parametrize("harm", ["weights", "data", "nan", "seed"])
def test_members_never_touch_each_other(name: str, harm: str) -> None:
    plain = make_agent(name, (7, 8, 9))
    harmed = make_agent(name, (7, 80, 9)) if harm == "seed" else copy.deepcopy(plain)
    if harm == "weights":
        with torch.no_grad():
            for key, parameter in harmed.named_parameters():
                rows = [1, 4] if "critic" in key else [1]
                parameter[rows] = 100 * torch.randn_like(parameter[rows])
    for t in range(50):
        batch, bonus = make_data(name, 3, t)
        other = Batch(*(field.clone() for field in batch if field is not None))
        if harm in ("data", "nan"):
            is_picture = other.obs.dtype == torch.uint8
            other.obs[1], other.reward[1] = (0 if is_picture else 1e6, -1e6 if harm == "data" else torch.nan)
            other.terminated[1] = ~other.terminated[1]
        plain.update(batch, bonus, plain.draw_noise(CASES[name].rows))
        harmed.update(other, bonus, harmed.draw_noise(CASES[name].rows))
    for p in (0, 2):
        ours, theirs = member_state(plain, p), member_state(harmed, p)
        assert len(ours) > 30
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    ours, theirs = member_state(plain, 1), member_state(harmed, 1)
    assert not all(torch.equal(ours[key], theirs[key]) for key in ours)


@every_other
def test_a_seed_alone_and_in_a_population_agree(name: str) -> None:
    crowd, alone = make_agent(name, (5, 6, 7)), make_agent(name, (5,))
    for key, value in member_state(alone, 0).items():
        assert torch.equal(value, member_state(crowd, 0)[key]), key
    assert torch.equal(alone.act_randomly(2)[0], crowd.act_randomly(2)[0])
    updates = 30 if "pictures" in name else 300
    learn(name, crowd, updates)
    learn(name, alone, updates)
    for key, value in member_state(alone, 0).items():
        torch.testing.assert_close(value, member_state(crowd, 0)[key], rtol=0, atol=1e-4)
    obs = make_data(name, 3, 0)[0].obs
    torch.testing.assert_close(alone.act(obs[:1])[0], crowd.act(obs)[0], rtol=0, atol=1e-4)


@every_other
def test_seeds_differ(name: str) -> None:
    agent = make_agent(name, (0, 1))
    first = next(agent.critic.parameters())
    assert len(set(first.flatten(1)[:, 0].tolist())) == 4
    assert not torch.equal(*agent.act_randomly(20))


# ------------------------------------------------------------------ checkpoints


@every_other
def test_a_saved_agent_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    agent = make_agent(name, (0, 1))
    learn(name, agent, 3)  # an odd number: the schedule must come back too
    save_file({key: value.contiguous() for key, value in agent.state_dict().items()}, tmp_path / "agent.safetensors")
    resumed = make_agent(name, (2, 3))
    resumed.load_state_dict(load_file(tmp_path / "agent.safetensors"))
    learn(name, agent, 3)
    learn(name, resumed, 3)
    ours, theirs = agent.state_dict(), resumed.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    obs = make_data(name, 2, 0)[0].obs
    assert torch.equal(agent.act(obs), resumed.act(obs))


@every_other
def test_a_state_that_does_not_fit_is_refused_whole(name: str) -> None:
    agent, other = make_agent(name, (0, 1)), make_agent(name, (0, 1, 2))
    before = {key: value.clone() for key, value in agent.state_dict().items()}
    with pytest.raises(ValueError, match="with the same spaces, seeds and settings"):
        agent.load_state_dict(other.state_dict())
    assert all(torch.equal(value, agent.state_dict()[key]) for key, value in before.items())


# ------------------------------------------------------------------ actions


@every_other
def test_deterministic_acting_draws_nothing(name: str) -> None:
    one, other = make_agent(name), make_agent(name)
    obs = make_data(name, 1, 0)[0].obs
    assert torch.equal(one.act(obs, deterministic=True), one.act(obs, deterministic=True))
    assert torch.equal(one.act(obs), other.act(obs))
    assert not torch.equal(one.act_randomly(50), one.act_randomly(50))


bounds = st.floats(-1e3, 1e3, width=32)


@pytest.mark.parametrize("agent_class", [Sac, Td3])
@settings(max_examples=30, deadline=None)
@given(pairs=st.lists(st.tuples(bounds, bounds).filter(lambda own: own[0] < own[1]), min_size=1, max_size=4))
def test_continuous_actions_lie_in_the_space(agent_class: type[Sac] | type[Td3], pairs: list) -> None:
    low, high = np.array(pairs, np.float32).T
    space = gym.spaces.Box(low, high)
    configs: dict[Any, Any] = {Sac: SacConfig(hidden=(4,)), Td3: Td3Config(hidden=(4,), exploration_noise=1.0)}
    host = Host(observation_space=box(2), action_space=space, seeds=(0, 1))
    agent = agent_class(host, configs[agent_class])
    obs = 1e3 * torch.randn(2, 20, 2, generator=torch.Generator().manual_seed(0))
    for actions in (agent.act(obs), agent.act(obs, deterministic=True), agent.act_randomly(20)):
        assert actions.shape == (2, 20, len(pairs))
        assert all(space.contains(action.numpy()) for action in actions.flatten(0, 1))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 40), start=st.integers(-5, 5))
def test_discrete_actions_lie_in_the_space(n: int, start: int) -> None:
    space = gym.spaces.Discrete(n, start=start)
    host = Host(observation_space=box(2), action_space=space, seeds=(0, 1))
    agent = SacDiscrete(host, SacDiscreteConfig(hidden=(4,)))
    obs = 1e3 * torch.randn(2, 20, 2, generator=torch.Generator().manual_seed(0))
    for actions in (agent.act(obs), agent.act(obs, deterministic=True), agent.act_randomly(20)):
        assert actions.shape == (2, 20)
        assert actions.dtype == torch.int64
        assert all(space.contains(action.numpy()) for action in actions.flatten())


# ------------------------------------------------------------------ the registry and bad input


@pytest.mark.parametrize(("space", "name"), [(box(1), "sac"), (gym.spaces.Discrete(3), "sac_discrete")])
def test_auto_picks_by_the_action_space(space: gym.Space, name: str) -> None:
    assert agent_named("auto", space) == (name, AGENTS[name])


def test_an_unknown_agent_is_named_with_the_closest_one() -> None:
    with pytest.raises(ValueError, match="agent 'td33' is unknown; did you mean 'td3'"):
        agent_named("td33")


@pytest.mark.parametrize("space", [gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(4)])
@pytest.mark.parametrize("name", ["sac", "td3", "sac_discrete"])
def test_other_action_spaces_suit_no_agent(name: str, space: gym.Space) -> None:
    host = Host(observation_space=box(2), action_space=space)
    with pytest.raises(TypeError, match="suits no agent here: they take Box or Discrete; number its combinations"):
        AGENTS[name].make(host, None)


@pytest.mark.parametrize(
    ("name", "space", "instead"),
    [
        ("sac", gym.spaces.Discrete(3), "SAC needs a Box; use agent='sac_discrete'"),
        ("td3", gym.spaces.Discrete(3), "TD3 needs a Box; use agent='sac_discrete'"),
        ("sac_discrete", gym.spaces.Box(-1, 1, (2,)), "needs a Discrete; use agent='sac' or 'td3'"),
    ],
)
def test_an_agent_for_other_actions_names_the_one_to_use(name: str, space: gym.Space, instead: str) -> None:
    with pytest.raises(TypeError, match=instead):
        AGENTS[name].make(Host(observation_space=box(2), action_space=space), None)


@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (1.0, 1.0)])
def test_td3_needs_finite_bounds_that_lie_apart(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must have finite bounds, low below high"):
        Td3(Host(observation_space=box(2), action_space=gym.spaces.Box(*bounds, (1,))))


SHARED = [{"tau": 0.0}, {"tau": 1.5}, {"batch_size": 0}, {"burn_in": -1}, {"actor_lr": -1.0}, {"hidden": (256, 0)}]


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        *((config, wrong) for config in (Td3Config, SacDiscreteConfig) for wrong in SHARED),
        *((Td3Config, wrong) for wrong in ({"policy_frequency": 0}, {"exploration_noise": -0.1})),
        *((Td3Config, wrong) for wrong in ({"smoothing_noise": float("nan")}, {"smoothing_clip": -1.0})),
        *((SacDiscreteConfig, wrong) for wrong in ({"entropy_share": 1.0}, {"entropy_share": -0.1}, {"features": 0})),
    ],
)
def test_impossible_settings_are_refused_by_name(
    config: type[Td3Config] | type[SacDiscreteConfig], wrong: dict[str, Any]
) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError) as error:
        config(**wrong)
    assert f"{name}={value}" in str(error.value)


@every_other
def test_a_column_of_rewards_is_refused_and_nothing_is_learned(name: str) -> None:
    agent = make_agent(name)
    batch, bonus = make_data(name, 1, 0)
    before = {key: value.clone() for key, value in agent.state_dict().items()}
    with pytest.raises(ValueError, match=r"bonus has shape \(1, \d+, 1\), expected \(seeds, batch\)"):
        agent.update(batch, bonus[..., None], None)
    assert all(torch.equal(before[key], value) for key, value in agent.state_dict().items())


@every_other
def test_observations_of_another_population_are_refused(name: str) -> None:
    agent = make_agent(name, (0, 1))
    with pytest.raises(ValueError, match=r"obs has .*expected|obs has 1 seeds of 5 features, but this agent has 2"):
        agent.act(make_data(name, 1, 0)[0].obs)
