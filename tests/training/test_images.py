"""Runs on images, where the policy sees stacks of frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation
from torch import Tensor

import sasr
from sasr.agents import PpoConfig, SacDiscreteConfig
from sasr.agents.registry import AGENTS
from sasr.api import complete
from sasr.envs.population import Population
from sasr.experiments import Method
from sasr.final_evaluation import evaluate_policy, rows, write_evaluation
from sasr.training import TrainConfig
from sasr.training.evaluate import evaluate
from sasr.training.pace import ImagePace

from .runs import Pictures, config_of, run, shaped, state_of

AGENT_SETTINGS: dict[str, Any] = {
    "sac_discrete": SacDiscreteConfig(features=4, burn_in=20, batch_size=8, update_every=4),
    "ppo": PpoConfig(features=4, rollout=24, minibatches=2, epochs=1),
}
agents = pytest.mark.parametrize("agent", AGENT_SETTINGS)


def images(name: str, **settings: Any) -> TrainConfig:
    given: dict[str, Any] = {"task": "Pictures-v0", "steps": 70, "eval_every": 0, **shaped("auto")}
    return config_of(**(given | {"agent": name, "agent_config": AGENT_SETTINGS[name]} | settings))


class Game(Pictures):
    """Pictures with a score beside the reward, as games have it."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self.score = 0.0
        return super().reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.score += 2.0
        return *super().step(action)[:4], {"game_score": self.score}


def game() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Game(), 12)


# ------------------------------------------------------------------ training


@agents
def test_a_seed_learns_the_same_alone_and_among_others(agent: str) -> None:
    _, both = run(images(agent, seeds=(5, 6), environments=2))
    _, alone = run(images(agent, seeds=(6,), environments=2))
    assert both.learner.frame_stack == 4
    stacks = [trainer.learner.save()["frames"]["stacks"] for trainer in (both, alone)]
    assert torch.equal(stacks[0][1], stacks[1][0])
    rounding = 1e-5 if agent == "ppo" else 0.0  # in how long a seed's gradient is
    ours = dict(alone.learner.agent.named_parameters())
    for name, parameter in both.learner.agent.named_parameters():
        of_seed = parameter.unflatten(0, (-1, 2))[:, 1]  # the second critics of all seeds come after the first ones
        torch.testing.assert_close(of_seed, ours[name].view_as(of_seed), rtol=0.0, atol=rounding)


@agents
def test_without_its_replay_a_resumed_run_still_shows_the_policy_the_same_stacks(agent: str, tmp_path: Path) -> None:
    config = images(agent, checkpoint_replay=False)
    _, stopped = run(config, tmp_path, stop_at=43)
    with sasr.training.Trainer(config, folder=tmp_path) as trainer:
        trainer.resume()
        again = state_of(trainer)
    frames = [name for name in again if name.startswith("frames.")]
    assert len(frames) == 2
    assert all(torch.equal(again[name], stopped.state[name]) for name in frames)


@pytest.mark.parametrize("shaper", ["explors", "gfa_rfe", "relara", "rnd"])
def test_shapers_that_ask_the_policy_ask_about_single_frames(shaper: str) -> None:
    recorder, _ = run(images("sac_discrete", shaper=shaper, preset="auto", shaper_config=None, steps=40))
    assert recorder.events


@agents
def test_a_stack_of_one_frame_is_an_agent_that_sees_single_frames(agent: str) -> None:
    _, trainer = run(images(agent, frame_stack=1, steps=30))
    assert trainer.learner.frames is None
    assert "frames" not in trainer.learner.save()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frame_stack": 30}, "longer than an episode: 25 steps show 26 frames"),
        ({"frame_stack": 4, "max_episode_steps": 2}, "at most frame_stack=3"),
        ({"frame_stack": 2, "task": "CartPole-v1"}, "frame_stack=2 is for images"),
        ({"agent": "sac", "agent_config": None}, "Discrete.*agent='sac_discrete'"),
        ({"agent": "td3", "agent_config": None}, "Discrete.*agent='sac_discrete'"),
    ],
)
def test_settings_that_do_not_suit_images_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        run(images("sac_discrete", **settings))


# ------------------------------------------------------------------ evaluation


def test_an_evaluation_shows_the_policy_what_gymnasium_stacks() -> None:
    shown: list[Tensor] = []

    def act(seen: Tensor) -> Tensor:
        shown.append(seen[0, 0].clone())
        return torch.zeros(seen.shape[:2], dtype=torch.int64)

    with Population("Pictures-v0", seeds=[3], environments=1, workers=0) as population:
        result = evaluate(population, act, frame_stack=3)
        start = population.reset("evaluation")[0, 0]
    env = FrameStackObservation(Pictures(), 3, padding_type="reset")
    for seed in range(2):  # of the wrapper's own generator: only how frames follow each other is compared
        stack, _ = env.reset(seed=seed)
        assert np.array_equal(stack[0], stack[2])
    assert len(shown) == int(result.lengths[0, 0])
    frames = [torch.from_numpy(start), *(stack[-1] for stack in shown[1:])]
    for t, stack in enumerate(shown):
        expected = [frames[max(0, t - back)] for back in (2, 1, 0)]
        assert torch.equal(stack, torch.stack(expected))


@agents
def test_predict_carries_the_stack_from_call_to_call(agent: str, tmp_path: Path) -> None:
    run_of = sasr.train(
        "Pictures-v0" if agent == "ppo" else game,
        agent=AGENT_SETTINGS[agent],
        shaper="none",
        steps=40,
        environments=2,
        eval_every=0,
        out=tmp_path / "run",
        progress=False,
        events=False,
    )
    policy = run_of.policy()
    env = FrameStackObservation(Pictures(), 4, padding_type="reset")
    stack, _ = env.reset(seed=1)
    state = None
    for _ in range(6):
        action, state = policy.predict(stack[-1], state)
        assert state is not None
        assert np.array_equal(state[0], stack)
        assert action == policy.act(torch.from_numpy(stack)[None, None])[0, 0]
        stack, *_ = env.step(np.int64(0))
    frames = np.stack([stack[-1], stack[-1]])
    _, both = policy.predict(frames, np.stack([stack, stack]), episode_start=[True, False])
    assert both is not None
    assert np.array_equal(both[0], np.stack([stack[-1]] * 4))
    assert np.array_equal(both[1], np.stack([*stack[1:], stack[-1]]))
    with pytest.raises(ValueError, match="state has shape"):
        policy.predict(frames, stack)


def test_the_score_of_a_game_is_in_every_evaluation(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"agent": AGENT_SETTINGS["sac_discrete"], "shaper": "none", "progress": False}
    run_of = sasr.train(game, steps=40, eval_every=20, eval_episodes=2, out=tmp_path / "run", events=False, **settings)
    for event in run_of.metrics("evaluation"):
        assert event["score_mean"] == 2.0 * event["length_mean"]
    policy = run_of.policy()
    result = evaluate_policy(policy, episodes=3, workers=0, task=game)
    assert np.array_equal(result.scores, 2.0 * result.lengths)
    written = json.loads(write_evaluation(policy, result, seed=0, deterministic=True).read_text())
    assert written["rows"][0]["score_mean"] == result.scores.mean()
    assert written["members"][0]["scores"] == result.scores[0].tolist()
    assert rows(policy, result)[0].score[0] == result.scores.mean()


# ------------------------------------------------------------------ defaults


def test_games_have_the_usual_settings_of_games_and_vectors_keep_theirs() -> None:
    game_config = complete(TrainConfig(task="Pictures-v0"))
    assert (game_config.agent, game_config.environments) == ("sac_discrete", 1)
    assert (game_config.agent_config.batch_size, game_config.agent_config.update_every) == (64, 4)
    ppo = complete(TrainConfig(task="Pictures-v0", agent="ppo"))
    assert ppo.environments == 8
    assert ppo.agent_config.rollout == 8 * 128
    assert (ppo.agent_config.clip, ppo.agent_config.entropy_weight, ppo.agent_config.epochs) == (0.1, 0.01, 4)
    for agent, environments in (("auto", 3), ("ppo", None)):
        vectors = complete(TrainConfig(task="CartPole-v1", agent=agent, environments=environments))
        assert vectors.agent_config == AGENTS[vectors.agent].settings()
        assert vectors.environments == (environments or 1)


def test_a_setting_of_ones_own_leaves_the_others_as_games_have_them() -> None:
    method = Method(name="mine", agent_settings={"burn_in": 77})
    config = method.config("Pictures-v0", seeds=[0], steps=100)
    assert (config.agent_config.burn_in, config.agent_config.batch_size) == (77, 64)
    plain = Method(name="mine", agent="ppo", agent_settings={"epochs": 2}).config("Pictures-v0", seeds=[0], steps=100)
    assert (plain.agent_config.epochs, plain.agent_config.minibatches) == (2, 4)


# ------------------------------------------------------------------ how long it takes


def test_on_a_cpu_it_is_said_how_slow_images_are_and_how_long_the_run_takes() -> None:
    pace = ImagePace(steps=1_000, cycle=4, device=torch.device("cpu"), burn_in=100)
    assert "100 steps" in pace.start
    texts = [pace.turned(0.01, 1, at=t, learning=False) for t in range(100)]
    texts += [pace.turned(0.5, 1, at=100 + t, learning=True) for t in range(100)]
    (text,) = filter(None, texts)
    assert "50 times slower than the games alone (100 steps/s)" in text
    assert "2 steps/s" in text
    assert texts.index(text) == 119  # ten seconds of learning, and whole cycles
    assert "881 more steps take about 0:07:20" in text


def test_rollouts_are_measured_whole_and_an_accelerator_once_it_is_warm() -> None:
    pace = ImagePace(steps=10_000, cycle=80, device=torch.device("cuda"))
    assert not pace.start
    seconds = [5.0 if t % 10 == 9 else 0.1 for t in range(300)]  # updates come with every tenth turn
    texts = [pace.turned(second, 8, at=8 * t, learning=t >= 10) for t, second in enumerate(seconds)]
    (text,) = filter(None, texts)
    assert texts.index(text) >= 110
    assert f"{160 / 11.8:.3g} steps/s" in text
    assert "CPU" not in text
