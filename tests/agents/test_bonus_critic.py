"""A bonus that is a return of its own: it goes on over the ends of episodes, and the actor maximises both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

import sasr
from sasr import Batch, Host
from sasr.agents import SacConfig, SacDiscreteConfig, Td3Config
from sasr.agents.bonus_critic import (
    SacDiscreteWithBonusCritic,
    SacWithBonusCritic,
    make_sac,
    make_sac_discrete,
)
from sasr.agents.sac import UpdateNoise
from sasr.experience.replay import Replay
from sasr.policy import load_policy
from sasr.shaping.rivals.rnd import RndConfig
from sasr.training import TrainConfig, Trainer
from sasr.training.fast import can_compile, compile_parts
from tests.agents.cases import make_data
from tests.conftest import box, make_step

ACTIONS = gym.spaces.Box(-1.0, 1.0, (2,))
DISCRETE = SacDiscreteConfig(hidden=(16, 16), actor_lr=3e-3, critic_lr=3e-3, temperature_lr=1e-2)
SMALL: dict[str, Any] = {"hidden": (16, 16), "burn_in": 40, "batch_size": 16}


def host_of(seeds: tuple[int, ...], *, separate: bool = True, discount: float = 0.9, discrete: bool = False) -> Host:
    actions = gym.spaces.Discrete(4, start=-1) if discrete else ACTIONS
    return Host(
        observation_space=box(5), action_space=actions, seeds=seeds, discount=discount, separate_stream=separate
    )


def make(seeds: tuple[int, ...] = (0, 1), *, discount: float = 0.9, **settings: Any) -> SacWithBonusCritic:
    agent = make_sac(host_of(seeds, discount=discount), SacConfig(hidden=(16, 16), **settings))
    assert isinstance(agent, SacWithBonusCritic)
    return agent


def make_discrete(seeds: tuple[int, ...] = (0, 1), *, discount: float = 0.9) -> SacDiscreteWithBonusCritic:
    agent = make_sac_discrete(host_of(seeds, discount=discount, discrete=True), DISCRETE)
    assert isinstance(agent, SacDiscreteWithBonusCritic)
    return agent


def test_the_bonus_goes_on_where_the_reward_ends() -> None:
    agent = make()
    batch, bonus = make_data("sac", 2, 0)
    for _ in range(20):
        agent.update(batch, bonus.abs(), agent.draw_noise(32))
    following = torch.randn(2, 32, 5)
    ended = batch._replace(terminated=torch.ones_like(batch.terminated), following=following)
    noise = agent.draw_noise(32)
    of_reward, of_bonus = agent.bootstrap(ended, noise)
    assert (of_reward == 0.0).all()
    with torch.no_grad():
        next_obs = agent._observed(following)
        action, _ = agent.actor.sample(next_obs, noise.target)
        values = agent.target_bonus_critic(next_obs, action)
    torch.testing.assert_close(of_bonus, 0.9 * torch.minimum(values[0], values[1]))
    assert (of_bonus != 0.0).any()


def test_the_bonus_of_discrete_actions_goes_on_too() -> None:
    agent = make_discrete()
    batch, bonus = make_data("sac_discrete", 2, 0)
    for _ in range(20):
        agent.update(batch, bonus.abs())
    following = torch.randn(2, 32, 5)
    ended = batch._replace(terminated=torch.ones_like(batch.terminated), following=following)
    of_reward, of_bonus = agent.bootstrap(ended)
    assert (of_reward == 0.0).all()
    chance = agent.log_policy(following).exp()
    values = agent.target_bonus_critic(following).amin(0)
    torch.testing.assert_close(of_bonus, 0.9 * sum(chance[..., a] * values[..., a] for a in range(4)))
    assert (of_bonus != 0.0).any()


def test_a_discrete_actor_maximises_the_sum_of_both_values() -> None:
    """The reward likes the first action a little, the bonus likes the last one more."""
    agent = make_discrete(discount=0.0)
    for t in range(300):
        batch, _ = make_data("sac_discrete", 2, t)
        reward, bonus = (batch.action == -1).float(), 3.0 * (batch.action == 2).float()
        figures = agent.update(batch._replace(reward=reward), bonus)
    best = agent.act(torch.randn(2, 100, 5), deterministic=True)
    assert (best == 2).all()
    assert (figures["bonus_q_mean"] > figures["q_mean"]).all()


def test_values_of_reward_and_bonus_are_learned_apart() -> None:
    """Every step ends its episode, pays a reward of 3 and a bonus of 1: worth 3, and 1/(1 − γ) = 2."""
    agent = make(discount=0.5, tau=0.1, critic_lr=3e-3)
    obs, action = torch.randn(2, 64, 5), torch.rand(2, 64, 2) * 2.0 - 1.0
    ends = torch.ones(2, 64, dtype=torch.bool)
    batch = Batch(obs, action, torch.full((2, 64), 3.0), obs, ends, following=obs)
    for _ in range(600):
        figures = agent.update(batch, torch.ones(2, 64), agent.draw_noise(64))
    torch.testing.assert_close(figures["q_mean"], torch.full((2,), 3.0), atol=0.2, rtol=0)
    torch.testing.assert_close(figures["bonus_q_mean"], torch.full((2,), 2.0), atol=0.2, rtol=0)


def test_the_actor_maximises_the_sum_of_both_values() -> None:
    """The reward likes actions below 0 a little, the bonus likes those above 0 more."""
    agent = make(actor_lr=3e-3, critic_lr=3e-3, temperature_lr=1e-2)
    for t in range(400):
        g = torch.Generator().manual_seed(t)
        obs, action = torch.randn(2, 64, 5, generator=g), torch.rand(2, 64, 2, generator=g) * 2.0 - 1.0
        liked = action.sum(-1)
        batch = Batch(obs, action, -liked, obs, torch.ones(2, 64, dtype=torch.bool), following=torch.randn(2, 64, 5))
        agent.update(batch, 3.0 * liked, agent.draw_noise(64))
    best = agent.act(torch.randn(2, 100, 5), deterministic=True)
    assert (best.mean((1, 2)) > 0.5).all()


@pytest.mark.parametrize("discrete", [False, True])
def test_without_a_bonus_it_is_the_plain_agent_bit_for_bit(discrete: bool) -> None:
    agents: list[Any] = []
    for separate in (True, False):
        host = host_of((0, 1), separate=separate, discrete=discrete)
        agents.append(make_sac_discrete(host, DISCRETE) if discrete else make_sac(host, SacConfig(hidden=(16, 16))))
    for t in range(4):
        batch, bonus = make_data("sac_discrete" if discrete else "sac", 2, t)
        for own in agents:
            own.update(batch, torch.zeros_like(bonus), own.draw_noise(32))
    apart, plain = (own.state_dict() for own in agents)
    assert len(apart) > len(plain)
    for name, value in plain.items():
        assert torch.equal(apart[name], value), name


def test_a_bonus_critic_of_one_seed_is_the_same_in_a_population() -> None:
    crowd, alone = make((3, 7)), make((7,))
    for t in range(3):
        batch, bonus = make_data("sac", 2, t)
        crowd.update(batch, bonus, crowd.draw_noise(32))
        own = Batch(*(None if field is None else field[1:] for field in batch))  # type: ignore[arg-type]
        alone.update(own, bonus[1:], alone.draw_noise(32))
    for ours, theirs in zip(alone.bonus_critic.parameters(), crowd.bonus_critic.parameters(), strict=True):
        assert torch.equal(ours.unflatten(0, (2, 1))[:, 0], theirs.unflatten(0, (2, 2))[:, 1])


def test_a_saved_agent_continues_bit_for_bit() -> None:
    agent, other = make(), make((4, 5))
    batch, bonus = make_data("sac", 2, 0)
    agent.update(batch, bonus, agent.draw_noise(32))
    other.load_state_dict(agent.state_dict())
    for own in (agent, other):
        own.update(batch, bonus, UpdateNoise(torch.zeros(2, 32, 2), torch.zeros(2, 2, 32, 2)))
    for name, value in agent.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


# --------------------------------------------------------------------- where steps go on


def test_what_follows_an_end_is_the_next_episodes_start() -> None:
    """Episode e has the states 100·e to 100·e + 3; every other one is cut by a time limit."""
    replay = Replay(Host(observation_space=box(1), action_space=box(1), separate_stream=True), capacity=100)
    for e in range(4):
        for t in range(3):
            at = torch.full((1, 1, 1), 100.0 * e + t)
            last = torch.full((1, 1), t == 2)
            step = make_step(at)._replace(next_obs=at + 1.0)
            replay.add(step._replace(terminated=last & (e % 2 == 0), truncated=last & (e % 2 == 1)))
    for n, ahead in ((1, 1.0), (3, 3.0)):
        batch = replay.sample_windows(200, n).batch(0.9)
        assert batch.following is not None
        obs = batch.obs[0, :, 0]
        led_to = torch.minimum(obs + ahead, obs - obs % 100.0 + 3.0)
        start = torch.where(led_to % 100.0 == 3.0, led_to + 97.0, led_to)
        expected = torch.where(led_to == 303.0, led_to, start)  # behind the newest step there is nothing yet
        torch.testing.assert_close(batch.next_obs[0, :, 0], led_to)
        torch.testing.assert_close(batch.following[0, :, 0], expected)
    plain = Replay(Host(observation_space=box(1), action_space=box(1)), capacity=100)
    plain.add(make_step(torch.zeros(1, 1, 1)))
    assert plain.sample(1).following is None


# --------------------------------------------------------------------------- which runs have it


@pytest.mark.parametrize(
    ("agent", "separate", "apart"),
    [
        (SacConfig(**SMALL), True, True),
        (SacConfig(**SMALL), False, False),
        (Td3Config(**SMALL), True, False),
    ],
)
def test_a_shaper_gets_critics_of_its_own_where_it_and_the_agent_can(agent: Any, separate: bool, apart: bool) -> None:
    name = "td3" if isinstance(agent, Td3Config) else "sac"
    shaping = RndConfig(hidden=(8,), separate_stream=separate)
    config = TrainConfig(
        task="TwoRooms", agent=name, agent_config=agent, shaper="rnd", shaper_config=shaping, steps=100, workers=0
    )
    with Trainer(config) as trainer:
        figures = trainer.loop.run(60)
        assert isinstance(trainer.learner.agent, SacWithBonusCritic) == apart
        assert trainer.learner.shaper is not None
        assert trainer.learner.shaper.bound.separate_stream == apart
    assert ("train/bonus_q_mean" in figures) == apart


def test_a_run_with_a_bonus_apart_is_loaded_as_the_policy_that_it_is(tmp_path: Path) -> None:
    run = sasr.train(
        "TwoRooms",
        agent=SacConfig(**SMALL),
        shaper="rnd",
        steps=80,
        eval_every=0,
        out=tmp_path / "run",
        device="cpu",
        workers=0,
        progress=False,
    )
    obs = gym.spaces.Box(0.0, 1.0, (2,), seed=0).sample()
    assert load_policy(run.folder).predict(obs)[0].shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="needs a C++ compiler")
def test_compiled_updates_equal_plain_ones(discrete: bool) -> None:
    make_own: Any = make_discrete if discrete else make
    plain, compiled = make_own(), make_own()
    compile_parts([compiled])
    for t in range(4):
        batch, bonus = make_data("sac_discrete" if discrete else "sac", 2, t)
        for own in (plain, compiled):
            own.update(batch, bonus, own.draw_noise(32))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)
