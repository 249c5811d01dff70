"""What a seed was paid in training, between the points of its curve."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sasr.report.read import from_run
from sasr.report.seeds import SeedResult, seed_from_json, training_by_point, training_parts

from .synthetic import make_run

episodes = st.lists(
    st.tuples(st.integers(1, 1_200), st.floats(-100.0, 100.0, width=32), st.integers(1, 200)), max_size=60
).map(sorted)


def logged(own: list[tuple[int, float, int]]) -> list[dict[str, Any]]:
    return [{"kind": "episode", "step": step, "return": ret, "length": length} for step, ret, length in own]


def made(own: list[tuple[int, float, int]], every: int = 100) -> SeedResult:
    points = tuple(range(every, 1_001, every))
    parts = training_by_point(points, logged(own))
    return SeedResult(
        seed=0,
        steps=points,
        returns=tuple(float(step) for step in points),
        episodes=tuple(part.episodes for part in parts),
        trained=tuple(part.trained for part in parts),
        lengths=tuple(part.lengths for part in parts),
    )


@given(episodes, st.integers(0, 9), st.integers(1, 10))
def test_a_stretch_of_training_is_the_mean_of_its_episodes(
    own: list[tuple[int, float, int]], first: int, more: int
) -> None:
    after, until = 100 * first, 100 * min(first + more, 10)
    inside = [(ret, length) for step, ret, length in own if after < step <= until]
    found = made(own).training(after, until)
    assert found is not None
    assert found.episodes == len(inside)
    if not inside:
        assert math.isnan(found.trained)
        assert math.isnan(found.lengths)
        return
    ret, length = np.mean(inside, axis=0)
    # Six digits of each part are stored; parts of both signs may cancel.
    assert found.trained == pytest.approx(ret, abs=1e-5 * max(abs(own) for own, _ in inside))
    assert found.lengths == pytest.approx(length, rel=1e-5)


@given(episodes, st.integers(2, 10))
def test_thinning_a_curve_loses_no_episode_of_training(own: list[tuple[int, float, int]], points: int) -> None:
    whole = made(own)
    thin = whole.thinned(points)
    assert len(thin.episodes) == len(thin.steps) <= points
    assert sum(thin.episodes) == sum(whole.episodes)
    for after, until in zip((0, *thin.steps), thin.steps, strict=False):
        assert repr(thin.training(after, until)) == repr(whole.training(after, until))  # NaN differs from itself


@given(st.lists(st.tuples(st.integers(1, 1_000), st.floats(-2.0, 2.0, width=32), st.integers(0, 90)), max_size=40))
def test_what_shaping_added_is_the_mean_of_the_figures_logged(own: list[tuple[int, float, int]]) -> None:
    events = [
        {"kind": "figures", "step": step, "shaping/bonus_mean": bonus}
        | {"shaping/retained_success": 10.0, "shaping/retained_failure": float(lost)}
        for step, bonus, lost in own
    ]
    for (after, until), part in zip(((0, 400), (400, 1_000)), training_by_point((400, 1_000), events), strict=True):
        inside = [(bonus, lost / (10.0 + lost)) for step, bonus, lost in own if after < step <= until]
        bonus, failures = np.mean(inside, axis=0) if inside else (math.nan, math.nan)
        assert part.bonus == pytest.approx(bonus, rel=1e-5, abs=1e-12, nan_ok=True)
        assert part.failures == pytest.approx(failures, rel=1e-5, abs=1e-12, nan_ok=True)


@given(st.lists(st.tuples(st.integers(1, 1_000), st.floats(-1e4, 1e4, width=32)), max_size=40))
def test_what_critics_said_is_the_most_of_the_figures_logged(own: list[tuple[int, float]]) -> None:
    events = [{"kind": "figures", "step": step, "train/q_mean": value} for step, value in own]
    for (after, until), part in zip(((0, 400), (400, 1_000)), training_by_point((400, 1_000), events), strict=True):
        inside = [value for step, value in own if after < step <= until]
        assert part.values == pytest.approx(max(inside, default=math.nan), rel=1e-5, nan_ok=True)


def test_stretches_of_different_lengths_weigh_by_their_steps() -> None:
    parts: dict[str, Any] = {"episodes": (1, 0, 3), "trained": (1.0, math.nan, 5.0), "lengths": (10.0, math.nan, 20.0)}
    figures: dict[str, Any] = {"bonus": (1.0, 2.0, math.nan), "values": (7.0, math.nan, 9.0)}
    seed = SeedResult(seed=0, steps=(100, 400, 500), returns=(0.0,) * 3, **figures, **parts)
    assert seed.training(0, 400) == pytest.approx((1, 1.0, 10.0, 1.75, math.nan, 7.0), nan_ok=True)
    assert seed.training(0, 500) == pytest.approx((4, 4.0, 17.5, 1.75, math.nan, 9.0), nan_ok=True)
    without = replace(seed, values=()).training(0, 500)
    assert without is not None
    assert math.isnan(without.values)


def test_a_run_without_shaping_stores_nothing_of_it() -> None:
    plain = training_parts(training_by_point((100,), [{"kind": "episode", "step": 5, "return": 1.0, "length": 5}]))
    assert plain == {"episodes": (1,), "trained": (1.0,), "lengths": (5.0,), "bonus": (), "failures": (), "values": ()}


@given(episodes)
def test_training_comes_back_from_json(own: list[tuple[int, float, int]]) -> None:
    seed = made(own)
    data = {name: getattr(seed, name) for name in ("seed", "steps", "returns", "episodes", "trained", "lengths")}
    text = json.dumps({name: list(part) if isinstance(part, tuple) else part for name, part in data.items()})
    back = json.loads(text.replace("NaN", "null"))
    assert repr(seed_from_json(back)) == repr(seed)


@pytest.mark.parametrize(("after", "until"), [(50, 200), (0, 250), (200, 200), (300, 200), (-100, 200)])
def test_only_points_of_the_curve_bound_a_stretch(after: int, until: int) -> None:
    assert made([(10, 1.0, 10)]).training(after, until) is None
    whole = made([(10, 1.0, 10)]).training(0, 200)
    assert whole is not None
    assert whole[:3] == (1, 1.0, 10.0)


def test_results_from_before_training_was_stored_have_none() -> None:
    old = seed_from_json({"seed": 1, "steps": [100, 200], "returns": [0.0, 1.0]})
    assert old.training(0, 200) is None
    assert old.thinned(1).episodes == ()


def test_a_part_of_the_figures_of_training_is_refused() -> None:
    with pytest.raises(ValueError, match="seed 1 has episodes, trained and lengths of training only in part"):
        SeedResult(seed=1, steps=(100,), returns=(0.0,), episodes=(1,), trained=(0.5,))
    with pytest.raises(ValueError, match="seed 1 has 1 steps, but 2 trained"):
        SeedResult(seed=1, steps=(100,), returns=(0.0,), trained=(0.5, 0.5))
    with pytest.raises(ValueError, match="seed 1 has episodes that are not integers"):
        seed_from_json({"seed": 1, "steps": [1], "returns": [0.0], "episodes": [-1], "trained": [0], "lengths": [1]})


@pytest.mark.parametrize("name", ["steps", "returns", "episodes", "failures", "values", "final"])
def test_what_should_be_a_list_is_named_where_it_is_none(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} of seed 1 is not a list"):
        seed_from_json({"seed": 1, "steps": [1], "returns": [0.0], name: None})


def test_a_run_gives_what_each_seed_was_paid_between_its_evaluations(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", seeds=(3, 4))
    metrics = run / "metrics.jsonl"
    lines = [line for line in metrics.read_text().splitlines() if json.loads(line)["kind"] != "episode"]
    for seed, ret in ((3, 2.0), (4, 6.0)):
        for step in (500, 1_000, 1_001, 2_500, 3_500):  # the last one after the last evaluation
            event = {"kind": "episode", "step": step, "member": seed - 3, "seed": seed, "return": ret, "length": 50}
            lines.append(json.dumps(event))
    metrics.write_text("\n".join(lines) + "\n")
    three, four = from_run(run).seeds
    assert three.steps[-3:] == (1_000, 2_000, 3_000)
    for own, start, end, expected in (
        (three, 0, 1_000, (2, 2.0, 50.0)),
        (three, 1_000, 2_000, (1, 2.0, 50.0)),
        (four, 1_000, 3_000, (2, 6.0, 50.0)),
    ):
        part = own.training(start, end)
        assert part is not None
        assert part[:3] == expected
