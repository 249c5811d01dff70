"""A run that was stopped and resumed is the run that was never stopped, bit for bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sasr.agents.ppo import PpoConfig
from sasr.agents.sac_discrete import SacDiscreteConfig
from sasr.agents.td3 import Td3Config
from sasr.shaping.rivals.rnd import RndConfig
from sasr.training import TrainConfig, Trainer
from sasr.training.trainer import CHECKPOINTS

from .runs import Ended, Everything, config_of, differences, run, shaped

RUNS: dict[str, dict[str, Any]] = {
    "none": {"shaper": "none"},
    "auto": shaped("auto"),
    "authors": shaped("authors"),
    "paper": shaped("paper", scaling="density"),
    "flags": shaped("auto", storage="flags", success_rule="segments", segment_steps=7),
    "td3": {"agent": "td3", "agent_config": Td3Config(hidden=(8, 8), burn_in=30, batch_size=16), **shaped("auto")},
    "discrete": {
        "task": "CartPole-v1",
        "agent": "sac_discrete",
        "agent_config": SacDiscreteConfig(hidden=(8, 8), burn_in=30, batch_size=16),
        **shaped("auto"),
    },
    "images": {
        "task": "Pictures-v0",
        "agent": "sac_discrete",
        "agent_config": SacDiscreteConfig(features=4, burn_in=30, batch_size=16, update_every=4),
        **shaped("auto"),
    },
    "images, ppo": {
        "task": "Pictures-v0",
        "agent": "ppo",
        "agent_config": PpoConfig(rollout=28, minibatches=3, epochs=2, features=4),
        **shaped("auto"),
    },
    "ppo": {
        "agent": "ppo",
        "agent_config": PpoConfig(rollout=28, minibatches=3, epochs=2, hidden=(8, 8), lr_decay=300),
        **shaped("auto"),
    },
    "bonus apart": {"shaper": "rnd", "shaper_config": RndConfig(hidden=(8,), outputs=4)},
    "exact": shaped("paper", estimator="exact", bandwidth="median"),
    "options": shaped("auto", paid_end="lost", sample="ratio", success_rule="segments"),
}


@pytest.mark.parametrize(
    ("name", "environments"),
    [*((name, 1 + k % 2) for k, name in enumerate(RUNS)), ("none", 2), ("authors", 2)],
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, name: str, environments: int) -> None:
    config = config_of(environments=environments, **RUNS[name])
    whole, expected = run(config)
    assert any(event[0] == "evaluation" for event in whole.events)
    events: list[Any] = []
    for cut in (17, 60, 137, None):  # in the burn-in, at an evaluation, after the replay wrapped
        recorder, trainer = run(config, tmp_path, stop_at=cut, events=events)
        assert trainer.finished == (cut is None)
        assert recorder.notices == []
    assert events == whole.events
    assert differences(trainer.state, expected.state) == []


def test_episodes_are_cut_in_the_middle_by_these_tests(tmp_path: Path) -> None:
    """Else the environments' way back would not be tested by them."""
    _, trainer = run(config_of(), tmp_path, stop_at=137)
    assert (trainer.loop.open_length > 0).all()


def test_the_number_of_workers_does_not_matter_to_a_resumed_run(tmp_path: Path) -> None:
    config = config_of(eval_every=0, **shaped("auto"))
    _, expected = run(config)
    run(config, tmp_path, stop_at=100)
    _, trainer = run(dataclasses.replace(config, workers=2), tmp_path)
    assert differences(trainer.state, expected.state) == []


def test_what_was_recorded_after_the_checkpoint_is_taken_back(
    whole: tuple[Everything, Ended], stopped_twice: tuple[Path, list[Any]]
) -> None:
    folder, events = stopped_twice
    events.append(("figures", 127, "of a run that was killed"))
    again, _ = run(config_of(**shaped("auto")), folder, events=events)
    assert again.events == whole[0].events


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    config = config_of(shaper="none", steps=60)
    first, _ = run(config, tmp_path)
    again, trainer = run(config, tmp_path, events=list(first.events))
    assert trainer.finished
    assert again.events == first.events


@pytest.mark.parametrize("checkpoint_replay", [True, False])
def test_an_episode_that_cannot_be_played_again_restarts_and_is_told(tmp_path: Path, checkpoint_replay: Any) -> None:
    config = config_of(task="Forgetful-v0", environments=2, checkpoint_replay=checkpoint_replay, **shaped("auto"))
    run(config, tmp_path, stop_at=138)
    recorder = Everything(stop_at=140)
    with Trainer(config, folder=tmp_path, recorder=recorder) as trainer:
        assert trainer.resume()
        shaper: Any = trainer.learner.shaper
        segmenter, evidence = shaper.segmenter, shaper.evidence.estimator
        counted = evidence.size.clone()
        assert (trainer.loop.open_length == 0).all()
        assert (segmenter.length == 0).all()
        trainer.run()
        assert (segmenter.length == 0).all()  # the last step of what broke off belongs to no episode either
        assert torch.equal(evidence.size, counted)
        trainer.loop.run(2)
        assert (segmenter.length == 1).all()  # the new episodes' first
    assert sum("restarts" in text for text in recorder.notices) == 4
    assert "the episode of seed 1, environment 0 restarts" in " ".join(recorder.notices)


def test_a_member_whose_episode_restarts_does_not_touch_the_others(
    whole: tuple[Everything, Ended], stopped_twice: tuple[Path, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole[1]
    with Trainer(config_of(**shaped("auto")), folder=stopped_twice[0]) as trainer:
        restore = trainer.population.restore
        monkeypatch.setattr(trainer.population, "restore", lambda saved: restore(_forged(saved)))
        assert trainer.resume()
        trainer.run()
        state = trainer.learner.save()
        assert trainer.loop.obs.shape[0] == 2
    for name, own in state["agent"].items():
        if name.startswith(("actor.net", "log_alpha")):
            other = expected.state[f"agent.{name}"]
            assert torch.equal(own[1], other[1]), name
            assert not torch.equal(own[0], other[0]), name


def _forged(saved: Any) -> Any:
    return saved | {"0.check": saved["0.check"] + 1}


def test_other_shapers_see_interrupted_episodes_as_cut_by_a_time_limit(tmp_path: Path) -> None:
    config = config_of(task="Forgetful-v0", shaper="rnd", shaper_config=RndConfig(hidden=(8,), outputs=2))
    run(config, tmp_path, stop_at=110)
    with Trainer(config, folder=tmp_path) as trainer:
        assert trainer.resume()
        learner: Any = trainer.learner
        assert learner.unobserved.truncated.all()
        assert not learner.replay.truncated[:, learner.replay.cursor - 1].all()


@pytest.mark.parametrize("name", ["none", "auto", "flags"])
def test_without_its_replay_a_run_fills_a_new_one(tmp_path: Path, name: str) -> None:
    config = config_of(checkpoint_replay=False, **RUNS[name])
    run(config, tmp_path, stop_at=150)
    (newest, *_) = sorted((tmp_path / CHECKPOINTS).iterdir(), reverse=True)
    assert not (newest / "replay.safetensors").exists()
    assert json.loads((newest / "manifest.json").read_text())["facts"]["left_out"] == ["replay"]
    with Trainer(config, folder=tmp_path) as trainer:
        assert trainer.resume()
        learner: Any = trainer.learner
        updates, replay, shaper = learner.agent.updates, learner.replay, learner.shaper
        assert updates > 0
        assert len(replay) == 0
        if name == "flags":
            assert not shaper.evidence.store.flags.any()
            assert shaper.evidence.estimator.size.sum() == 0
        elif name == "auto":
            assert shaper.evidence.estimator.size.sum() > 0
        trainer.loop.run(16)
        assert trainer.learner.agent.updates == updates  # too few steps for a batch
        trainer.loop.run(60)
        assert trainer.learner.agent.updates == updates + 60
        if name == "flags":
            assert_evidence_is_what_the_replay_holds(trainer)


def assert_evidence_is_what_the_replay_holds(trainer: Any) -> None:
    evidence = trainer.learner.shaper.evidence
    for member in range(2):
        size, total = evidence.estimator.size[member].clone(), evidence.estimator.total[member].clone()
        assert size.sum() > 0
        slots = evidence.store.flags[member].nonzero()[:, 0]
        assert slots.max() < trainer.learner.replay.cursor  # only steps that were taken since
        evidence.estimator.clear(member)
        for outcome in (0, 1):
            states = evidence.store.select(member, outcome)
            evidence.estimator.add(member, outcome, evidence.normaliser.of_member(member, states))
        assert torch.equal(evidence.estimator.size[member], size)
        torch.testing.assert_close(evidence.estimator.total[member], total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"seeds": (0, 2)}, r"seeds is \[0, 2\], but .* \[0, 1\]"),
        ({"environments": 2}, "environments is 2"),
        ({"shaper": "none", "shaper_config": None}, "shaper is none"),
        ({"task": "Pendulum-v1"}, "task is Pendulum-v1"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, other: Any, words: str) -> None:
    settings = shaped("auto")
    run(config_of(**settings), tmp_path, stop_at=40)
    with Trainer(config_of(**(settings | other)), folder=tmp_path) as trainer, pytest.raises(ValueError, match=words):
        trainer.resume()


def test_there_may_be_nothing_to_resume(tmp_path: Path) -> None:
    for folder in (None, tmp_path, tmp_path / "missing"):
        with Trainer(config_of(shaper="none"), folder=folder) as trainer:
            assert not trainer.resume()


def test_settings_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    config = config_of(environments=1, frame_stack=1, **shaped("paper"))
    run(config, tmp_path, stop_at=40)
    (newest,) = (tmp_path / CHECKPOINTS).iterdir()
    facts = json.loads((newest / "manifest.json").read_text())["facts"]
    assert TrainConfig.from_json(facts["config"]) == config
    assert facts["steps"] == 40
