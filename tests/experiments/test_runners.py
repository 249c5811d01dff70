"""Grids survive: whoever runs a run, and however often it is interrupted, the same comes out."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from sasr.api import start
from sasr.experiments.grid import Grid
from sasr.experiments.job import Job, State, progress_of
from sasr.experiments.plan import GridRun
from sasr.experiments.runners import Inline, Memory, Pool
from tests.cli.commands import run
from tests.experiments.small import FLAGS, carried_out, jobs, recorded, small_runs

ROOT = Path(__file__).parents[2]
STEPS = 600


class Broken(gym.Env[Any, Any]):
    """An environment whose 60th step is its last."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 60:
            raise RuntimeError("the spring broke")
        return np.zeros(2, np.float32), 0.0, False, False, {}


if "Broken-v0" not in gym.registry:
    gym.register("Broken-v0", f"{__name__}:Broken", max_episode_steps=20)


def test_a_run_that_fails_is_named_with_its_log_and_the_others_go_on(tmp_path: Path) -> None:
    broken, whole = small_runs(["Broken-v0"], ["sac"]), small_runs(["Pendulum-v1"], ["sac"], seeds=1)
    grid = carried_out(Inline(), tmp_path, [*broken, *whole])
    (failed,) = grid.of("failed")
    assert "the spring broke" in failed.reason
    assert "the spring broke" in failed.job.log.read_text()
    (done,) = grid.of("done")
    assert done.job.run.task == "Pendulum-v1"


def test_what_is_done_stays_done_and_is_judged_again_only_for_more_episodes(inline: Path) -> None:
    made = Grid(jobs(inline))
    assert made.left == []
    more = [Job(**{**vars(job), "final_episodes": 3}) for job in jobs(inline)]
    assert len(Grid(more).left) == 4
    assert progress_of(made.jobs[0]).step == 300
    checkpoint = max((made.jobs[0].folder / "checkpoints").iterdir())
    assert (checkpoint / "agent.safetensors").exists()
    assert not (checkpoint / "replay.safetensors").exists()


def test_a_run_that_ends_while_the_grid_is_stopped_is_done(tmp_path: Path) -> None:
    runs = small_runs(["Pendulum-v1"], ["sac"], seeds=1, steps=60)
    (job,) = jobs(tmp_path, runs)
    pool = Pool(cores=1, memories=[Memory("", 2**40)])
    states: list[State] = []

    def interrupt_when_it_has_ended(job: Job, state: State, reason: str) -> None:
        states.append(state)
        if state == "running":
            process, *_ = pool.running[job.run.id]
            process.wait(timeout=300)
            raise KeyboardInterrupt

    pool.run([job], interrupt_when_it_has_ended)
    assert states == ["running", "done"]


def test_a_run_that_was_killed_before_it_had_settings_starts_anew(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, small_runs(["Pendulum-v1"], ["sac"], seeds=1, steps=100))
    job.folder.mkdir(parents=True)
    (job.folder / ".config.json.7.part").write_text("{")
    grid = Grid([job])
    grid.run(Inline())
    assert len(grid.of("done")) == 1


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_anew(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, small_runs(["Pendulum-v1"], ["sac"], seeds=1, steps=100))
    begun = start(job.run.config(device="cpu", workers=0), out=job.folder, events=False)
    shutil.rmtree(begun.folder / "checkpoints")
    lines = (begun.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (begun.folder / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= 50))
    grid = Grid([job])
    grid.run(Inline())
    assert len(grid.of("done")) == 1
    assert (job.folder / "metrics.1.jsonl").exists()


@pytest.mark.parametrize("lost", [["checkpoints"], ["checkpoints/*/manifest.json"], ["checkpoints", "config.json"]])
def test_a_grid_never_erases_a_run(lost: list[str], tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, small_runs(["Pendulum-v1"], ["sac"], seeds=1, steps=100))
    begun = start(job.run.config(device="cpu", workers=0), out=job.folder, events=False)
    history = (begun.folder / "metrics.jsonl").read_bytes()
    for path in [path for pattern in lost for path in begun.folder.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    grid = Grid([job])
    grid.run(Inline())
    assert len(grid.of("failed")) == 1
    assert (begun.folder / "metrics.jsonl").read_bytes() == history


def test_a_run_whose_settings_were_damaged_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, small_runs(["Pendulum-v1"], ["sac"], seeds=1, steps=100))
    start(job.run.config(device="cpu", workers=0), out=job.folder, events=False)
    history = (job.folder / "metrics.jsonl").read_bytes()
    (job.folder / "config.json").write_text("{")
    grid = Grid([job])
    with pytest.warns(UserWarning, match="restored from checkpoint"):
        grid.run(Inline())
    assert len(grid.of("done")) == 1
    assert (job.folder / "metrics.jsonl").read_bytes() == history


def test_a_runner_that_forgets_a_job_does_not_lose_it(tmp_path: Path) -> None:
    class Forgetful(Inline):
        def run(self, jobs: Any, tell: Any) -> None:
            tell(jobs[0], "running", "")

    grid = carried_out(Forgetful(), tmp_path)
    assert len(grid.of("failed")) == 4


def test_a_pool_starts_no_more_than_cores_and_memory_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = {"threads": 0, "a": 0, "b": 0}
    needs = (5, 6, 7, 20)
    made = [Job(**{**vars(job), "threads": 2, "memory": need}) for job, need in zip(jobs(tmp_path), needs, strict=True)]
    pool = Pool(cores=6, memories=[Memory("a", 10), Memory("b", 10)])

    class Process:
        """Ends at the third look."""

        looks = 0

        def poll(self) -> int | None:
            self.looks += 1
            return 0 if self.looks > 2 else None

    def start(job: Job, *, env: dict[str, str]) -> Process:
        assert env["CUDA_VISIBLE_DEVICES"] in ("a", "b")
        return Process()

    def tell(job: Job, state: State, why: str) -> None:
        most["threads"] = max(most["threads"], sum(job.threads for _, job, _ in pool.running.values()))
        for memory in pool.memories:
            alone = sum(where is memory for _, _, where in pool.running.values()) == 1
            assert memory.taken <= memory.bytes or alone
            most[memory.gpu] = max(most[memory.gpu], memory.taken)
        ended.extend([job.run.id] if state == "done" else [])

    ended: list[str] = []
    monkeypatch.setattr("sasr.experiments.runners.launch", start)
    pool.run(made, tell)
    assert sorted(ended) == sorted(job.run.id for job in made)
    assert most["threads"] == 4  # a third one would have had cores, but not the memory
    assert max(most["a"], most["b"]) == 20
    assert [memory.taken for memory in pool.memories] == [0, 0]


def compare(folder: Path, *more: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    flags = ("--tasks", "Pendulum-v1,MountainCar", "--methods", "sasr,sac", "--seeds", "2", "--steps", str(STEPS))
    return subprocess.Popen(
        [sys.executable, "-m", "sasr", "compare", *flags, *FLAGS, "--out", "grid", "--jobs", "2", *more],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(folder: Path, share: float, process: subprocess.Popen[str]) -> None:
    """Until so much of the grid has been done, with a process that is still at it."""
    plan, out, steps = folder / "grid" / "plan.json", folder / "grid", 0
    while steps < share * 4 * STEPS:
        if plan.exists():
            listed = [
                {name: value for name, value in data.items() if name != "id"} for data in json.loads(plan.read_text())
            ]
            steps = sum(progress_of(job).step for job in jobs(out, [GridRun.from_json(data) for data in listed]))
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def kill_workers(folder: Path) -> None:
    for log in (folder / "grid" / "logs").glob("*.log"):
        for number in re.findall(r"process (\d+)", log.read_text()):
            words = Path(f"/proc/{number}/cmdline")
            if words.exists() and b"sasr.experiments.worker" in words.read_bytes():
                os.kill(int(number), signal.SIGKILL)


def stored(folder: Path) -> dict[str, Any]:
    """The results, but for times, memory and what was typed."""
    found = {}
    for path in sorted(folder.rglob("*.json")):
        data = json.loads(path.read_text())
        for name in ("wall_seconds", "peak_memory_bytes", "command"):
            assert data.pop(name)
        for name in ("workers", "device"):
            data["config"].pop(name)
        found[path.name] = data
    return found


@pytest.mark.slow
def test_a_grid_killed_twice_ends_with_the_results_of_an_undisturbed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, share in enumerate((0.2, 0.6)):
        process = compare(tmp_path)
        wait_for(tmp_path, share, process)
        process.kill()
        process.wait()
        if number:  # the first time its processes live on for a moment, and save where they are
            kill_workers(tmp_path)
    process = compare(tmp_path, "--save")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "4 of 4 runs done" in output

    (tmp_path / "whole").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    flags = ("--tasks", "Pendulum-v1,MountainCar", "--methods", "sasr,sac", "--seeds", "2", "--steps", str(STEPS))
    code, output = run(capsys, "compare", *flags, *FLAGS, "--out", "grid", "--on", "inline", "--save")
    assert code == 0, output
    one, other = stored(tmp_path / "results"), stored(tmp_path / "whole" / "results")
    assert len(one) == 4
    assert one == other
    assert recorded(tmp_path / "grid") == recorded(tmp_path / "whole" / "grid")
    resumed = [
        (folder / "metrics.jsonl").read_text().count('"resumed"') for folder in (tmp_path / "grid/runs").iterdir()
    ]
    assert sum(resumed) >= 2  # the kills were not in vain
