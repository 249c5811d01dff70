from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sasr
from sasr import api
from sasr.logs.run_folder import (
    FORMAT,
    RunFolder,
    check_free,
    commit_here,
    default_place,
    space_from_json,
    space_to_json,
)
from tests.conftest import TINY, settings


def test_the_folder_says_in_full_what_the_run_was_made_with(trained: sasr.Run) -> None:
    facts = json.loads((trained.folder / "config.json").read_text())
    assert facts["config"]["agent_config"]["hidden"] == [8, 8]
    assert facts["config"]["shaper_config"]["reward_weight"] == 0.3  # the preset's, though nobody named it
    assert facts["config"]["seeds"] == [3, 5]
    assert facts["versions"].keys() >= {"sasr", "python", "torch", "numpy", "gymnasium"}
    assert facts["machine"]["cores"] >= 1


def test_the_folder_names_neither_host_nor_path(trained: sasr.Run) -> None:
    import platform

    text = (trained.folder / "config.json").read_text()
    assert str(trained.folder) not in text
    assert str(Path.home()) not in text
    assert f'"{platform.node()}"' not in text


def test_the_commit_is_that_of_the_code_around_or_what_a_copy_without_history_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("SASR_COMMIT", raising=False)
    assert commit_here() is None
    git("init", "-q")
    Path("code.py").write_text("1")
    git("add", "code.py")
    git("commit", "-q", "-m", "one")
    assert commit_here() == git("rev-parse", "HEAD")
    Path("run.log").write_text("not of the code")
    assert commit_here() == git("rev-parse", "HEAD")
    Path("code.py").write_text("2")
    assert commit_here() == git("rev-parse", "HEAD") + "+"
    monkeypatch.setenv("SASR_COMMIT", "0123abc+")
    assert commit_here() == "0123abc+"
    monkeypatch.setenv("SASR_COMMIT", "")
    assert commit_here() == git("rev-parse", "HEAD") + "+"


def test_opened_again_it_has_the_same_settings_and_spaces(trained: sasr.Run) -> None:
    folder = RunFolder.open(trained.folder)
    env = gym.make("Pendulum-v1")
    assert folder.config == trained.config
    assert folder.config.agent_config == TINY
    assert folder.observation_space == env.observation_space
    assert folder.action_space == env.action_space


def test_a_folder_that_has_a_run_is_refused_before_anything_starts(started: Callable[..., sasr.Run]) -> None:
    run = started("twice", steps=40, eval_every=0)
    before = (run.folder / "metrics.jsonl").read_bytes()
    with pytest.raises(
        FileExistsError, match=r"has a run already; continue it with `sasr resume .*twice`, or .* --out"
    ):
        started("twice", steps=40)
    assert (run.folder / "metrics.jsonl").read_bytes() == before


def test_a_folder_with_something_else_is_refused_and_an_empty_one_taken(tmp_path: Path) -> None:
    check_free(tmp_path)
    check_free(tmp_path / "new")
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(FileExistsError, match="is not a run"):
        check_free(tmp_path)


def test_settings_that_are_refused_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="steps=100 is less than burn_in=5000"):
        sasr.train("Pendulum-v1", steps=100, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "is cut off or was changed"),
        (lambda text: text[: len(text) // 2], "is cut off or was changed"),
        (lambda text: "[]", "is cut off or was changed"),
        (lambda text: json.dumps({"format": FORMAT}), "has no 'config'"),
        (
            lambda text: json.dumps(json.loads(text) | {"format": FORMAT + 1, "versions": {"sasr": "9.0"}}),
            rf"written by a newer sasr \(9.0, format {FORMAT + 1}.*upgrade sasr",
        ),
    ],
)
def test_a_half_written_or_newer_folder_is_refused(
    change: Callable[[str], str], message: str, trained: sasr.Run, tmp_path: Path
) -> None:
    shutil.copy(trained.folder / "config.json", tmp_path)
    file = tmp_path / "config.json"
    file.write_text(change(file.read_text()))
    with pytest.raises(ValueError, match=message):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "gone", "lacking"])
def test_a_damaged_config_is_restored_from_the_checkpoint(damage: str, trained: sasr.Run, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "run")
    file = folder / "config.json"
    whole = file.read_text()
    damaged = {"cut": whole[:100], "gone": None, "lacking": json.dumps({"format": FORMAT})}[damage]
    file.unlink()
    if damaged is not None:
        file.write_text(damaged)
    with pytest.warns(UserWarning, match=r"config.json .*; restored from checkpoint 000001"):
        run = sasr.Run(folder)
    assert run.config == trained.config
    assert file.read_text() == whole
    if damaged is not None:
        assert (folder / "config.json.damaged").read_text() == damaged
    assert sasr.load(folder).steps == 450


def test_a_restored_config_of_a_newer_version_is_refused_too(
    trained: sasr.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "run")
    (folder / "config.json").unlink()
    monkeypatch.setattr("sasr.logs.run_folder.FORMAT", FORMAT - 1)
    with pytest.warns(UserWarning, match="restored"), pytest.raises(ValueError, match="written by a newer sasr"):
        RunFolder.open(folder)


def test_training_never_takes_a_folder_with_checkpoints_for_a_new_one(trained: sasr.Run, tmp_path: Path) -> None:
    shutil.copytree(trained.folder / "checkpoints", tmp_path / "checkpoints")
    with pytest.raises(FileExistsError, match="has a run already; continue it with `sasr resume"):
        check_free(tmp_path)


def test_what_a_killed_process_had_half_written_does_not_count_and_goes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.json.123.part").write_text("{")
    check_free(folder)
    run = api.start(settings(steps=40, eval_every=0), out=folder, events=False)
    assert not list(run.folder.glob(".*"))


def test_a_mistyped_run_is_answered_with_the_newest_beside_it(trained: sasr.Run, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no run in .*pendulun; the newest one in .* is .*pendulum"):
        RunFolder.open(trained.folder.with_name("pendulun"))
    with pytest.raises(FileNotFoundError, match="an incomplete one"):
        RunFolder.open(tmp_path)


def test_the_default_place_is_named_by_task_and_shaper_and_always_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20250102-030405")
    config = settings(task="my_package:Fancy/Task-v0", shaper="none")
    places = []
    for _ in range(3):
        places.append(default_place(config))
        places[-1].mkdir(parents=True)
    assert [str(place) for place in places] == [
        "runs/my_package-Fancy-Task-v0-none-20250102-030405",
        "runs/my_package-Fancy-Task-v0-none-20250102-030405-2",
        "runs/my_package-Fancy-Task-v0-none-20250102-030405-3",
    ]


bounds = st.floats(-1e6, 1e6, width=32) | st.just(np.inf)


@given(
    st.one_of(
        st.lists(bounds, min_size=1, max_size=5).map(lambda high: gym.spaces.Box(-np.inf, np.array(high, np.float32))),
        st.lists(st.integers(0, 255), min_size=2, max_size=2).map(
            lambda edge: gym.spaces.Box(min(edge), max(edge), (4, 3), np.uint8)
        ),
        st.builds(lambda n, start: gym.spaces.Discrete(n, start=start), st.integers(1, 20), st.integers(-5, 5)),
        st.lists(st.integers(1, 6), min_size=1, max_size=4).map(gym.spaces.MultiDiscrete),
        st.integers(1, 9).map(gym.spaces.MultiBinary),
    )
)
def test_a_space_goes_through_json_and_comes_back(space: gym.Space) -> None:
    data = json.loads(json.dumps(space_to_json(space), allow_nan=False))
    assert space_from_json(data) == space


def test_a_space_that_no_run_can_describe_is_refused() -> None:
    with pytest.raises(TypeError, match="can't be stored"):
        space_to_json(gym.spaces.Text(5))
    with pytest.raises(ValueError, match="another one"):
        space_from_json({"kind": "Graph"})
