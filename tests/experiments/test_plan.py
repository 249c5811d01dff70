"""Methods, runs and plans: what is in them, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sasr.agents import SacConfig
from sasr.agents.registry import AGENTS
from sasr.api import complete
from sasr.evidence.bandwidth import LinearSchedule
from sasr.experiments import GridRun, Method, Plan, built_in_methods
from sasr.experiments.plan import changed, grid
from sasr.experiments.plan_file import Choice, parse_plan, read_plan, read_suite, suites
from sasr.shaping.presets import PRESETS
from sasr.shaping.registry import SHAPERS

ROOT = Path(__file__).parents[2]


def grid_run(**changes: Any) -> GridRun:
    given: dict[str, Any] = {"task": "MountainCar", "method": built_in_methods()["sasr"], "seeds": (0, 1), "steps": 500}
    return GridRun(**(given | changes))


def test_every_shaper_preset_and_agent_is_a_method() -> None:
    found = built_in_methods()
    presets = {f"sasr-{preset}" for preset in PRESETS if preset != "auto"}
    assert {"sac", "noisynet", "rnd-ppo", "drnd-ppo", *SHAPERS, *AGENTS, *presets} == set(found)
    for name, method in found.items():
        config = method.config("MountainCar", seeds=(0,), steps=6000)
        assert config.shaper == (name.split("-")[0] if name.split("-")[0] in SHAPERS else "none")


def test_published_forms_of_rivals_are_methods() -> None:
    configs = {
        name: method.config("MountainCar", seeds=(0,), steps=6000) for name, method in built_in_methods().items()
    }
    assert (configs["noisynet"].agent, configs["noisynet"].agent_config.exploration) == ("sac", "noisy")
    for name in ("rnd-ppo", "drnd-ppo"):
        assert (configs[name].agent, configs[name].shaper) == ("ppo", name.removesuffix("-ppo"))


def test_presets_of_sasr_that_are_the_papers_train_the_papers_agent() -> None:
    found = built_in_methods()
    for name in ("sasr-paper", "sasr-authors", "sac-paper"):
        config = complete(found[name].config("MountainCar", seeds=(0,), steps=6000))
        assert config.agent_config == SacConfig.paper()
    assert complete(found["sasr"].config("MountainCar", seeds=(0,), steps=6000)).agent_config == SacConfig()


def test_an_id_depends_on_the_content_alone() -> None:
    ids = {
        grid_run().id,
        grid_run(task="MountainCarPaper").id,
        grid_run(method=built_in_methods()["sasr-paper"]).id,
        grid_run(seeds=(0, 2)).id,
        grid_run(steps=501).id,
        changed([grid_run()], agent={"tau": 0.1})[0].id,
        changed([grid_run()], settings={"discount": 0.9})[0].id,
    }
    assert len(ids) == 7
    assert grid_run(task="SASR/MountainCar-v0").id == grid_run().id == "MountainCar-sasr-c16cc537"
    assert changed([grid_run()], settings={"checkpoint_minutes": 1.0})[0].id == grid_run().id


def test_a_run_goes_to_json_and_back() -> None:
    method = Method(
        name="own",
        shaper="sasr",
        preset="paper",
        agent_settings={"hidden": [8, 8], "burn_in": 300},
        shaper_settings={"bandwidth": [0.5, 0.1]},
        settings={"truncation_is_terminal": "none", "eval_every": 0},
    )
    run = grid_run(method=method)
    back = GridRun.from_json(json.loads(json.dumps(run.to_json())))
    assert back == run
    assert back.id == run.id
    assert back.config() == run.config()


def test_a_schedule_without_a_length_takes_the_whole_run() -> None:
    method = Method(name="h", shaper="sasr", shaper_settings={"bandwidth": [0.5, 0.1]})
    found = [grid_run(method=method, steps=steps).config().shaper_config.bandwidth for steps in (300, 900)]
    assert found == [LinearSchedule(0.5, 0.1, 300), LinearSchedule(0.5, 0.1, 900)]
    fixed = Method(name="h", shaper="sasr", shaper_settings={"bandwidth": [0.5, 0.1, 77]})
    assert grid_run(method=fixed).config().shaper_config.bandwidth == LinearSchedule(0.5, 0.1, 77)


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
        ({"settings": {"task_settings": {}}}, "setting 'task_settings' is unknown"),
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
        Plan((grid_run(), grid_run(seeds=(1, 2))))
    with pytest.raises(ValueError, match="as sasr and as twin"):
        Plan((grid_run(), grid_run(method=twin)))
    assert len(Plan((grid_run(), grid_run(seeds=(2, 3)))).runs) == 2
    with pytest.raises(ValueError, match="no runs"):
        Plan(())


def test_a_population_is_split_evenly_and_loses_no_seed() -> None:
    whole = Plan((grid_run(seeds=tuple(range(10))),))
    parts = whole.split(lambda own: 4).runs
    assert [len(part.seeds) for part in parts] in ([3, 4, 3], [3, 3, 4])
    assert [seed for part in parts for seed in part.seeds] == list(range(10))
    assert len({part.settings_digest for part in parts}) == 1
    assert whole.split(lambda own: 99) == whole
    assert len(whole.split(lambda own: 0).runs) == 10


@given(st.lists(st.integers(0, 11), unique=True, min_size=1), st.lists(st.sets(st.integers(0, 11))), st.integers(1, 12))
def test_parts_that_have_begun_stay_and_the_rest_is_split(seeds: list[int], sets: list[set[int]], most: int) -> None:
    whole, taken, begun = grid_run(seeds=tuple(seeds)), set[int](), list[GridRun]()
    for each in sets:
        if each and each <= set(seeds) - taken:
            begun.append(dataclasses.replace(whole, seeds=tuple(each)))
            taken |= each
    parts = Plan((whole,)).split(lambda own: most, lambda own: begun).runs
    assert sorted(seed for part in parts for seed in part.seeds) == sorted(seeds)
    assert all(part in parts for part in begun)
    assert all(len(part.seeds) <= most for part in parts if part not in begun)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["sacc"]}, "did you mean 'sac'"),
        ({"seeds": 0}, "must be the number of seeds"),
        ({"seeds": [1, 1]}, "has duplicates"),
        ({"steps": 0}, "at least 1"),
    ],
)
def test_a_grid_refuses_what_it_can_not_run(given: dict[str, Any], message: str) -> None:
    wanted = {"tasks": ["MountainCar"], "methods": ["sac"]} | given
    with pytest.raises(ValueError, match=message):
        grid(**wanted)
    with pytest.raises(LookupError, match="did you mean MountainCar"):
        grid(["MountainCarr"], ["sac"])


SIX = {"AntStand", "AntFar", "HumanStand", "HumanKeep", "RobotReach", "RobotPush"}
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
    configs = [run.config(device="cpu") for run in read_suite(suite).runs]
    assert {config.task for config in configs} == SIX | {"MountainCar"}
    configs = [config for config in configs if config.task in SIX]
    assert {len(config.seeds) for config in configs} == {10}
    assert {config.steps for config in configs} == {1_000_000}
    for task in SIX:
        configs_of_task = [config.sasr_config() for config in configs if config.task == task]
        assert {getattr(config, setting) for config in configs_of_task} == values
        assert len(configs_of_task) == len(values)
        # Nothing else differs, from the paper's own settings or from each other.
        assert {dataclasses.replace(config, **{setting: values_of(setting)}) for config in configs_of_task} == {
            PRESETS["paper"]
        }


def values_of(setting: str) -> Any:
    return getattr(PRESETS["paper"], setting)


def test_table1_is_a_row_of_every_method_for_each_continuous_task_cheap_rows_first() -> None:
    runs = read_suite("table1").runs
    steps = {
        "MountainCar": 100_000,
        "HumanKeep": 75_000,
        "RobotReach": 75_000,
        "RobotPush": 250_000,
        "HumanStand": 300_000,
        "AntStand": 300_000,
        "AntFar": 400_000,
        "RobotSlide": 300_000,
        "RobotPickPlace": 300_000,
    }
    rivals = {"drnd", "relara", "gfa_rfe", "explors", "explo", "rnd", "sac", "td3", "ppo", "noisynet"}
    assert [(run.task, run.steps) for run in runs] == [entry for entry in steps.items() for _ in range(11)]
    for task in steps:
        assert {run.method.name for run in runs if run.task == task} == {"sasr", *rivals}
    assert {run.seeds for run in runs} == {(0, 1, 2, 3, 4)}


def test_a_choice_narrows_every_grid_of_a_suite() -> None:
    three = ["SASR/RobotReach-v0", "MountainCar", "HumanKeep"]
    runs = read_suite("table1", Choice(tasks=three, methods=["td3", "sasr"], seeds=[7], steps=700)).runs
    assert [(run.task, run.method.name) for run in runs] == [
        (task, method) for task in ("MountainCar", "HumanKeep", "RobotReach") for method in ("sasr", "td3")
    ]
    assert {(run.seeds, run.steps) for run in runs} == {((7,), 700)}
    narrowed = {run.id for run in read_suite("table1", Choice(tasks=["AntFar"])).runs}
    assert narrowed <= {run.id for run in read_suite("table1").runs}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            Choice(tasks=["Frogger"]),
            "suite table1 has no task 'Frogger'; take one of: MountainCar.*suites that have Frogger: .*table1-games",
        ),
        (Choice(tasks=["MountanCar"]), "did you mean 'MountainCar'"),
        (Choice(methods=["rnd-ppo"]), "suite table1 has no method 'rnd-ppo'; take one of: sasr, "),
        (Choice(methods=["rosa"]), "suite table1: shaper 'rosa' was removed"),
        (Choice(methods=["sasrr"]), "suite table1: method 'sasrr' is unknown; did you mean 'sasr'"),
    ],
)
def test_a_choice_that_no_grid_has_is_refused_with_those_that_there_are(choice: Choice, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_suite("table1", choice)


def test_an_unknown_suite_is_answered_with_the_closest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'ablation-weight'"):
        read_suite("ablation-weigth")
    assert all(suites().values())


LENGTHS = """
methods = ["sasr", "sac"]
[[grids]]
tasks = ["MountainCar", "HumanKeep"]
seeds = 2
steps = 1000
[[grids]]
tasks = ["MountainCar"]
seeds = [1, 4]
steps = 2000
"""


def test_grids_that_a_choice_makes_alike_are_one() -> None:
    assert len(parse_plan(LENGTHS, where="own.toml").runs) == 6
    runs = parse_plan(LENGTHS, where="own.toml", choice=Choice(steps=500)).runs
    assert [(run.task, run.method.name, run.seeds) for run in runs] == [
        ("MountainCar", "sasr", (0, 1, 4)),
        ("MountainCar", "sac", (0, 1, 4)),
        ("HumanKeep", "sasr", (0, 1)),
        ("HumanKeep", "sac", (0, 1)),
    ]
    runs = parse_plan(LENGTHS, where="own.toml", choice=Choice(tasks=["MountainCar"], seeds=3, steps=500)).runs
    assert [(run.method.name, run.seeds) for run in runs] == [("sasr", (0, 1, 2)), ("sac", (0, 1, 2))]
    text = 'tasks = ["MountainCar"]\n[methods.sac]\n[methods.b]\nlike = "sac"'
    with pytest.raises(ValueError, match="as sac and as b"):  # two names for one run stay a mistake
        parse_plan(text, where="own.toml", choice=Choice(steps=500))


def test_a_choice_that_only_parts_of_different_grids_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no grid with both MountainCar and td3"):
        parse_plan(TEXT, where="own.toml", choice=Choice(tasks=["MountainCar"], methods=["td3"]))


def test_tasks_and_methods_are_taken_from_the_choice_where_a_plan_names_none() -> None:
    plan = parse_plan("seeds = 3", where="own.toml", choice=Choice(tasks=["Pendulum-v1"], methods=["sac"]))
    assert [(run.task, run.method.name, run.seeds) for run in plan.runs] == [("Pendulum-v1", "sac", (0, 1, 2))]
    with pytest.raises(ValueError, match="there are no methods"):
        parse_plan("seeds = 3", where="own.toml", choice=Choice(tasks=["Pendulum-v1"]))


@pytest.mark.parametrize("name", ["agent-check", "ends"])
def test_a_plan_of_the_repository_can_be_run(name: str) -> None:
    path = ROOT / "results" / "plans" / f"{name}.toml"
    plan = read_plan(path)
    assert {len(run.seeds) for run in plan.runs} == {10}
    for run in plan.runs:
        config = complete(run.config(device="cpu"))
        assert config.evaluation_period <= 10_000
    command = re.search("sasr compare (.*)", path.read_text())
    assert command is not None
    assert f"--plan results/plans/{name}.toml" in command[1]


def test_settings_of_a_task_are_part_of_a_run() -> None:
    plan = parse_plan(
        'tasks = ["RobotSlide"]\nmethods = ["sac"]\nset.task.fixed = true\nsteps = 6000', where="own.toml"
    )
    (fixed,) = plan.runs
    assert fixed.config().task_options == {"fixed": True}
    (by_flag,) = changed(grid(["RobotSlide"], ["sac"], steps=6000), task={"fixed": "yes"})
    assert by_flag.id == fixed.id
    assert grid(["RobotSlide"], ["sac"], steps=6000)[0].id != fixed.id
    assert GridRun.from_json(json.loads(json.dumps(fixed.to_json()))) == fixed


def test_settings_are_changed_in_all_methods_or_refused_with_the_one_that_lacks_them() -> None:
    runs = changed(grid(["MountainCar"], ["sasr", "sasr-paper"], steps=6000), shaper={"features": "300"})
    assert [run.config().shaper_config.features for run in runs] == [300, 300]
    for part, message in (("agent", "ppo: .*burn_in"), ("shaper", "sac: .*burn_in")):
        with pytest.raises(ValueError, match=message):
            changed(grid(["MountainCar"], ["sac", "ppo"]), **{part: {"burn_in": 3}})
    with pytest.raises(ValueError, match="setting of SASR/MountainCar-v0 'fixed' is unknown"):
        changed(grid(["RobotSlide", "MountainCar"], ["sac"]), task={"fixed": True})


def test_a_setting_that_only_another_form_of_the_agent_has_is_refused() -> None:
    method = Method(name="noisy", agent_settings={"exploration": "noisy"})
    assert method.config("Pendulum-v1", seeds=(0,), steps=6000).agent == "sac"
    with pytest.raises(ValueError, match="setting of the agent 'exploration' is unknown"):
        method.config("CartPole-v1", seeds=(0,), steps=6000)


def test_a_plan_file_has_grids_methods_of_ones_own_and_settings_for_all() -> None:
    plan = parse_plan(TEXT, where="own.toml")
    found = {(run.task, run.method.name): run for run in plan.runs}
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
    assert [run.seeds for run in plan.runs] == [(3, 5), (3, 5), (0,), (0,)]


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
    with pytest.raises(ValueError, match=message) as error:
        parse_plan(text, where="own.toml")
    assert str(error.value).startswith("own.toml")
    assert f"line {line}" in str(error.value)
