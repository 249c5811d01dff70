"""Methods, cells and plans: what is in them, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sasr.agents import SacConfig
from sasr.agents.registry import AGENTS
from sasr.api import complete
from sasr.evidence.bandwidth import LinearSchedule
from sasr.experiments import Cell, Method, Plan, built_in_methods
from sasr.experiments.plan import changed, grid
from sasr.experiments.plan_file import parse_plan, read_suite, suites
from sasr.shaping.presets import PRESETS
from sasr.shaping.registry import SHAPERS


def cell(**changes: Any) -> Cell:
    given: dict[str, Any] = {"task": "MountainCar", "method": built_in_methods()["sasr"], "seeds": (0, 1), "steps": 500}
    return Cell(**(given | changes))


def test_every_shaper_preset_and_agent_is_a_method() -> None:
    found = built_in_methods()
    assert {"sac", *SHAPERS, *AGENTS, *(f"sasr-{preset}" for preset in PRESETS if preset != "auto")} == set(found)
    for name, method in found.items():
        config = method.config("MountainCar", seeds=(0,), steps=6000)
        assert config.shaper == (name.split("-")[0] if name.split("-")[0] in SHAPERS else "none")


def test_presets_of_sasr_that_are_the_papers_train_the_papers_agent() -> None:
    found = built_in_methods()
    for name in ("sasr-paper", "sasr-authors", "sac-paper"):
        config = complete(found[name].config("MountainCar", seeds=(0,), steps=6000))
        assert config.agent_config == SacConfig.paper()
    assert complete(found["sasr"].config("MountainCar", seeds=(0,), steps=6000)).agent_config == SacConfig()


def test_an_id_depends_on_the_content_alone() -> None:
    ids = {
        cell().id,
        cell(task="MountainCarPaper").id,
        cell(method=built_in_methods()["sasr-paper"]).id,
        cell(seeds=(0, 2)).id,
        cell(steps=501).id,
        changed([cell()], agent={"tau": 0.1})[0].id,
        changed([cell()], settings={"discount": 0.9})[0].id,
    }
    assert len(ids) == 7
    assert cell(task="SASR/MountainCar-v0").id == cell().id == "MountainCar-sasr-c16cc537"
    assert changed([cell()], settings={"checkpoint_minutes": 1.0})[0].id == cell().id


def test_a_cell_goes_to_json_and_back() -> None:
    method = Method(
        name="own",
        shaper="sasr",
        preset="paper",
        agent_settings={"hidden": [8, 8], "burn_in": 300},
        shaper_settings={"bandwidth": [0.5, 0.1]},
        settings={"truncation_is_terminal": "none", "eval_every": 0},
    )
    own = cell(method=method)
    back = Cell.from_json(json.loads(json.dumps(own.to_json())))
    assert back == own
    assert back.id == own.id
    assert back.config() == own.config()


def test_a_schedule_without_a_length_takes_the_whole_run() -> None:
    method = Method(name="h", shaper="sasr", shaper_settings={"bandwidth": [0.5, 0.1]})
    found = [cell(method=method, steps=steps).config().shaper_config.bandwidth for steps in (300, 900)]
    assert found == [LinearSchedule(0.5, 0.1, 300), LinearSchedule(0.5, 0.1, 900)]
    fixed = Method(name="h", shaper="sasr", shaper_settings={"bandwidth": [0.5, 0.1, 77]})
    assert cell(method=fixed).config().shaper_config.bandwidth == LinearSchedule(0.5, 0.1, 77)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": "sacc"}, "did you mean 'sac'"),
        ({"shaper": "sassr"}, "did you mean 'sasr'"),
        ({"preset": "papper"}, "did you mean 'paper'"),
        ({"agent_settings": {"hiden": [8]}}, "did you mean 'hidden'"),
        ({"agent_settings": {"hidden": "wide"}}, "agent.hidden=wide is not a list"),
        ({"agent_settings": {"burn_in": True}}, "not a whole number"),
        ({"shaper_settings": {"retention": 0.5}}, "shaper=none has no settings"),
        ({"shaper": "sasr", "shaper_settings": {"retention": 2.0}}, "retention=2.0 must be in"),
        ({"shaper": "sasr", "shaper_settings": {"estimator": "linaer"}}, "one of linear, squared, exact"),
        ({"settings": {"seeds": 3}}, "setting 'seeds' is unknown"),
    ],
)
def test_a_method_that_can_not_be_is_refused_when_it_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method(name="own", **settings)


def test_a_run_that_is_in_a_plan_twice_is_refused() -> None:
    sasr = built_in_methods()["sasr"]
    twin = dataclasses.replace(sasr, name="twin")
    with pytest.raises(ValueError, match="seed 1 of sasr on MountainCar is in the plan twice"):
        Plan((cell(), cell(seeds=(1, 2))))
    with pytest.raises(ValueError, match="as sasr and as twin"):
        Plan((cell(), cell(method=twin)))
    assert len(Plan((cell(), cell(seeds=(2, 3)))).cells) == 2
    with pytest.raises(ValueError, match="no cells"):
        Plan(())


def test_a_population_is_split_evenly_and_loses_no_seed() -> None:
    whole = Plan((cell(seeds=tuple(range(10))),))
    parts = whole.split(lambda own: 4).cells
    assert [len(part.seeds) for part in parts] in ([3, 4, 3], [3, 3, 4])
    assert [seed for part in parts for seed in part.seeds] == list(range(10))
    assert len({part.kind for part in parts}) == 1
    assert whole.split(lambda own: 99) == whole
    assert len(whole.split(lambda own: 0).cells) == 10


@given(st.lists(st.integers(0, 11), unique=True, min_size=1), st.lists(st.sets(st.integers(0, 11))), st.integers(1, 12))
def test_parts_that_have_begun_stay_and_the_rest_is_split(seeds: list[int], sets: list[set[int]], most: int) -> None:
    whole, taken, begun = cell(seeds=tuple(seeds)), set[int](), list[Cell]()
    for own in sets:
        if own and own <= set(seeds) - taken:
            begun.append(dataclasses.replace(whole, seeds=tuple(own)))
            taken |= own
    parts = Plan((whole,)).split(lambda own: most, lambda own: begun).cells
    assert sorted(seed for part in parts for seed in part.seeds) == sorted(seeds)
    assert all(part in parts for part in begun)
    assert all(len(part.seeds) <= most for part in parts if part not in begun)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["sacc"]}, "did you mean 'sac'"),
        ({"seeds": 0}, "no runs"),
        ({"seeds": [1, 1]}, "has one twice"),
        ({"steps": 0}, "must be at least 1"),
    ],
)
def test_a_grid_refuses_what_it_can_not_run(given: dict[str, Any], message: str) -> None:
    wanted = {"tasks": ["MountainCar"], "methods": ["sac"]} | given
    with pytest.raises(ValueError, match=message):
        grid(**wanted)
    with pytest.raises(LookupError, match="did you mean MountainCar"):
        grid(["MountainCarr"], ["sac"])


SIX = ["AntStand", "AntFar", "HumanStand", "HumanKeep", "RobotReach", "RobotPush"]
ABLATIONS = {  # the paper's tables in its appendix
    "ablation-sampling": ("sample", {"beta", "ratio"}),
    "ablation-state-action": ("state_action", {True, False}),
    "ablation-retention": ("retention", {1.0, 0.1, 0.01}),
    "ablation-features": ("features", {50, 500, 1000, 2000}),
    "ablation-weight": ("reward_weight", {0.2, 0.4, 0.6, 0.8, 1.0}),
    "ablation-bandwidth": ("bandwidth", {0.01, 0.1, 0.2, 1.0, LinearSchedule(0.5, 0.1, 1_000_000)}),
}


@pytest.mark.parametrize("suite", ABLATIONS)
def test_an_ablation_is_the_papers(suite: str) -> None:
    setting, values = ABLATIONS[suite]
    configs = [own.config(device="cpu") for own in read_suite(suite).cells]
    assert list(dict.fromkeys(config.task for config in configs)) == SIX
    assert {len(config.seeds) for config in configs} == {10}
    assert {config.steps for config in configs} == {1_000_000}
    for task in SIX:
        own = [config.sasr_config() for config in configs if config.task == task]
        assert {getattr(config, setting) for config in own} == values
        assert len(own) == len(values)
        # Nothing else differs, from the paper's own settings or from each other.
        assert {dataclasses.replace(config, **{setting: values_of(setting)}) for config in own} == {PRESETS["paper"]}


def values_of(setting: str) -> Any:
    return getattr(PRESETS["paper"], setting)


@pytest.mark.parametrize("suite", ["table1", "cost", "rff-on-off"])
def test_a_suite_is_the_papers_table(suite: str) -> None:
    found = read_suite(suite).cells
    expected = {
        "table1": 14 * 11 - 5,  # TD3 acts in no game
        "cost": 2 * 6,
        "rff-on-off": 6 * 3,
    }
    assert len(found) == expected[suite]


def test_what_is_given_takes_the_place_of_a_suites_own() -> None:
    found = read_suite("ablation-weight", tasks=["MountainCar"], seeds=2, steps=700).cells
    assert {(own.task, own.seeds, own.steps) for own in found} == {("MountainCar", (0, 1), 700)}
    assert len(found) == 5
    with pytest.raises(ValueError, match="did you mean 'ablation-weight'"):
        read_suite("ablation-weigth")
    assert all(suites().values())


def test_a_plan_file_has_grids_methods_of_ones_own_and_settings_for_all() -> None:
    plan = parse_plan(TEXT, where="own.toml")
    found = {(own.task, own.method.name): own for own in plan.cells}
    assert list(found) == [
        ("MountainCar", "sac"),
        ("MountainCar", "wide"),
        ("Pendulum-v1", "wider"),
        ("Pendulum-v1", "td3"),
    ]
    wide = found["MountainCar", "wide"].config()
    assert (wide.agent_config.hidden, wide.discount, wide.eval_every, wide.preset) == ((512, 512), 0.9, 50, "paper")
    assert found["MountainCar", "sac"].config().agent_config.hidden == (16, 16)
    assert found["Pendulum-v1", "wider"].config().agent == "td3"
    assert found["Pendulum-v1", "wider"].config().shaper == "sasr"
    assert [own.seeds for own in plan.cells] == [(3, 5), (3, 5), (0,), (0,)]


TEXT = """
tasks = ["MountainCar"]
seeds = [3, 5]
steps = 6000
set.agent.hidden = [16, 16]
settings = { eval_every = 50 }

[methods.sac]

[methods.wide]
like = "sasr-paper"
set.agent.hidden = [512, 512]
settings.discount = 0.9

[methods.wider]
like = "wide"
agent = "td3"

[[grids]]
methods = ["sac", "wide"]

[[grids]]
tasks = ["Pendulum-v1"]
methods = ["wider", "td3"]
seeds = 1
"""


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('tasks = ["MountainCar"]\nmethods = [\n  "sasr",\n  "sacc",\n]', 4, "did you mean 'sac'"),
        ('methods = ["sac"]\ntasks = ["Pendulum-v1", "MountainCarr"]', 2, "did you mean MountainCar"),
        ('tasks = ["MountainCar"]\nmetods = ["sac"]', 2, "did you mean 'methods'"),
        ('tasks = ["MountainCar"]\n[methods.a]\nshaper = "sasr"\nset.shaper.retentoin = 1', 4, "mean 'retention'"),
        ('tasks = ["MountainCar"]\n[methods.a]\n[methods.a.set.agent]\ntau = "x"', 4, "agent.tau=x is not a number"),
        ('tasks = ["MountainCar"]\n[methods.a]\nshaper = "sassr"', 3, "did you mean 'sasr'"),
        ('tasks = ["MountainCar"]\n[methods.a]\nshapper = "sasr"', 3, "did you mean 'shaper'"),
        ('tasks = ["MountainCar"]\n[methods.a]\nlike = "sasrr"', 3, "did you mean 'sasr'"),
        ('tasks = ["MountainCar"]\n[methods.sac]\n[methods.b]\nlike = "sac"', 3, "as sac and as b"),
        ('tasks = ["MountainCar", "MountainCar"]\nmethods = ["sac"]', 1, "is in the plan twice"),
        ('tasks = ["MountainCar"]\nmethods = ["sac"]\n[settings]\nevl_every = 3', 4, "did you mean 'eval_every'"),
        ('tasks = ["MountainCar"]\nmethods = ["sac"]\nseeds = 0', 3, "seeds = 0 must be"),
        ('tasks = ["MountainCar"]\nmethods = ["sac"]\nsteps = "many"', 3, "steps = 'many' must be"),
        ('methods = ["sac"]\n', 1, "there are no tasks"),
        ('tasks = "MountainCar"\nmethods = ["sac"]', 1, "must be a list of names"),
        ('seeds = 2\n[[grids]]\ntasks = ["MountainCar"]\nmethods = ["sac"]\n[[grids]]\ntaks = []', 6, "mean 'tasks'"),
        ('tasks = ["MountainCar"]\nmethods = ["sac"]\nset.shaper.retention = 1', 3, "belong to a method"),
        ('tasks = ["MountainCar"\nmethods = ["sac"]', 2, "Unclosed array|Invalid|unclosed"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_plan_is_told_with_its_line_and_the_closest_name(text: str, line: int, message: str) -> None:
    with pytest.raises(ValueError, match=message) as told:
        parse_plan(text, where="own.toml")
    assert str(told.value).startswith("own.toml")
    assert f"line {line}" in str(told.value)
