"""Kill -9 a training run at random moments, again and again: does it end as if nothing had happened?

python -m benchmarks.kill_runs --label NAME   writes benchmarks/results/kill_runs-NAME.json
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console

from benchmarks.machine import machine, save
from sasr.agents.sac import SacConfig
from sasr.shaping.presets import preset_config
from sasr.training import TrainConfig, Trainer
from sasr.training.checkpoint import newest
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import CHECKPOINTS, Silent

METRICS, WEIGHTS, RUNNING = "metrics.jsonl", "weights.json", "running"


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    kills: int = 30
    task: str = "Pendulum-v1"
    steps: int = 3_000
    """Steps of a run; one that ends before it was killed often enough is followed by another."""
    longest: float = 2.0
    """A kill comes at a random moment up to so many seconds after the program was loaded."""
    seed: int = 0


class Lines(Silent):
    """One line of JSON for each event; a resumed run cuts off what came after its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab")

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        self._write("episodes", steps, [list(one) for one in ended])

    def figures(self, steps: int, figures: Mapping[str, Any]) -> None:
        self._write("figures", steps, {name: own.tolist() for name, own in figures.items()})

    def evaluation(self, steps: int, result: Evaluation) -> None:
        self._write("evaluation", steps, [part.tolist() for part in result])

    def notice(self, steps: int, text: str) -> None:
        print(text, flush=True)

    def save(self) -> dict[str, Any]:
        return {"bytes": self.file.tell()}

    def load(self, saved: Mapping[str, Any]) -> None:
        self.file.truncate(saved["bytes"])
        self.file.seek(0, os.SEEK_END)

    def _write(self, kind: str, steps: int, told: object) -> None:
        self.file.write(json.dumps([kind, steps, told]).encode() + b"\n")
        self.file.flush()


def train(folder: Path, task: str, steps: int, checkpoint_minutes: float) -> None:
    """One life of a run: from its newest checkpoint to its end."""
    torch.set_num_threads(1)
    config = TrainConfig(
        task=task,
        agent="sac",
        agent_config=SacConfig(hidden=(16, 16), burn_in=200, batch_size=32),
        shaper_config=preset_config("auto", features=100),
        seeds=(0, 1),
        steps=steps,
        environments=2,
        workers=0,
        device="cpu",
        capacity=1_000,
        eval_every=500,
        eval_episodes=2,
        log_every=50,
        checkpoint_minutes=checkpoint_minutes,
    )
    print(RUNNING, flush=True)
    recorder = Lines(folder / METRICS)
    with Trainer(config, folder=folder, recorder=recorder) as trainer:
        if not trainer.resume():
            recorder.load({"bytes": 0})  # killed before its first checkpoint
        trainer.run()
        saved = trainer.learner.save()
    weights = {
        f"{part}.{name}": zlib.crc32(own.contiguous().numpy().tobytes())
        for part, held in saved.items()
        for name, own in held.items()
    }
    (folder / WEIGHTS).write_text(json.dumps(weights))


def start(folder: Path, settings: Settings, checkpoint_minutes: float) -> subprocess.Popen[str]:
    """A life in a process of its own, just before it looks for a checkpoint."""
    given = json.dumps([str(folder), settings.task, settings.steps, checkpoint_minutes])
    process = subprocess.Popen(
        [sys.executable, "-c", f"from benchmarks.kill_runs import *; train_told({given!r})"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == RUNNING
    return process


def train_told(given: str) -> None:
    folder, task, steps, checkpoint_minutes = json.loads(given)
    train(Path(folder), task, steps, checkpoint_minutes)


@dataclass
class Story:
    """What happened to runs that were killed."""

    kills: int = 0
    runs: int = 0
    kills_while_writing: int = 0
    """Kills that left a half-written checkpoint behind."""
    damaged: int = 0
    """Checkpoints that were in their place, but not whole."""
    equal: int = 0
    """Runs whose metrics and final state are those of the uninterrupted run, byte for byte."""


def live_and_die(settings: Settings, place: Path) -> Story:
    """Kill runs until there were enough kills; the last run may end."""
    rng, story = np.random.default_rng(settings.seed), Story()
    expected = place / "uninterrupted"
    expected.mkdir()
    start(expected, settings, 0.0).communicate()
    while story.kills < settings.kills:
        folder = place / str(story.runs)
        folder.mkdir()
        story.runs += 1
        _one_run(folder, settings, rng, story)
        story.equal += all(
            (folder / name).read_bytes() == (expected / name).read_bytes() for name in (METRICS, WEIGHTS)
        )
    return story


def _one_run(folder: Path, settings: Settings, rng: np.random.Generator, story: Story) -> None:
    while not (folder / WEIGHTS).exists():
        process = start(folder, settings, 0.0005)  # so often that many kills come in the middle of a checkpoint
        if story.kills < settings.kills:
            time.sleep(rng.uniform(0.0, settings.longest))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                story.kills += 1
        process.communicate()
        if not (folder / WEIGHTS).exists():
            _look(folder / CHECKPOINTS, story)


def _look(folder: Path, story: Story) -> None:
    problems: list[Path] = []
    newest(folder, lambda path, reason: problems.append(path))
    story.kills_while_writing += sum(path.suffix == ".partial" for path in problems)
    story.damaged += sum(path.suffix == "" for path in problems)


def main(settings: Settings) -> None:
    where = machine()
    with tempfile.TemporaryDirectory() as place:
        story = live_and_die(settings, Path(place))
    Console().print_json(data=asdict(story))
    path = save(f"kill_runs-{settings.label}", {"settings": asdict(settings), **asdict(story)}, where)
    print(path)
    if story.damaged or story.equal < story.runs:
        raise SystemExit("a killed run did not come back as it was")


if __name__ == "__main__":
    main(tyro.cli(Settings))
