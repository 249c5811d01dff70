from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sasr import SASR, Host, RewardShaper
from sasr.agents import Ppo, PpoConfig
from sasr.envs.population import Population
from sasr.training import Loop, OnPolicy, TrainConfig, Trainer
from sasr.training.fast import can_compile
from tests.agents.walks import CONTINUOUS, SMALL, Novelty, Walk, go_on, make_learner

TINY = PpoConfig(hidden=(16, 16), rollout=32, minibatches=4, epochs=2)


def run(
    steps: int, *, seeds: tuple[int, ...] = (0, 1), task: str = "Pendulum-v1", shaper: RewardShaper | None = None
) -> OnPolicy:
    with Population(task, seeds=seeds, environments=2, workers=0) as population:
        host = Host(
            observation_space=population.observation_space,
            action_space=population.action_space,
            seeds=seeds,
            envs=2,
        )
        learner = OnPolicy(host, Ppo(host, TINY), shaper=shaper)
        Loop(population, learner).run(steps)
    return learner


def same_weights(one: OnPolicy, other: OnPolicy) -> bool:
    ours, theirs = one.agent.state_dict(), other.agent.state_dict()
    return all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_full_rollout_is_learned_from_at_the_next_turn_and_then_dropped() -> None:
    for steps, updates, stored in ((32, 0, 32), (34, 8, 2), (64, 8, 32), (66, 16, 2)):
        learner = run(steps, seeds=(0,))
        assert float(learner.agent.adam.get_buffer("steps")) == updates
        assert len(learner.rollouts) == stored


def test_a_shaper_of_weight_zero_is_plain_ppo_bit_for_bit() -> None:
    plain = run(140)
    assert same_weights(plain, run(140, shaper=SASR(reward_weight=0.0)))
    shaped = run(140, shaper=SASR(reward_weight=1.0))
    assert not same_weights(plain, shaped)
    assert (shaped.rollouts.reward[:, :6] <= 0.0).all()  # Pendulum's own; the shaped reward is another


def test_a_seed_alone_and_in_a_population_takes_the_same_steps() -> None:
    alone, crowd = run(100, seeds=(5,), task="CartPole-v1"), run(100, seeds=(4, 5, 6), task="CartPole-v1")
    torch.testing.assert_close(alone.rollouts.obs[0], crowd.rollouts.obs[1], rtol=0, atol=1e-4)
    assert torch.equal(alone.rollouts.action[0], crowd.rollouts.action[1])
    assert not torch.equal(crowd.rollouts.obs[0], crowd.rollouts.obs[1])


def test_the_shaper_sees_each_step_once_and_the_whole_rollout_after_its_last_step() -> None:
    shaper = Novelty()
    learner = make_learner((0, 1), replace(SMALL, value_heads=2), actions=CONTINUOUS, shaper=shaper)
    go_on(learner, Walk(2, 2), 20)  # two rollouts of eight rows, and a few more
    assert len(shaper.observed) == 19
    (first, batch), (second, _) = shaper.shaped
    assert (first, second) == (8, 16)
    assert batch.obs.shape == (2, 16, 3)
    for name in ("obs", "action", "reward", "next_obs", "terminated"):
        seen = torch.stack([getattr(step, name) for step in shaper.observed[:8]], dim=1).flatten(1, 2)
        assert torch.equal(getattr(batch, name), seen)
    assert len(shaper.updated) == 2 * SMALL.epochs * SMALL.minibatches
    assert shaper.updated[0].reward.shape == (2, 4)


def test_actions_are_learned_from_as_they_were_drawn_and_taken_clipped() -> None:
    learner, walk = make_learner(actions=CONTINUOUS), Walk(1, 2)
    taken = []
    for _ in range(8):
        taken.append(learner.act(walk.obs))
        learner.store(walk.step(taken[-1]))
    drawn, taken_ = learner.rollouts.action, torch.stack(taken, dim=1)
    assert torch.equal(drawn.clamp(torch.tensor(CONTINUOUS.low), torch.tensor(CONTINUOUS.high)), taken_)
    assert (drawn != taken_).any()
    outputs = learner.agent.net.policy(learner.rollouts.obs.flatten(1, 2))
    log_prob = learner.agent.policy.log_prob(outputs, drawn.flatten(1, 2))
    torch.testing.assert_close(log_prob.detach(), learner.rollouts.log_prob.flatten(1, 2))


def test_the_step_under_way_while_learning_keeps_the_likelihood_of_the_policy_that_chose_it() -> None:
    learner, walk = make_learner(config=replace(SMALL, lr=0.05), actions=CONTINUOUS), Walk(1, 2)
    go_on(learner, walk, 8)
    action = learner.act(walk.obs)
    assert learner.acted is not None
    expected = learner.acted.log_prob.clone()
    learner.learn(1)
    learner.store(walk.step(action))
    assert torch.equal(learner.rollouts.log_prob[:, 0], expected)
    outputs = learner.agent.net.policy(learner.rollouts.obs[:, 0])
    assert not torch.allclose(learner.agent.policy.log_prob(outputs, learner.rollouts.action[:, 0]), expected)


def test_truncation_can_be_taken_as_terminal() -> None:
    targets = []
    for terminal in (False, True):
        learner, walk = make_learner(), Walk(1, 2)
        learner.truncation_is_terminal = terminal
        go_on(learner, walk, 8)
        learner.prepare(walk.obs)
        targets.append(learner.target[0, :, 0])
    stored = learner.rollouts
    cut_by_limit = (stored.truncated & ~stored.terminated).flatten()
    assert cut_by_limit.any()
    torch.testing.assert_close(targets[1][cut_by_limit], stored.reward.flatten()[cut_by_limit])
    assert (targets[0][cut_by_limit] != targets[1][cut_by_limit]).all()


@pytest.mark.parametrize("cut", [3, 8, 12])
def test_a_saved_learner_continues_bit_for_bit_also_in_the_middle_of_a_rollout(cut: int, tmp_path: Path) -> None:
    learner, walk = make_learner((0, 1), shaper=SASR(reward_weight=0.5)), Walk(2, 2)
    go_on(learner, walk, cut)
    for part, tensors in learner.save().items():
        save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / part)
    resumed = make_learner((2, 3), shaper=SASR(reward_weight=0.5))
    resumed.load({path.name: load_file(path) for path in tmp_path.iterdir()})
    for own in (learner, resumed):
        again = Walk(2, 2, offset=90)
        again.obs = walk.obs
        go_on(own, again, 20)
    assert same_weights(learner, resumed)
    ours, theirs = learner.save(), resumed.save()
    assert all(torch.equal(ours[part][key], theirs[part][key]) for part in ours for key in ours[part])


def test_without_saved_steps_a_new_rollout_begins() -> None:
    learner, walk = make_learner(), Walk(1, 2)
    go_on(learner, walk, 5)
    saved = learner.save(replay=False)
    assert "replay" not in saved
    learner.load(saved)
    assert len(learner.rollouts) == 0
    go_on(learner, walk, 9)
    assert learner.agent.rollouts == 1


def test_a_step_that_was_not_acted_for_is_refused() -> None:
    learner, walk = make_learner(), Walk(1, 2)
    with pytest.raises(RuntimeError, match="call `act` before each `store`"):
        learner.store(walk.step(learner.act_randomly()))


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="needs a C++ compiler")
def test_compiled_updates_equal_plain_ones() -> None:
    # Minibatches of 16: torch 2.13 compiles wrong gradients of tanh networks side by side on a CPU for fewer than 8.
    config = replace(SMALL, rollout=64)
    plain, compiled = (
        make_learner((0, 1), config, actions=CONTINUOUS, accelerate=mode) for mode in ("eager", "compile")
    )
    for learner in (plain, compiled):
        go_on(learner, Walk(2, 2), 70)
        assert learner.agent.rollouts == 2
    for key, value in plain.agent.state_dict().items():
        torch.testing.assert_close(compiled.agent.state_dict()[key], value, rtol=1e-4, atol=1e-5, msg=key)


# ------------------------------------------------------------------ from settings


def test_value_heads_follow_what_the_shaper_says_unless_they_are_set() -> None:
    for shaper, asked, heads in (("rnd", None, 2), ("rnd", 1, 1), ("sasr", None, 1), ("none", None, 1)):
        own = replace(TINY, value_heads=asked)
        config = TrainConfig(task="CartPole-v1", agent="ppo", steps=80, agent_config=own, shaper=shaper, workers=0)
        with Trainer(config) as trainer:
            assert trainer.learner.agent.config.value_heads == heads
            if trainer.learner.shaper is not None:
                assert trainer.learner.shaper.bound.separate_stream == (heads == 2)


def test_a_run_is_made_from_its_settings_and_evaluates() -> None:
    config = TrainConfig(task="CartPole-v1", agent="ppo", steps=80, environments=2, agent_config=TINY, workers=0)
    assert TrainConfig.from_json(config.to_json()) == config
    with Trainer(config) as trainer:
        assert trainer.run()
        assert isinstance(trainer.learner, OnPolicy)
        assert trainer.learner.agent.rollouts == 2
        assert trainer.evaluate().returns.shape == (1, 5)
        assert "shaping/bonus_mean" in trainer.loop.figures
        assert trainer.loop.figures["train/explained_variance"].shape == (1,)


def test_a_run_too_short_for_its_first_rollout_is_refused() -> None:
    config = TrainConfig(task="CartPole-v1", agent="ppo", steps=32, agent_config=TINY, workers=0)
    with pytest.raises(ValueError, match="steps=32 ends before anything is learned from a first rollout of 32"):
        Trainer(config)


# ------------------------------------------------------------------ learning


@pytest.mark.slow
def test_ppo_solves_cart_pole() -> None:
    settings = PpoConfig(rollout=1_024, minibatches=4, lr=1e-3, entropy_weight=0.01)
    config = TrainConfig(
        task="CartPole-v1",
        agent="ppo",
        shaper="none",
        steps=60_000,
        environments=8,
        eval_episodes=20,
        agent_config=settings,
        device="cpu",
        workers=0,
    )
    with Trainer(config) as trainer:
        best = 0.0
        while best < 475.0 and not trainer.finished:
            trainer.loop.run(2_048)
            best = max(best, float(trainer.evaluate().returns.mean()))
    assert best >= 475.0
