from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.analysis import Settings, facts_of, main, read, stages_of
from numpy.typing import NDArray

import sasr
from pages import analysis
from pages.analysis import Along, Stage, Visits, bin_stages, count_visits, read_analyses, read_analysis
from sasr.agents import SacConfig

STEPS = 400


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a task with short episodes and both outcomes."""
    out = tmp_path_factory.mktemp("runs") / "run"
    small = SacConfig(hidden=(16, 16), burn_in=200, batch_size=32)
    sasr.train("TwoRooms", agent=small, seeds=2, steps=STEPS, out=out, progress=False, events=False, eval_every=0)
    return out


def states() -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=(250, 2))


def test_densities_are_those_of_numpy() -> None:
    found = count_visits(states(), period=100, bins=7)
    assert found.steps == (0, 100, 200, 250)
    for density, part in zip(found.density, np.split(states(), [100, 200]), strict=True):
        expected = np.histogram2d(part[:, 0], part[:, 1], bins=(found.x, found.y), density=True)[0].T
        np.testing.assert_allclose(density, expected)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    visits = count_visits(states(), period=100, bins=5, task="T", seed=3)
    stage = Stage("early", states()[:, 0], states()[:, 1], np.ones(250))
    along = bin_stages([stage, stage._replace(name="late")], name="height", bins=6, task="T")
    for name, found in (("a", visits), ("b", along)):
        analysis.write_analysis(found, tmp_path / f"{name}.json")
    first, second = read_analyses(tmp_path)[0].values()
    assert isinstance(first, Visits)
    assert isinstance(second, Along)
    assert (first.steps, first.names, first.facts) == (visits.steps, visits.names, {"task": "T", "seed": 3})
    np.testing.assert_array_equal(first.counts, visits.counts)
    np.testing.assert_allclose(first.x, visits.x, rtol=1e-5)
    assert second.stages == ("early", "late")
    np.testing.assert_allclose(second.rate, along.rate)
    assert np.isnan(second.rate).any() == np.isnan(along.rate).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"form": "other"}, "'other'"),
        ({"kind": "sasr-result"}, "not an analysis"),
        ({"steps": [0, 100]}, r"counts of shape \(3, 5, 5\)"),
        ({"mood": 1}, "mood"),
    ],
)
def test_a_file_that_is_something_else_is_refused_by_name(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = analysis.write_analysis(count_visits(states(), period=100, bins=5), tmp_path / "own.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=rf"own\.json: .*{message}"):
        read_analysis(path)
    assert [problem.path for problem in read_analyses(tmp_path)[1]] == [f"{tmp_path.name}/own.json"]


def test_a_file_too_large_for_a_repository_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fewer bins or stages"):
        analysis.write_analysis(count_visits(states(), period=1, bins=60), tmp_path / "own.json")
    assert not (tmp_path / "own.json").exists()


@pytest.mark.parametrize("member", [0, 1])
def test_a_run_shown_again_gives_its_own_evidence(run: Path, member: int) -> None:
    saved = read(run, member)
    assert len(saved.steps.reward) == STEPS
    assert saved.evidence is not None
    assert saved.evidence.sum() > 0
    ended = (saved.steps.terminated | saved.steps.truncated)[:-1, 0]
    moved = saved.steps.next_obs[:-1, 0] != saved.steps.obs[1:, 0]
    assert moved.any(1).equal(ended)  # an episode's last observation is its own, not the next one's first
    stages = stages_of(saved, Settings(run, seed_index=member, stages=2))
    assert [stage.name for stage in stages] == ["200 steps", "400 steps"]
    np.testing.assert_array_equal(np.asarray(stages[1].feature), saved.steps.obs[200:, 0, 0].numpy())
    assert all(0.0 <= float(rate) <= 1.0 for stage in stages for rate in np.asarray(stage.rate))


def test_evidence_of_another_run_is_not_passed_off_as_this_ones(run: Path) -> None:
    saved = read(run, 0)
    saved.steps.truncated[:] = True  # other episodes, other evidence
    with pytest.raises(ValueError, match="not the same run"):
        stages_of(saved, Settings(run))


def test_the_command_writes_both_files_and_says_where_they_are_from(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["analysis", str(run), "--stages", "2"])
    main(Settings(run, out=tmp_path, stages=2, period=200))
    found, _ = read_analyses(tmp_path)
    assert found.keys() == {"TwoRooms-sasr-visits", "TwoRooms-sasr-along-observation-0-"}
    for each in found.values():
        assert each.facts["command"] == "python -m benchmarks.analysis RUN --stages 2"
        assert str(tmp_path.parent) not in json.dumps(each.facts)
    assert facts_of(read(run, 1), Settings(run, seed_index=1))["seed"] == 1
    with pytest.raises(ValueError, match="--seed-index 2 is none of this run's 2"):
        read(run, 2)
