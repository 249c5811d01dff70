"""One way from text, TOML and JSON to settings: whatever form a value has, the same setting comes of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sasr
from sasr import LinearSchedule
from sasr.agents import SacConfig
from sasr.agents.registry import AGENTS
from sasr.cli.options import split_settings
from sasr.experiments import Method
from sasr.experiments.plan import grid
from sasr.experiments.plan_file import parse_plan
from sasr.settings import TrainConfig, setting_text, typed, with_settings
from sasr.shaping.presets import SasrConfig
from sasr.shaping.registry import SHAPERS

AGENT_SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "hidden": st.lists(st.integers(1, 4096), min_size=1, max_size=4).map(tuple),
    "burn_in": st.integers(1, 5_000),
    "critic_lr": st.floats(1e-6, 1.0),
    "target_entropy": st.none() | st.floats(-10.0, 10.0),
    "critic_norm": st.sampled_from(["layer", "none"]),
    "exploration": st.sampled_from(["gaussian", "noisy"]),
}
SHAPER_SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "sample": st.sampled_from(["beta", "ratio"]),
    "retention": st.floats(0.001, 1.0),
    "kernel": st.sampled_from(["gaussian", "laplacian"]),
    "bandwidth": st.floats(0.01, 2.0)
    | st.just("median")
    | st.builds(LinearSchedule, st.floats(0.01, 2.0), st.floats(0.01, 2.0), st.integers(1, 10**6)),
}


def in_python(agent: dict[str, Any], shaper: dict[str, Any]) -> TrainConfig:
    """The settings that are meant."""
    return TrainConfig(
        task="MountainCar",
        agent="sac",
        steps=6_000,
        agent_config=SacConfig(**agent),
        shaper_config=SasrConfig(**shaper),
    )


def in_toml(value: Any) -> str:
    """A value as a plan file writes it."""
    if value is None:
        return '"none"'
    if isinstance(value, LinearSchedule):
        return in_toml((value.start, value.end, value.steps))
    if isinstance(value, tuple):
        return f"[{', '.join(map(in_toml, value))}]"
    return json.dumps(value)


@given(st.fixed_dictionaries({}, optional=AGENT_SETTINGS), st.fixed_dictionaries({}, optional=SHAPER_SETTINGS))
def test_set_and_plan_files_and_json_give_the_same_settings(agent: dict[str, Any], shaper: dict[str, Any]) -> None:
    wanted = in_python(agent, shaper)
    texts = [f"agent.{name}={exact(value)}" for name, value in agent.items()]
    texts += [f"shaper.{name}={exact(value)}" for name, value in shaper.items()]
    parts = split_settings(texts)
    by_flags = Method(
        name="m",
        agent="sac",
        shaper="sasr",
        preset="paper",
        agent_settings=parts["agent"],
        shaper_settings=parts["shaper"],
    )
    lines = [f"set.agent.{name} = {in_toml(value)}" for name, value in agent.items()]
    lines += [f"set.shaper.{name} = {in_toml(value)}" for name, value in shaper.items()]
    plan = """
tasks = ["MountainCar"]
steps = 6000
[methods.m]
agent = "sac"
shaper = "sasr"
preset = "paper"
""" + "\n".join(lines)
    for method in (by_flags, parse_plan(plan, where="plan").runs[0].method):
        found = method.config("MountainCar", seeds=(0,), steps=6_000)
        assert (found.agent_config or SacConfig()) == wanted.agent_config
        assert found.sasr_config() == wanted.shaper_config
    assert TrainConfig.from_json(json.loads(json.dumps(wanted.to_json()))) == wanted


def exact(value: Any) -> str:
    """As `--set` takes it, to the last digit."""
    if isinstance(value, LinearSchedule):
        return f"{value.start!r},{value.end!r},{value.steps}"
    return setting_text(value)


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("64", tuple[int, ...], (64,)),
        ("[64, 64]", tuple[int, ...], (64, 64)),
        ("none", float | None, None),
        ("null", float | None, None),
        ("1e-3", float, 1e-3),
        ("1", float, 1.0),
        ("true", bool, True),
        ("median", float | LinearSchedule | Literal["median"], "median"),
    ],
)
def test_the_same_text_means_the_same_wherever_it_stands(text: str, hint: Any, value: object) -> None:
    for found in (typed(text, hint), typed(value, hint), typed(json.loads(json.dumps(value)), hint)):
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("wrong", ["", "x", "1.5", 1.5, True, [1], {}, None])
def test_what_is_no_whole_number_is_rejected_in_any_form(wrong: object) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        typed(wrong, int)


def test_a_choice_is_answered_with_all_of_them() -> None:
    with pytest.raises(ValueError, match="not one of linear, squared, exact"):
        typed("cubic", Literal["linear", "squared", "exact"])


def test_a_schedule_without_a_length_takes_the_whole_run() -> None:
    config = with_settings("shaper", SasrConfig(), {"bandwidth": "0.5,0.1"})
    run = TrainConfig(task="MountainCar", steps=7_000, shaper_config=config)
    assert run.shaper_config.bandwidth == LinearSchedule(0.5, 0.1, 7_000)


@pytest.mark.parametrize(
    "config_class", [*(kind.config for kind in AGENTS.values()), *(kind.config for kind in SHAPERS.values())]
)
def test_every_setting_comes_back_from_what_is_shown_of_it(config_class: type) -> None:
    config = config_class()
    texts = {field.name: setting_text(getattr(config, field.name)) for field in dataclasses.fields(config)}
    assert with_settings("agent", config, texts) == config


@pytest.mark.parametrize("value", [10**400, "1" + "0" * 400, [1], {"a": 1}, True, math.nan, "nan"])
def test_what_no_step_size_can_be_is_a_setting_that_is_named(value: object) -> None:
    with pytest.raises(ValueError, match=r"critic_lr"):
        TrainConfig(
            task="Pendulum-v1", agent="sac", agent_config=with_settings("agent", SacConfig(), {"critic_lr": value})
        )


@pytest.mark.parametrize("schedule", ["inf,0.1", "0.5,inf", "nan,0.1", "0.5,1e400"])
def test_a_schedule_has_finite_ends(schedule: str) -> None:
    with pytest.raises(ValueError, match=rf"shaper.bandwidth={schedule} is not .*START,END"):
        with_settings("shaper", SasrConfig(), {"bandwidth": schedule})


@pytest.mark.parametrize("hidden", [(10**13,), (64, 10**30)])
def test_a_layer_that_no_machine_can_hold_is_refused_before_it_is_made(hidden: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"agent.hidden=.* is too large"):
        TrainConfig(task="Pendulum-v1", agent="sac", agent_config=SacConfig(hidden=hidden))


@pytest.mark.parametrize("ask", [sasr.train, lambda task, seeds: grid([task], ["sac"], seeds=seeds)])
def test_more_seeds_than_any_machine_can_train_are_refused_at_once(ask: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"seeds=10{15} must be at most 10,000"):
        ask("Pendulum-v1", seeds=10**15)
