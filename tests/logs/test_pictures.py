from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sasr
from sasr import SASR, Host
from sasr.logs import plots
from sasr.logs.plots import SuccessMap, draw_curve, draw_maps, evaluation_curve, read_maps, training_curve
from sasr.training import TrainConfig

pytest.importorskip("matplotlib")
from matplotlib.image import imread


def test_the_curve_of_a_run_is_a_picture_in_its_folder(trained: sasr.Run) -> None:
    picture = imread(trained.folder / "curve.png")
    assert picture.shape[0] > 300
    assert picture.shape[1] > 600
    assert picture[..., :3].std() > 0.05  # something is drawn


def test_the_figure_has_the_runs_own_data(trained: sasr.Run) -> None:
    events = trained.metrics("episode", "evaluation")
    lines: Any = plots.curve_figure(events, "", 2).axes[0].get_lines()
    drawn = [line.get_ydata().tolist() for line in lines if line.get_xdata().tolist() == [150, 300, 450]]
    found = trained.evaluation()
    assert len(drawn) == 3
    for each in [*found.returns, found.returns.mean(0)]:
        assert pytest.approx(each.tolist()) in drawn


def test_a_run_of_which_nothing_is_known_has_no_curve(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "clock", "step": 1}) + "\n")
    assert draw_curve(tmp_path, title="", seeds=1) is None


def test_between_two_episodes_a_member_counts_with_the_one_before() -> None:
    events = [{"kind": "episode", "step": step, "member": 0, "return": ret} for step, ret in ((300, 1.0), (700, 3.0))]
    middles, means = training_curve(events, 1, 1000)
    assert np.isnan(means[0][middles < 300]).all()
    assert (means[0][(middles > 300) & (middles < 700)] == 1.0).all()
    assert (means[0][middles > 700] == 3.0).all()


def test_evaluations_and_episodes_that_are_missing_are_gaps() -> None:
    events = [
        {"kind": "evaluation", "step": 10, "member": 1, "return_mean": 2.0, "success_rate": 1.0},
        {"kind": "evaluation", "step": 20, "member": 0, "return_mean": None, "success_rate": 0.0},
        {"kind": "episode", "step": 999, "member": 0, "return": 4.0},
        {"kind": "episode", "step": 1000, "member": 0, "return": 6.0},
    ]
    found = evaluation_curve(events, 2)
    np.testing.assert_array_equal(found.returns, [[np.nan, np.nan], [2.0, np.nan]])
    middles, means = training_curve(events, 2, 1000)
    assert np.isnan(means[1]).all()
    assert means[0][-1] == 5.0
    assert np.isfinite(means[0]).sum() == 1
    assert middles[-1] == pytest.approx(997.5)


def test_without_matplotlib_the_run_says_what_to_install(
    started: Callable[..., sasr.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sasr.api.installed", lambda module: module != "matplotlib")
    run = started("bare", steps=40, eval_every=0)
    assert [event["text"] for event in run.metrics("notice")] == [plots.INSTALL]
    assert not (run.folder / "curve.png").exists()


# ------------------------------------------------------------------ success map


def mapped(shaper: object, *, space: gym.Space | None = None, steps: int = 0, total: int = 100) -> Any:
    """What a success map asks of a trainer."""
    car = gym.make("MountainCarContinuous-v0")
    population = SimpleNamespace(observation_space=space or car.observation_space, action_space=car.action_space)
    config = TrainConfig(task="MountainCar", steps=total, seeds=(0, 1))
    return SimpleNamespace(config=config, population=population, shaper=shaper, loop=SimpleNamespace(steps=steps))


def experienced() -> SASR:
    """SASR of two members that saw successes on the right and failures on the left."""
    car = gym.make("MountainCarContinuous-v0")
    shaper = SASR("auto", retention=1.0)
    shaper.bind(Host(observation_space=car.observation_space, action_space=car.action_space, seeds=(0, 1)))
    draw = torch.Generator().manual_seed(0)
    for member in range(2):
        for success, middle in ((True, 0.4), (False, -0.9)):
            states = torch.tensor([middle, 0.0]) + torch.randn(3000, 2, generator=draw) * torch.tensor([0.1, 0.01])
            shaper.add_trajectory(states, success=success, member=member)
    return shaper


def at(maps: NDArray[np.float32], member: int, row: int, column: int) -> float:
    return float(maps[member, row, column])


def test_the_map_is_sasrs_own_estimate_at_every_point(tmp_path: Path) -> None:
    shaper = experienced()
    recorder = SuccessMap(tmp_path)
    recorder.begin(mapped(shaper))
    recorder.turned(10)
    maps = read_maps(tmp_path)
    assert maps.rate.shape == (1, 2, len(maps.y), len(maps.x))
    for row, column in ((0, 0), (30, 45), (60, 60), (17, 3)):
        obs = torch.tensor([maps.x[column], maps.y[row]], dtype=torch.float32).expand(2, 1, 2)
        nothing = torch.zeros(2, 1)
        counts = shaper.counts(sasr.Batch(obs, nothing[..., None], nothing, obs, nothing.bool()))
        expected = (counts[..., 0] + 1.0) / (counts.sum(-1) + 2.0)
        for member in range(2):
            assert at(maps.rate[0], member, row, column) == pytest.approx(float(expected[member, 0]), abs=1e-5)
    right, left = np.argmin(abs(maps.x - 0.4)), np.argmin(abs(maps.x + 0.9))
    assert at(maps.rate[0], 0, 30, int(right)) > 0.9
    assert at(maps.rate[0], 0, 30, int(left)) < 0.1


def test_there_are_ten_maps_and_going_on_drops_those_from_after_the_checkpoint(tmp_path: Path) -> None:
    recorder = SuccessMap(tmp_path)
    recorder.begin(mapped(experienced()))
    for step in range(1, 101):
        recorder.turned(step)
    assert read_maps(tmp_path).steps.tolist() == list(range(10, 101, 10))
    again = SuccessMap(tmp_path)
    again.begin(mapped(experienced(), steps=35))
    for step in range(36, 45):
        again.turned(step)
    assert read_maps(tmp_path).steps.tolist() == [10, 20, 30, 40]
    path = draw_maps(tmp_path, title="map")
    assert path is not None
    assert imread(path)[..., :3].std() > 0.05


@pytest.mark.parametrize(
    ("shaper", "space"),
    [
        (None, None),
        (SASR(state_action=True), None),
        (SASR(), gym.spaces.Box(-1.0, 1.0, (3,))),
        (SASR(), gym.spaces.Box(-np.inf, np.inf, (2,))),
    ],
)
def test_where_there_is_nothing_to_map_there_is_no_file(shaper: SASR | None, space: gym.Space, tmp_path: Path) -> None:
    recorder = SuccessMap(tmp_path)
    recorder.begin(mapped(shaper, space=space))
    recorder.turned(100)
    assert list(tmp_path.iterdir()) == []
    assert draw_maps(tmp_path, title="") is None
