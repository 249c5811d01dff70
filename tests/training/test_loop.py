from __future__ import annotations

from typing import Any

import pytest
import torch

from sasr import SASR, Batch, Host, Shaper
from sasr.agents import PpoConfig, Sac, SacConfig, SacDiscreteConfig, Td3Config
from sasr.envs.population import Population
from sasr.training import Loop, OffPolicy, TrainConfig, Trainer

from .runs import config_of, shaped
from .runs import run as run_whole

TINY = SacConfig(hidden=(16, 16), burn_in=40, batch_size=16)


def learner_of(
    population: Population,
    config: SacConfig,
    *,
    shaper: Shaper | None = None,
    capacity: int = 300,
) -> OffPolicy:
    host = Host(
        observation_space=population.observation_space,
        action_space=population.action_space,
        seeds=population.seeds,
        envs=population.environments,
    )
    return OffPolicy(host, Sac(host, config), shaper=shaper, capacity=capacity)


class Recorded(Loop):
    """A loop that remembers the returns of its episodes."""

    def __init__(self, population: Population, learner: OffPolicy) -> None:
        super().__init__(population, learner)
        self.agent, self.replay, self.shaper = learner.agent, learner.replay, learner.shaper
        self.returns: list[list[float]] = [[] for _ in population.seeds]

    def turn(self) -> list:
        ended = super().turn()
        for episode in ended:
            self.returns[episode.member].append(episode.ret)
        return ended


def run(steps: int, *, seeds: tuple[int, ...] = (0, 1), envs: int = 1, shaper: Shaper | None = None) -> Recorded:
    with Population("Pendulum-v1", seeds=seeds, environments=envs, workers=0) as population:
        loop = Recorded(population, learner_of(population, TINY, shaper=shaper))
        loop.run(steps)
    loop.learner.learn(0)  # the newest step waits for the environments to be busy again
    return loop


def same_weights(one: Recorded, other: Recorded) -> bool:
    ours, theirs = one.agent.state_dict(), other.agent.state_dict()
    return all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_one_update_for_each_step_after_the_burn_in() -> None:
    loop = run(100, envs=2)
    assert loop.steps == 100
    assert loop.agent.updates == 60
    assert len(loop.replay) == 100


@pytest.mark.parametrize("environments", [1, 3, 8])
def test_updates_may_come_every_few_steps(environments: int) -> None:
    settings = SacDiscreteConfig(hidden=(8,), burn_in=32, batch_size=16, update_every=4)
    config = config_of(
        task="CartPole-v1", agent="sac_discrete", agent_config=settings, environments=environments, eval_every=0
    )
    _, trainer = run_whole(config)
    first = -(-32 // environments) * environments  # all environments finish the burn-in
    assert trainer.learner.agent.updates == trainer.loop.steps // 4 - first // 4


def test_on_images_a_shaper_of_weight_zero_is_the_plain_agent_bit_for_bit() -> None:
    settings = SacDiscreteConfig(features=4, burn_in=30, batch_size=16, update_every=4)
    images: dict[str, Any] = {"task": "Pictures-v0", "agent": "sac_discrete", "agent_config": settings, "steps": 60}
    _, plain = run_whole(config_of(**images, shaper="none", eval_every=0))
    _, zero = run_whole(config_of(**images, **shaped("auto", reward_weight=0.0), eval_every=0))
    assert zero.learner.shaper is not None
    theirs = zero.learner.agent.state_dict()
    assert all(torch.equal(entry, theirs[name]) for name, entry in plain.learner.agent.state_dict().items())


def test_a_shaper_of_weight_zero_is_plain_sac_bit_for_bit() -> None:
    plain = run(120)
    assert same_weights(plain, run(120, shaper=SASR(reward_weight=0.0)))
    assert not same_weights(plain, run(120, shaper=SASR(reward_weight=1.0)))


class Column(SASR):
    """Returns its bonuses as a column, which would broadcast to a batch mean."""

    def shape(self, batch: Batch) -> torch.Tensor:
        return super().shape(batch).unsqueeze(-1)


LEARNERS: dict[str, dict[str, Any]] = {
    "sac": {"task": "Pendulum-v1", "agent_config": TINY},
    "td3": {"task": "Pendulum-v1", "agent_config": Td3Config(hidden=(16,), burn_in=40, batch_size=16)},
    "sac_discrete": {
        "task": "CartPole-v1",
        "agent_config": SacDiscreteConfig(hidden=(16,), burn_in=40, batch_size=16),
    },
    "ppo": {"task": "Pendulum-v1", "agent_config": PpoConfig(hidden=(16,), rollout=16, minibatches=2, epochs=1)},
}


@pytest.mark.parametrize("agent", LEARNERS)
def test_bonuses_of_a_wrong_shape_are_refused_where_they_are_learned_from(agent: str) -> None:
    config = TrainConfig(agent=agent, shaper="custom", seeds=(0,), steps=60, workers=0, device="cpu", **LEARNERS[agent])
    with (
        Trainer(config, shaper=Column()) as trainer,
        pytest.raises(ValueError, match=r"bonus has shape \(1, \d+, 1\), expected \(seeds, batch\) = \(1, \d+\)"),
    ):
        trainer.run()


def test_the_stored_reward_is_the_environments() -> None:
    plain, shaped = run(60), run(60, shaper=SASR(reward_weight=100.0))
    assert torch.equal(plain.replay.reward[:, :41], shaped.replay.reward[:, :41])  # the burn-in and one step after
    assert (shaped.replay.reward <= 0.0).all()  # Pendulum's; the shaped reward would be far above


def test_an_episode_cut_by_its_time_limit_is_stored_as_truncated_with_its_last_observation() -> None:
    loop = run(205, seeds=(3,))
    assert loop.replay.truncated[0, :205, 0].nonzero().tolist() == [[199]]
    assert not loop.replay.terminated.any()
    assert loop.replay.aside[0, :205, 0].tolist() == [-1] * 199 + [0] + [-1] * 5
    start, aside = loop.replay.obs[0, 200, 0], loop.replay.finals[0]
    assert (aside - loop.replay.obs[0, 199, 0]).abs().max() < 1.0  # one step on; the new episode starts elsewhere
    assert not torch.equal(aside, start)
    assert len(loop.returns[0]) == 1
    assert loop.returns[0][0] == pytest.approx(float(loop.replay.reward[0, :200].sum()), rel=1e-5)


def test_sasr_marks_slots_in_the_replay_also_when_it_wraps() -> None:
    flags, own = (run(450, seeds=(0,), shaper=SASR(storage=name, retention=1.0)) for name in ("flags", "own"))
    flagged: Any = flags.shaper
    owned: Any = own.shaper
    stored = flagged.evidence.store.select(0, 1)  # failures: an episode of Pendulum is never rewarded
    assert 0 < len(stored) <= 300 < len(owned.evidence.store.select(0, 1))
    rows = flags.replay.obs[0, :, 0]
    assert all((rows == state).all(-1).any() for state in stored)


def test_a_seed_alone_and_in_a_population_takes_the_same_steps() -> None:
    alone, crowd = run(80, seeds=(5,)), run(80, seeds=(4, 5, 6))
    torch.testing.assert_close(alone.replay.obs[0], crowd.replay.obs[1], rtol=0, atol=1e-4)
    assert torch.equal(alone.replay.action[0, :40], crowd.replay.action[1, :40])
    assert not torch.equal(crowd.replay.obs[0], crowd.replay.obs[1])


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"burn_in": 10}, "burn_in=10 is"), ({"batch_size": 301, "burn_in": 400}, "capacity=300 is")],
)
def test_a_burn_in_or_capacity_shorter_than_a_batch_is_refused(wrong: dict[str, Any], name: str) -> None:
    config = SacConfig(**({"burn_in": 40, "batch_size": 16} | wrong))
    with Population("Pendulum-v1", seeds=[0], workers=0) as population, pytest.raises(ValueError, match=name):
        learner_of(population, config)


def test_the_memory_of_a_learner_counts_all_that_is_held() -> None:
    """Twice as much for twice the seeds, and 27 bytes more for each step of Pendulum that the replay buffer takes."""

    def held(seeds: int, capacity: int, shaper: Shaper | None = None) -> int:
        with Population("Pendulum-v1", seeds=range(seeds), workers=0) as population:
            return learner_of(population, TINY, shaper=shaper, capacity=capacity).held_bytes

    assert held(8, 1000) == pytest.approx(2 * held(4, 1000), rel=0.02)
    # A state of 3, an action and a reward in float32, 3 flags, where its next state is, and a hundredth of a state.
    assert held(1, 20_000) - held(1, 10_000) == pytest.approx(10_000 * (20 + 3 + 4 + 0.12), rel=1e-3)
    features = 1000 * (3 + 1) * 4  # frequencies and phases; the sums are 2,000 numbers of 8 bytes
    assert held(1, 1000, SASR()) - held(1, 1000) >= features + 2000 * 8
