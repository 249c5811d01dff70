"""`sasr tune` on a task that takes moments."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from sasr.cli.tune import RANGES, Values
from sasr.training import Trainer
from tests.cli.commands import run

TINY = ("--set", "agent.burn_in=30", "--set", "agent.batch_size=16", "--set", "agent.hidden=8,8")
SHORT = ("--steps", "60", "--seeds", "2", "--workers", "0", "--device", "cpu")


def tune(capsys: pytest.CaptureFixture[str], out: Path, *flags: str) -> tuple[int, str]:
    return run(capsys, "tune", "Pendulum-v1", "--out", str(out), *SHORT, *TINY, *flags)


def test_it_searches_goes_on_and_ends_with_a_line_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output = tune(capsys, tmp_path / "study", "--trials", "2")
    assert code == 0, output
    assert "2 trials" in output
    tried = dict(re.findall(r"--set ([a-z_.]+)=(\S+)", output))
    assert set(tried) == set(RANGES) - {"agent.lr"}
    for name, text in tried.items():
        low, high = RANGES[name]
        assert low <= float(text) <= high
    assert "on 2 new seeds: tuned" in output
    assert (tmp_path / "study" / "tune.png").stat().st_size > 1000

    trained: list[tuple[int, ...]] = []
    train = Trainer.run

    def counted(self: Trainer) -> bool:
        trained.append(self.config.seeds)
        return train(self)

    monkeypatch.setattr(Trainer, "run", counted)
    code, output = tune(capsys, tmp_path / "study", "--trials", "3")
    assert code == 0, output
    assert "3 trials" in output
    assert trained.count((0, 1)) == 1
    assert trained.count((1000, 1001)) <= 1  # the default's are kept; another winner's are new


def test_what_is_fixed_is_not_searched_and_another_search_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed = [f"--set={name}={low:g}" for name, (low, _) in RANGES.items() if name not in ("agent.lr", "agent.actor_lr")]
    code, output = tune(capsys, tmp_path / "study", "--trials", "1", *fixed)
    assert code == 0, output
    assert re.findall(r"--set (\S+)=", output) == ["agent.actor_lr"]
    code, output = tune(capsys, tmp_path / "study", "--trials", "1")
    assert code == 2
    assert "choose another folder with --out" in output


def test_a_trial_that_is_behind_is_pruned_by_the_mean_over_its_seeds() -> None:
    import numpy as np
    import optuna

    from sasr.training.evaluate import Evaluation

    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(lower=1.0), direction="maximize")

    def evaluated(*returns: float) -> None:
        column = np.array(returns)[:, None]
        Values(study.ask()).evaluation(1, Evaluation(column, np.ones_like(column), column > 0))

    evaluated(0.0, 2.0)
    with pytest.raises(optuna.TrialPruned):
        evaluated(0.0, 1.0)


def test_ctrl_c_is_no_traceback_and_the_search_goes_on(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import optuna

    optuna.logging.enable_propagation()
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", lambda self: signal.raise_signal(signal.SIGINT))
        assert tune(capsys, tmp_path / "study", "--trials", "1")[0] == 130
    assert caplog.text == ""
    code, output = tune(capsys, tmp_path / "study", "--trials", "1")
    assert code == 0, output


def test_half_a_line_at_the_end_of_a_study_is_removed_and_another_damage_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(capsys, tmp_path, "--trials", "1")[0] == 0
    log = tmp_path / "study.log"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"op_code": 5, "wor')
    code, output = tune(capsys, tmp_path, "--trials", "1")
    assert code == 0, output
    assert "1 trials" in output
    log.write_bytes(b"{}\n" + whole)
    code, output = tune(capsys, tmp_path, "--trials", "1")
    assert code == 2
    assert "study.log" in output


def test_settings_of_the_task_are_held_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(capsys, tmp_path, "--trials", "1", "--set", "task.g=5")[0] == 0
    code, output = tune(capsys, tmp_path, "--trials", "1")
    assert code == 2
    assert "task_settings={'g': 5}, not {}" in output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--trials", "0"), "--trials 0 must be at least 1"),
        (("--trials", "1" + "0" * 12), "--trials 1000000000000 must be at most"),
        (("--seeds", "0"), "--seeds 0 must be at least 1"),
        (("--seeds", "1" + "0" * 12), "must be at most"),
        (("--set", "agent.nonsense=1"), "nonsense"),
        (("--set", "task.g=1e999"), "task.g=inf"),
        (("--set", "agent.batch_size=64"), "burn_in=30"),
        (("--device", "nonsense"), "nonsense"),
        (("--preset", "authors", "--shaper", "rnd"), "--preset authors"),
    ],
)
def test_a_mistake_is_one_line(
    flags: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = tune(capsys, tmp_path / "study", *flags)
    assert code == 2
    assert message in output
    assert not (tmp_path / "study").exists()
