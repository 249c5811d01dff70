"""An exported policy acts as the run's does, says what it is, and runs nothing when it is loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import load_file

import sasr
from sasr.agents import PpoConfig, Td3Config
from sasr.final_evaluation import evaluate_policy, write_evaluation
from tests.cli.commands import run as command


@pytest.fixture
def exported(trained: sasr.Run, tmp_path: Path) -> Path:
    return trained.export(tmp_path / "shared")


def observations(n: int = 7) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)


def test_it_acts_as_the_run_does_without_the_run(trained: sasr.Run, exported: Path) -> None:
    ours, theirs = sasr.load(trained), sasr.load(exported)
    assert theirs.steps == ours.steps
    for member in range(2):
        action, state = theirs.predict(observations(), state=None, episode_start=None, member=member)
        np.testing.assert_array_equal(action, ours.predict(observations(), member=member)[0])
        assert state is None
    assert not any("critic" in name for name in load_file(exported / "policy.safetensors"))


@pytest.mark.parametrize(
    ("agent", "config"),
    [
        ("td3", Td3Config(hidden=(8, 8), burn_in=30, batch_size=16)),
        ("ppo", PpoConfig(hidden=(8, 8), rollout=32, minibatches=2)),
    ],
)
def test_so_does_every_other_kind_of_agent(
    agent: str, config: object, started: Callable[..., sasr.Run], tmp_path: Path
) -> None:
    run = started("run", agent=agent, agent_config=config, steps=70, eval_every=0)
    folder = run.export(tmp_path / "shared")
    np.testing.assert_array_equal(
        sasr.load(folder).predict(observations())[0], sasr.load(run).predict(observations())[0]
    )


def test_the_card_has_task_command_curve_and_evaluation(trained: sasr.Run, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(trained.folder, tmp_path / "run"))
    (copy / "video-seed-3.mp4").write_bytes(b"film")
    policy = sasr.load(copy)
    write_evaluation(policy, evaluate_policy(policy, episodes=2, workers=0), seed=0, deterministic=True)
    code_path = sasr.Run(copy).export(tmp_path / "shared")
    card = (code_path / "README.md").read_text()
    mean = json.loads((copy / "eval.json").read_text())["rows"][-1]["return_mean"]
    for part in ("Pendulum-v1", "| sasr eval | 2 |", "(curve.png)", "(video-seed-3.mp4)", f'"value": {mean}'):
        assert part in card
    assert json.loads((copy / "config.json").read_text())["command"] in card
    names = {path.name for path in code_path.iterdir()}
    assert names == {"README.md", "manifest.json", "policy.safetensors", "curve.png", "eval.json", "video-seed-3.mp4"}


def damage_weights(folder: Path) -> None:
    file = folder / "policy.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")


def put_a_pickle(folder: Path) -> None:
    (folder / "policy.safetensors").write_bytes(b"cos\nsystem\n(S'false'\ntR.")


def change_manifest(folder: Path) -> None:
    file = folder / "manifest.json"
    file.write_text(file.read_text().replace('"steps": 450', '"steps": 451'))


def lead_elsewhere(folder: Path) -> None:
    file = folder / "policy.safetensors"
    file.rename(folder.parent / "elsewhere")
    file.symlink_to(folder.parent / "elsewhere")


def film_elsewhere(folder: Path) -> None:
    """What `sasr eval --video` writes would go there."""
    (folder / "video-seed-0.mp4").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("damage", [damage_weights, put_a_pickle, change_manifest, lead_elsewhere, film_elsewhere])
def test_what_was_changed_is_refused_in_one_line(
    damage: Callable[[Path], None], exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(exported)
    with pytest.raises(ValueError, match="can't be loaded"):
        sasr.load(exported)
    code, output = command(capsys, "eval", str(exported))
    assert code == 2
    assert "Traceback" not in output


def test_nothing_is_overwritten_and_nothing_half_written_stays(
    trained: sasr.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    code, output = command(capsys, "export", str(trained.folder), "--to", str(tmp_path / "mine"))
    assert code == 2
    assert "exists already" in output

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("sasr.sharing.write_whole", full)
    with pytest.raises(OSError, match="no space"):
        trained.export(tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"mine"}
    code, output = command(capsys, "export", str(trained.folder), "--to", str(trained.folder / "config.json" / "new"))
    assert code == 2
    assert "--to" in output


# ------------------------------------------------------------------------ the hub


def test_the_folder_is_uploaded_under_its_name(
    trained: sasr.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[str, dict]] = []

    def fake(name: str) -> Callable[..., str]:
        def called(self: huggingface_hub.HfApi, **arguments: object) -> str:
            calls.append((name, arguments))
            return "https://the.hub/me/pendulum"

        return called

    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(huggingface_hub.HfApi, name, fake(name))
    to = tmp_path / "shared"
    flags = ("--to", str(to), "--push-to-hub", "me/pendulum", "--private")
    code, output = command(capsys, "export", str(trained.folder), *flags)
    assert code == 0, output
    assert "https://the.hub/me/pendulum" in output
    (first, made), (second, uploaded) = calls
    assert (first, second) == ("create_repo", "upload_folder")
    assert made["private"] is True
    assert uploaded["folder_path"] == str(to)
    assert made["repo_id"] == uploaded["repo_id"] == "me/pendulum"


@pytest.mark.parametrize(
    ("flags", "message"),
    [(("--push-to-hub", "pendulum"), "write OWNER/MODEL"), (("--private",), "--private needs --push-to-hub")],
)
def test_a_mistake_about_the_hub_comes_before_the_work(
    flags: tuple[str, ...], message: str, trained: sasr.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = command(capsys, "export", str(trained.folder), "--to", str(tmp_path / "shared"), *flags)
    assert code == 2
    assert message in output
    assert not (tmp_path / "shared").exists()
