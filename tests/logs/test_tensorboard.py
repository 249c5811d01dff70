from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sasr
from sasr import api
from sasr.files import IrregularFileError
from sasr.logs import tensorboard
from sasr.shaping.presets import preset_config
from tests.conftest import TINY, settings

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(run: Path, name: str) -> dict[str, dict[int, float]]:
    """Values by tag and step, as TensorBoard would show them."""
    events = EventAccumulator(str(run / "tensorboard" / name))
    events.Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_the_tags_are_those_of_stable_baselines3_plus_shaping(trained: sasr.Run) -> None:
    assert sorted(path.name for path in (trained.folder / "tensorboard").iterdir()) == ["mean", "seed-3", "seed-5"]
    for name in ("mean", "seed-3", "seed-5"):
        assert scalars(trained.folder, name).keys() >= {
            "rollout/ep_rew_mean",
            "rollout/ep_len_mean",
            "rollout/success_rate",
            "eval/mean_reward",
            "eval/mean_ep_length",
            "eval/success_rate",
            "time/fps",
            "train/critic_loss",
            "shaping/bonus_mean",
        }


def test_the_events_say_what_the_metrics_say(trained: sasr.Run) -> None:
    for member, seed in enumerate((3, 5)):
        logged = scalars(trained.folder, f"seed-{seed}")
        for event in trained.metrics("evaluation"):
            if event["member"] == member:
                assert logged["eval/mean_reward"][event["step"]] == pytest.approx(event["return_mean"], rel=1e-6)
        returns = [event["return"] for event in trained.metrics("episode") if event["member"] == member]
        assert logged["rollout/ep_rew_mean"][200] == pytest.approx(returns[0], rel=1e-6)
        assert logged["rollout/ep_rew_mean"][450] == pytest.approx(sum(returns) / 2, rel=1e-6)
        assert min(logged["rollout/ep_rew_mean"]) == 200  # no episode had ended before
    both = [scalars(trained.folder, f"seed-{seed}")["eval/mean_reward"][450] for seed in (3, 5)]
    assert scalars(trained.folder, "mean")["eval/mean_reward"][450] == pytest.approx(sum(both) / 2, rel=1e-6)


def test_ep_rew_mean_is_the_environments_return_whatever_the_shapers_weight(tmp_path: Path) -> None:
    means = []
    for weight in (0.0, 1000.0):
        # All of it is burn-in, so that both act alike and only the shaper differs.
        config = settings(
            steps=210,
            seeds=(0,),
            eval_every=0,
            agent_config=dataclasses.replace(TINY, burn_in=205),
            shaper_config=preset_config("auto", reward_weight=weight),
        )
        run = api.start(config, out=tmp_path / f"weight-{weight}")
        found = scalars(run.folder, "seed-0")
        means.append(found["rollout/ep_rew_mean"][200])
        assert means[-1] == pytest.approx(run.metrics("episode")[0]["return"], rel=1e-6)
    assert means[0] == means[1]
    assert -2000.0 < means[0] < -100.0  # what Pendulum pays at random


def test_events_from_after_the_checkpoint_are_void_once_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    for begin, steps, loss in ((0, (10, 20, 30), 1.0), (20, (40,), 5.0)):
        writer = tensorboard.TensorBoard(tmp_path)
        trainer: Any = SimpleNamespace(config=settings(), loop=SimpleNamespace(steps=begin))
        writer.begin(trainer)
        for step in steps:
            writer.figures(step, {"train/loss": np.array([loss, loss])})
        writer.close(steps[-1])
        time.sleep(1.1)  # TensorBoard reads files in the order of their names, which begin with the second
    assert scalars(tmp_path, "seed-3")["train/loss"] == {10: 1.0, 20: 1.0, 40: 5.0}


def test_events_are_not_written_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "seed-3").symlink_to(tmp_path / "elsewhere")
    trainer: Any = SimpleNamespace(config=settings(), loop=SimpleNamespace(steps=0))
    with pytest.raises(IrregularFileError):
        tensorboard.TensorBoard(tmp_path).begin(trainer)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_without_tensorboard_the_run_goes_on_and_says_once_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sasr.api.installed", lambda module: module != "tensorboard")
    run = api.start(settings(steps=40, eval_every=0), out=tmp_path / "run")
    notices = [event["text"] for event in run.metrics("notice")]
    assert [text for text in notices if 'pip install "sasr[tensorboard]"' in text] == [tensorboard.INSTALL]
    assert not (run.folder / "tensorboard").exists()
