"""What is in the repository: pages are what its folders give, plans can be run, curves are ours by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages.__main__ import Settings, main
from pages.rows import PAPERS_BASE, PAPERS_DEFAULT
from pages.store import methods_of, read_store, takes_apart
from sasr.experiments.plan_file import read_plan
from sasr.report.store import read_files, slug

ROOT = Path(__file__).parents[2]


def test_what_stands_between_markers_is_what_the_stores_give() -> None:
    with pytest.raises(SystemExit) as end:
        main(Settings(check=True))
    assert end.value.code == 0


def test_every_result_lies_in_the_folder_of_its_task_under_a_name_that_any_system_takes() -> None:
    paths = sorted((ROOT / "results").glob("*/*/*.json"))
    for path in paths:
        (result,) = read_files([path], ROOT).results
        assert path.parent.name == slug(result.task)
        assert str(path.relative_to(ROOT)).isascii()
    assert paths


def test_plans_can_be_run_and_those_that_take_the_default_apart_change_its_settings_alone() -> None:
    plans = {path.stem: read_plan(path) for path in (ROOT / "results" / "plans").glob("*.toml")}
    assert any(takes_apart(plan) for plan in plans.values())
    methods = methods_of(plans["default"])
    start = methods["start"].shaper_settings
    # Where it began, the default, and what that is measured against.
    beaten = ("start", PAPERS_DEFAULT, PAPERS_BASE, "sasr-authors")
    for name, method in methods.items():
        if name not in beaten:
            assert method.shaper_settings.keys() >= start.keys()
            assert method.shaper_settings != start


def test_the_authors_curves_have_few_points_and_names_that_are_ours() -> None:
    store = read_store(ROOT / "results")
    assert {"sasr", "sac", "relara", "explo", "h=0.01"} <= store.reference["AntStand"].keys()
    assert max(len(curve.steps) for curves in store.reference.values() for curve in curves.values()) <= 50
    assert store.paper["table1"].keys() >= store.reference.keys() - {"AntSpeed"}
