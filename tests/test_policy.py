from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sasr
from sasr.final_evaluation import evaluate_policy, record_video, rows, write_evaluation
from sasr.policy import Policy
from sasr.training import Trainer


@pytest.fixture(scope="module")
def policy(trained: sasr.Run) -> Policy:
    return sasr.load(trained)


def observations(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)


def test_it_acts_as_the_trainer_at_the_end_of_the_run(trained: sasr.Run, policy: Policy) -> None:
    with Trainer(trained.config, folder=trained.folder) as trainer:
        assert trainer.resume()
        obs = torch.from_numpy(observations(20))
        best = trainer.learner.act_best(obs.expand(2, -1, -1))
    for member in range(2):
        action, state = policy.predict(observations(20), member=member)
        assert state is None
        np.testing.assert_array_equal(action, best[member].numpy())
    assert not torch.equal(best[0], best[1])
    assert policy.steps == 450


def test_one_observation_gives_one_action_of_the_space(policy: Policy) -> None:
    stack = observations(4)
    action, _ = policy.predict(stack[2])
    assert action.shape == (1,)
    assert policy.action_space.contains(action)
    np.testing.assert_allclose(action, policy.predict(stack)[0][2], atol=1e-6)


def test_exploring_actions_differ_and_the_best_do_not(policy: Policy) -> None:
    obs = observations(1)[0]
    assert policy.predict(obs)[0] == policy.predict(obs)[0]
    assert policy.predict(obs, deterministic=False)[0] != policy.predict(obs, deterministic=False)[0]


@pytest.mark.parametrize(
    ("obs", "member", "message"),
    [
        (np.zeros(4), 0, r"shape \(4,\), but this run's observations have \(3,\)"),
        (np.zeros((2, 2, 3)), 0, r"give one, or a stack \(n, 3\)"),
        (np.zeros(3), 2, "member=2, but this run has 2 seeds"),
        (np.zeros(3), -1, "member=-1"),
    ],
)
def test_what_does_not_fit_is_refused(obs: np.ndarray, member: int, message: str, policy: Policy) -> None:
    with pytest.raises(ValueError, match=message):
        policy.predict(obs, member=member)


def test_loading_needs_no_environment(trained: sasr.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: Any) -> None:
        raise AssertionError("an environment was made")

    monkeypatch.setattr(gym, "make", refuse)
    sasr.load(str(trained.folder)).predict(np.zeros(3, np.float32))


def test_a_run_without_a_checkpoint_has_no_policy(trained: sasr.Run, tmp_path: Path) -> None:
    shutil.copy(trained.folder / "config.json", tmp_path)
    with pytest.raises(FileNotFoundError, match="no complete checkpoint yet"):
        sasr.load(tmp_path)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(started: Callable[..., sasr.Run]) -> None:
    run = started("damaged", steps=60, eval_every=0)
    first = run.folder / "checkpoints" / "000001"
    shutil.copytree(first, first.with_name("000002"))
    (first.with_name("000002") / "agent.safetensors").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert sasr.load(run).steps == 60


# ------------------------------------------------------------------------ judge


def test_as_many_episodes_as_asked_the_same_for_a_seed_and_others_for_another(
    policy: Policy,
) -> None:
    told: list[int] = []
    first = evaluate_policy(policy, episodes=13, workers=0, progress=told.append)
    assert first.returns.shape == (2, 13)
    assert told[-1] == 2 * 20  # whole rounds of ten are played
    assert len(np.unique(first.returns)) == 26
    np.testing.assert_array_equal(evaluate_policy(policy, episodes=13, workers=0).returns, first.returns)
    assert not np.isin(evaluate_policy(policy, episodes=3, seed=1, workers=0).returns, first.returns).any()


def test_the_table_and_the_file_have_means_and_standard_errors(
    policy: Policy, started: Callable[..., sasr.Run]
) -> None:
    result = evaluate_policy(policy, episodes=4, workers=0)
    first, second, both = rows(policy, result)
    assert first.name == "seed 3"
    assert second.ret[0] == pytest.approx(result.returns[1].mean())
    assert second.ret[1] == pytest.approx(result.returns[1].std(ddof=1) / 2)
    means = result.returns.mean(1)
    assert both.ret == pytest.approx((means.mean(), abs(means[0] - means[1]) / 2))
    written = json.loads(write_evaluation(policy, result, seed=0, deterministic=True).read_text())
    assert written["members"][1]["returns"] == result.returns[1].tolist()
    assert written["rows"][2]["return_mean"] == pytest.approx(means.mean())
    assert (written["step"], written["episodes"]) == (450, 4)


def test_no_episodes_are_refused(policy: Policy) -> None:
    with pytest.raises(ValueError, match="episodes=0"):
        evaluate_policy(policy, episodes=0)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_number_that_is_no_seed_is_refused(seed: int, policy: Policy) -> None:
    with pytest.raises(ValueError, match=f"seed={seed}"):
        evaluate_policy(policy, episodes=1, seed=seed)


def test_a_film_that_breaks_off_leaves_nothing(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    before = sorted(policy.folder.path.iterdir())

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Policy, "predict", stopped)
    with pytest.raises(KeyboardInterrupt):
        record_video(policy, index=0)
    assert sorted(policy.folder.path.iterdir()) == before


def test_a_film_shows_a_whole_episode(policy: Policy) -> None:
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    import imageio.v3 as imageio

    made = record_video(policy, index=1)
    frames = list(imageio.imiter(made))
    made.unlink()  # other tests use this run, too
    assert len(frames) == 201
    assert frames[0].shape == (500, 500, 3)
    assert abs(frames[0].astype(int) - frames[100]).mean() > 0.1  # it moves


def test_a_film_without_ffmpeg_says_what_to_install(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "sasr\[video\]"'):
        record_video(policy, index=0)
