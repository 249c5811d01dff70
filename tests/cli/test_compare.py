"""`sasr compare` as typed: results and report at the end, and mistakes told before any run starts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import sasr
from sasr.cli import compare
from sasr.experiments import runners
from sasr.experiments.estimate import examine
from sasr.experiments.plan import Plan
from sasr.experiments.runners import Memory
from sasr.logs.metrics import read_metrics
from sasr.report.store import read_result, read_results, write_result
from tests.cli.commands import run
from tests.experiments.small import FLAGS, small_runs
from tests.report.synthetic import make_result

TINY = ("--tasks", "Pendulum-v1", "--methods", "sac", "--steps", "100", *FLAGS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_comparison_ends_with_a_results_store_that_the_report_reads(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.toml").write_text(
        'tasks = ["Pendulum-v1"]\nseeds = [4, 7]\nsteps = 100\n\n[methods.sac]\n\n'
        '[methods.gentle]\nlike = "sasr"\nset.shaper.reward_weight = 0.05\n'
    )
    flags = ("compare", "--plan", "own.toml", *FLAGS, "--out", "own", "--on", "inline", "--population", "1", "--save")
    code, output = run(capsys, *flags)
    assert code == 0, output
    assert "4 of 4 runs done" in output
    found = {result.method: result for result in read_results(here / "results").results}
    assert set(found) == {"sac", "gentle"}
    gentle = found["gentle"]
    assert [seed.seed for seed in gentle.seeds] == [4, 7]  # two processes of one seed each, joined
    assert [len(seed.final) for seed in gentle.seeds] == [2, 2]
    assert gentle.config["shaper_config"]["reward_weight"] == 0.05
    assert gentle.gaps == ()
    assert {path.parent for path in here.glob("results/**/*.json")} == {here / "results" / "own" / "Pendulum-v1"}
    assert gentle.command == " ".join(("sasr", *flags))
    assert gentle.wall_seconds > 0.0
    assert 1e7 < gentle.peak_memory_bytes < 1e11
    assert gentle.machine["cores"]
    assert gentle.versions["sasr"] == sasr.__version__

    code, output = run(capsys, *flags)
    assert code == 0
    assert "4 of 4 runs were done before" in output
    code, output = run(capsys, "report", "own", "--out", "page.html")
    assert code == 0
    assert "1 task(s), 2 method(s), 4 run(s)" in output


def test_a_dry_run_estimates_and_leaves_nothing_behind(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "compare", *TINY, "--dry-run", "--seeds", "2", "--jobs", "1")
    assert code == 0, output
    assert "1 runs, about" in output
    assert "GiB" in output
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("text", "seeds"), [("2", (0, 1)), ("3,5,8", (3, 5, 8)), ("7,", (7,)), ("0,", (0,))])
def test_seeds_are_how_many_or_which(
    text: str, seeds: tuple[int, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = run(capsys, "compare", *TINY, "--on", "inline", "--seeds", text)
    assert code == 0, output
    (folder,) = (here / "grid" / "runs").iterdir()
    assert sasr.Run(folder).config.seeds == seeds


@pytest.mark.parametrize("text", ['"R(s, a)",sac', 'sac , "R(s, a)"', '"R(s, a)",\n  sac,'])
def test_a_method_with_a_comma_in_its_name_stands_in_quotes(
    text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.toml").write_text(
        'tasks = ["Pendulum-v1"]\n[methods."R(s)"]\nlike = "sasr"\n[methods."R(s, a)"]\nlike = "sasr"\n'
        "set.shaper.state_action = true\n[methods.sac]\n"
    )
    flags = ("compare", "--plan", "own.toml", "--seeds", "1", "--steps", "100", "--dry-run", *FLAGS, "--methods")
    code, output = run(capsys, *flags, text)
    assert code == 0, output
    assert "2 runs, about" in output
    code, output = run(capsys, *flags, text.replace('"', ""))
    assert code == 2
    assert "did you mean 'R(s)'" in output


@pytest.mark.parametrize("flag", ["--save", "--save-stopped"])
def test_a_run_that_fails_makes_the_command_fail_and_is_not_saved(
    here: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    import tests.experiments.test_runners  # noqa: F401  registers Broken-v0

    flags = ("--tasks", "Broken-v0,Pendulum-v1", "--methods", "sac", "--steps", "100", *FLAGS)
    code, output = run(capsys, "compare", *flags, "--on", "inline", flag)
    assert code == 1
    assert "failed: sac on Broken-v0, seed 0" in output
    (log,) = (here / "grid" / "logs").iterdir()
    assert str(Path("grid") / "logs" / log.name) in output
    assert "1 of 2 runs done" in output
    assert "not saved: sac on Broken-v0" in output
    assert [result.task for result in read_results(here / "results").results] == ["Pendulum-v1"]


def test_a_result_is_saved_as_soon_as_its_runs_are_done(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken_away(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "save_results", taken_away)  # what comes after the last run never comes
    assert run(capsys, "compare", *TINY, "--on", "inline", "--save")[0] == 130
    (result,) = read_results(here / "results" / "compare").results  # no suite, no plan
    assert len(result.seeds[0].final) == 2


@pytest.mark.slow
def test_what_was_stopped_is_saved_as_far_as_it_came(here: Path) -> None:
    output = stopped_after_two_evaluations(here, signal.SIGINT)
    assert "the same command resumes them" in output
    assert len(list((here / "grid" / "runs").glob("*/checkpoints/*/agent.safetensors"))) >= 2
    (result,) = read_results(here / "results").results
    assert sorted(seed.seed for seed in result.seeds) == [3, 5]
    assert 200 <= result.steps < 100_000
    assert {seed.steps[-1] for seed in result.seeds} == {result.steps}
    assert f"{result.steps:,} of 100,000 steps" in " ".join(output.split())
    assert result.remarks[0] == f"the first {result.steps:,} steps of runs of 100,000 that were stopped"

    (path,) = (here / "results").rglob("*.json")
    assert write_result(replace(result, steps=50_000_000), path.parents[1]) == path
    output = stopped_after_two_evaluations(here, signal.SIGTERM)  # two more
    assert f"steps of {path.relative_to(here)}, which has 50,000,000" in " ".join(output.split())
    assert read_result(path).steps == 50_000_000


def stopped_after_two_evaluations(here: Path, number: signal.Signals) -> str:
    """What a grid of two runs says that is stopped."""
    flags = ("compare", "--tasks", "Pendulum-v1", "--methods", "sac", "--steps", "100000", *FLAGS, "--seeds", "3,5")
    command = [sys.executable, "-m", "sasr", *flags, "--population", "1", "--jobs", "2", "--save-stopped"]
    before = max(evaluations(here), default=0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            late = time.monotonic() + 300
            while len(counts := evaluations(here)) < 2 or min(counts) < before + 2:
                assert time.monotonic() < late, counts
                time.sleep(0.2)
            process.send_signal(number)
            output, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    return output


def evaluations(here: Path) -> list[int]:
    """How many each run has."""
    runs = (here / "grid").glob("runs/*/metrics.jsonl")
    return [run.read_text().count('"kind": "evaluation", "step"') for run in runs]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --tasks, a plan file with --plan, or one of the paper's suites: ablation-bandwidth"),
        (("tabel1",), "did you mean 'table1'"),
        (("ablation-weight", "--plan", "own.toml"), "use one of them"),
        (("--plan", "nowhere.toml"), "nowhere.toml can't be read"),
        (("--plan", "own.toml"), "own.toml, line 2: method 'sacc' is unknown; did you mean 'sac'"),
        (("--tasks", "MountainCarr", "--methods", "sac"), "did you mean MountainCar"),
        (("--tasks", "MountainCar", "--methods", "sasrr"), "did you mean 'sasr'"),
        (("--tasks", "MountainCar,MountainCar", "--methods", "sac"), "is in the plan twice"),
        ((*TINY, "--seeds", "none"), "neither a number of seeds nor a list"),
        ((*TINY, "--seeds", "0"), "must be from 1 to"),
        ((*TINY, "--final-episodes", "0"), "--final-episodes 0 must be at least 1"),
        ((*TINY, "--set", "agent.hiden=3"), "did you mean 'hidden'"),
        ((*TINY, "--set", "shaper.retention=1"), "sac: shaper.retention: shaper=none has no settings"),
        ((*TINY, "--set", "task.gravity=1"), "setting of Pendulum-v1 'gravity' is unknown; take one of: g"),
        (("table1", "--set", "task.fixed=true"), "MountainCar: setting of SASR/MountainCar-v0 'fixed' is unknown"),
        (("table1", "--set", "task.fixed=true"), "narrow --tasks to tasks that have it"),
        (("table1-games", "--tasks", "Freeway", "--methods", "td3"), "td3 on Freeway: action space Discrete"),
        (("table1", "--tasks", "Frogger"), "suites that have Frogger: cost, table1-games"),
        (("--tasks", "CartPole-v1,Pendulum-v1", "--methods", "td3,sac", "--steps", "0"), "--steps 0 must be"),
        ((*TINY, "--device", "gpu"), "use cpu, cuda, cuda:1 or auto"),
        (("--tasks", "CartPole-v1", "--methods", "td3", *FLAGS), "td3 on CartPole-v1: "),
        (("--tasks", "Pendulum-v1", "--methods", "sac", "--steps", "30", *FLAGS), "steps=30 is less than burn_in=40"),
        ((*TINY, "--out", "own.toml/grid"), "choose another place with --out"),
        ((*TINY, "--save", "--results", "own.toml/results"), "choose another place with --results"),
        ((*TINY, "--save", "--results", "newer"), f"{Path('newer', 'one.json')}: format version 9"),
        ((*TINY, "--on", "ray", "--gpus", "-1"), "--gpus -1 must not be negative"),
        ((*TINY, "--track", "wandbb"), "did you mean 'wandb'"),
        ((*TINY, "--on", "ray", "--address", "nowhere"), "--address nowhere is not HOST:PORT"),
    ],
)
def test_a_mistake_is_told_before_any_run_starts(
    arguments: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.toml").write_text('tasks = ["MountainCar"]\nmethods = ["sacc"]\n')
    (here / "newer").mkdir()
    (here / "newer" / "one.json").write_text(json.dumps(make_result().to_json() | {"version": 9}))
    code, output = run(capsys, "compare", *arguments)
    assert code == 2, output
    assert message in output
    assert "Traceback" not in output
    assert not (here / "grid" / "runs").exists()


class Web(BaseHTTPRequestHandler):
    """A server that is no Ray."""

    def log_message(self, *words: object) -> None:
        pass


@pytest.mark.ray
@pytest.mark.parametrize("there", ["nobody", "a web server"])
def test_an_address_without_ray_is_told_within_seconds(
    there: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    server = HTTPServer(("127.0.0.1", 0), Web)
    if there == "nobody":
        server.server_close()
    else:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        code, output = run(capsys, "compare", *TINY, "--on", "ray", "--address", f"127.0.0.1:{server.server_port}")
    finally:
        if there != "nobody":
            server.shutdown()
    assert code == 2
    assert f"no Ray answers at 127.0.0.1:{server.server_port}" in output
    assert ("another service does" in output) == (there != "nobody")
    assert not (here / "grid" / "runs").exists()


def test_wandb_offline_has_the_curves_of_a_run(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    code, output = run(capsys, "compare", *TINY, "--on", "inline", "--track", "wandb")
    assert code == 0, output
    (log,) = here.glob("grid/runs/*/wandb/offline-run-*/run-*.wandb")
    assert b"eval/mean_reward" in log.read_bytes()


def test_a_grids_runs_can_be_read_by_tensorboard(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    flags = [flag for flag in TINY if flag != "--no-tensorboard"]
    code, output = run(capsys, "compare", *flags, "--on", "inline")
    assert code == 0, output
    (folder,) = (here / "grid" / "runs").iterdir()
    events = accumulator(str(folder / "tensorboard" / "seed-0"))
    events.Reload()
    shown = {event.step: event.value for event in events.Scalars("eval/mean_reward")}
    recorded = {event["step"]: event["return_mean"] for event in read_metrics(folder, "evaluation")}
    assert shown == pytest.approx(recorded, rel=1e-6)
    assert 100 in shown


@pytest.mark.parametrize(
    ("package", "flags", "line"),
    [
        ("wandb", ("--track", "wandb"), 'pip install "sasr[wandb]"'),
        ("ray", ("--on", "ray"), 'pip install "sasr[cluster]"'),
    ],
)
def test_without_a_package_the_line_to_install_it_is_told(
    package: str,
    flags: tuple[str, ...],
    line: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else real(name))
    commands = [("compare", *TINY), *([("train", "Pendulum-v1")] if package == "wandb" else [])]
    for command in commands:
        code, output = run(capsys, *command, *flags)
        assert code == 2
        assert line in output
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("on", "population", "most"), [("pool", None, 3), ("pool", 2, 2), ("ray", None, 10)])
def test_seeds_share_a_process_as_far_as_they_fit(on: Any, population: int | None, most: int) -> None:
    (run,) = small_runs(["Pendulum-v1"], ["sac"], seeds=10)
    need = examine(run)
    five, three = (need.bytes_of(replace(run, seeds=tuple(range(seeds)))) for seeds in (5, 3))
    means = runners.Resources(
        on=on, jobs=None, threads=1, population=population, memories=[Memory("0", five), Memory("1", three)]
    )
    assert means.most_seeds(Plan((run,)), {run.settings_digest: need})(run) == most


@pytest.mark.parametrize(
    ("cores", "methods", "jobs", "threads", "sizes"),
    [
        (2, 1, None, None, [5, 5]),
        (16, 1, None, None, [1] * 10),
        (16, 3, None, None, [2] * 15),
        (3, 2, None, None, [10, 10]),  # four halves on three cores would be done no sooner
        (2, 3, None, None, [10, 10, 10]),
        (8, 1, None, 4, [5, 5]),
        (64, 1, None, None, [1] * 10),  # six cores for each, but one environment
        (8, 1, 1, None, [10]),
    ],
)
def test_on_cpus_fewer_runs_than_cores_are_split_among_them(
    cores: int,
    methods: int,
    jobs: int | None,
    threads: int | None,
    sizes: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runners, "cores", lambda: cores)
    plan = Plan(tuple(small_runs(["Pendulum-v1"], ["sac", "sasr", "rnd"][:methods], seeds=10)))
    needs = {run.settings_digest: examine(run) for run in plan.runs}
    for name, expected in (("", sizes), ("0", [10] * methods)):  # a GPU is shared well only under MPS
        memories = [Memory(name, 2**40)]
        means = runners.Resources(on="pool", jobs=jobs, threads=threads, population=None, memories=memories)
        parts = plan.split(means.most_seeds(plan, needs)).runs
        assert [len(part.seeds) for part in parts] == expected
        shares = means.shared(len(parts))
        assert shares.at_once * shares.threads <= cores
        assert all((shares.workers_of(part) or 0) <= len(part.seeds) for part in parts)


def test_what_has_begun_goes_on_in_its_own_parts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("compare", *TINY, "--on", "inline")
    assert run(capsys, *flags, "--seeds", "2", "--population", "1")[0] == 0
    before = {path: path.stat().st_mtime_ns for path in here.rglob("metrics.jsonl")}
    assert len(before) == 2
    for more in ((), ("--population", "2")):
        code, output = run(capsys, *flags, "--seeds", "2", *more)
        assert code == 0, output
        assert "2 of 2 runs done" in output
    # Seeds that are new come in a run of their own; a folder that says nothing is no reason to stop.
    (here / "grid" / "runs" / "Pendulum-v1-sac-00000000").mkdir()
    (here / "grid" / "runs" / "Pendulum-v1-sac-00000000" / "config.json").write_text("[]")
    code, output = run(capsys, *flags, "--seeds", "4", "--save")
    assert code == 0, output
    assert "3 of 3 runs done" in output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (result,) = read_results("results").results
    assert [seed.seed for seed in result.seeds] == [0, 1, 2, 3]


def test_a_grid_of_an_earlier_sasr_is_refused_with_what_to_rename(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "grid" / "cells").mkdir(parents=True)
    code, output = run(capsys, "compare", *TINY, "--on", "inline")
    assert code == 2
    assert "rename grid/cells to grid/runs" in output


GAMES = ("CartPole-v1,Pendulum-v1", "--steps", "100", "--on", "inline", *FLAGS)


def test_a_method_is_skipped_on_tasks_where_it_can_not_act(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "compare", "--tasks", *GAMES, "--methods", "td3,sac")
    assert code == 0, output
    assert "skipped: td3 on CartPole-v1: action space Discrete(2) is discrete" in output
    assert "3 of 3 runs done" in output


@pytest.mark.parametrize(
    ("task", "setting", "value"), [("Freeway", "reward_mode", "score"), ("RobotSlide", "fixed", True)]
)
def test_settings_of_a_task_reach_the_runs_of_a_suite(
    task: str, setting: str, value: object, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if task == "Freeway":
        pytest.importorskip("ale_py")
    suite = "table1-games" if task == "Freeway" else "table1"
    flags = ["--tasks", task, "--methods", "ppo", "--seeds", "1", "--steps", "64", "--max-episode-steps", "8"]
    flags += ["--on", "inline", "--device", "cpu", "--final-episodes", "1", "--no-tensorboard"]
    for text in ("agent.rollout=16", "agent.minibatches=1", "agent.epochs=1", f"task.{setting}={value}"):
        flags += ["--set", text]
    code, output = run(capsys, "compare", suite, *flags)
    assert code == 0, output
    (folder,) = (here / "grid" / "runs").iterdir()
    assert sasr.Run(folder).config.task_settings == {setting: value}


def test_a_method_that_can_act_nowhere_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "compare", "--tasks", *GAMES, "--methods", "sac_discrete,sac", "--tasks", "Pendulum-v1")
    assert code == 2
    assert "sac_discrete on Pendulum-v1: action space" in output
    assert not (here / "grid").exists()


def test_settings_mean_the_same_in_train_and_compare(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {
        "agent.hidden": "8",
        "agent.burn_in": "40",
        "agent.batch_size": "16",
        "agent.target_entropy": "none",
        "shaper.bandwidth": "0.5,0.1",
        "shaper.features": "50",
        "task.reward_scale": "1",
    }
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    flags += ["--steps", "100", "--device", "cpu", "--eval-every", "100", "--eval-episodes", "1", "--no-tensorboard"]
    assert run(capsys, "train", "MountainCar", *flags, "--out", "run")[0] == 0
    grid = ("--tasks", "MountainCar", "--methods", "sasr", "--seeds", "1", "--on", "inline", "--final-episodes", "1")
    assert run(capsys, "compare", *grid, *flags)[0] == 0
    (folder,) = (here / "grid" / "runs").iterdir()
    trained, compared = (json.loads((place / "config.json").read_text())["config"] for place in (here / "run", folder))
    assert trained["task_settings"] == {"reward_scale": 1.0}
    assert trained["agent_config"]["hidden"] == [8]
    for name in ("task", "task_settings", "agent", "agent_config", "shaper", "shaper_config", "steps", "seeds"):
        assert trained[name] == compared[name], name
