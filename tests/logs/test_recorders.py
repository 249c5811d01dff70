"""Whatever a recorder runs into, the run goes on: only its metrics and its checkpoints are needed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sasr
from sasr import api
from sasr.logs.plots import MAPS_DATA, read_maps
from sasr.logs.recorders import Recorders
from sasr.training.trainer import Recorder
from tests.conftest import settings


class Notices(Recorder):
    """Keeps notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.closed = False

    def notice(self, steps: int, text: str) -> None:
        self.notices.append(text)

    def save(self) -> dict[str, Any]:
        return {"notices": len(self.notices)}

    def close(self, steps: int) -> None:
        self.closed = True


class Failing:
    """Fails whatever is called."""

    def __getattr__(self, name: str) -> Any:
        def fail(*what: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        return fail


def all_of_it(many: Recorders) -> dict[str, Any]:
    trainer: Any = SimpleNamespace(loop=SimpleNamespace(steps=7))
    many.begin(trainer)
    many.turned(8)
    many.episodes(8, [])
    many.figures(8, {"train/loss": np.zeros(1)})
    many.load({})
    saved = many.save()
    many.close(9)
    return saved


@pytest.mark.parametrize("order", [("metrics", "other"), ("other", "metrics")])
def test_a_recorder_that_fails_is_told_once_and_the_others_go_on(order: tuple[str, ...]) -> None:
    notices = Notices()
    made: dict[str, Any] = {"metrics": notices, "other": Failing()}
    saved = all_of_it(Recorders({name: made[name] for name in order}))
    (notice,) = notices.notices
    assert "other failed" in notice
    assert "No space left on device" in notice
    assert notices.closed
    assert saved == {"metrics": {"notices": 1}}


def test_a_run_that_cannot_keep_its_metrics_does_not_go_on() -> None:
    failing: Any = Failing()
    with pytest.raises(OSError, match="No space left"):
        all_of_it(Recorders({"metrics": failing, "other": Notices()}))


FULL_DISK = """
import resource, sys
import sasr
from sasr.agents import SacConfig
from sasr.logs.run_folder import RunFolder

create = RunFolder.create

def then_full(*arguments, **options):
    folder = create(*arguments, **options)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))  # no file may be longer
    return folder

RunFolder.create = then_full
run = sasr.train(
    "MountainCar", agent=SacConfig(hidden=(8, 8), burn_in=30, batch_size=16), steps=120, eval_every=60, log_every=1,
    eval_episodes=1, workers=0, out=sys.argv[1],
)
print(run.finished)
"""


def test_a_run_goes_on_to_its_last_step_when_its_disk_is_full(tmp_path: Path) -> None:
    """Checkpoints, metrics, the success map and TensorBoard events, all of them fail."""
    pytest.importorskip("resource")
    for extra in ("tensorboard", "matplotlib"):
        pytest.importorskip(extra)
    folder = tmp_path / "run"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, folder], env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("False\n")  # there is no checkpoint
    for what in ("step 120/120", "no checkpoint was written", "tensorboard failed"):
        assert what in ended.stdout
    assert ended.stdout.count("success_map failed") == 1
    assert {path.name for path in folder.iterdir()} >= {"config.json", "metrics.jsonl"}
    assert not list(folder.rglob("*.part*"))


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no archive"])
def test_a_damaged_success_map_does_not_keep_a_run_from_going_on(damage: bytes, tmp_path: Path) -> None:
    turned = Recorders.turned

    def stop(self: Recorders, steps: int) -> None:
        turned(self, steps)
        if steps == 90:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorders, "turned", stop)
        run = api.start(settings(task="MountainCar", steps=200, eval_every=0), out=tmp_path / "run", events=False)
    assert read_maps(run.folder).steps.tolist() == [20, 40, 60, 80]
    (run.folder / MAPS_DATA).write_bytes(damage)
    assert sasr.resume(run, progress=False, events=False).finished
    assert any("success_map.npz can't be read" in event["text"] for event in run.metrics("notice"))
    assert read_maps(run.folder).steps.tolist() == [100, 120, 140, 160, 180, 200]


def test_a_picture_that_cannot_be_drawn_does_not_fail_the_run(trained: sasr.Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = shutil.copytree(trained.folder, tmp_path / "run")
    (folder / "curve.png").unlink()
    (folder / "curve.png").mkdir()
    run = sasr.resume(folder, progress=False, events=False)
    assert any("curve.png was not drawn" in event["text"] for event in run.metrics("notice"))
