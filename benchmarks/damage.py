"""Run folders that were damaged or crafted: what do `sasr eval`, `sasr resume` and `sasr report` make of them?

python -m benchmarks.damage --label NAME   writes benchmarks/results/damage-NAME.json
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import tyro
from rich.console import Console
from safetensors.torch import load_file, save_file

import sasr
from benchmarks.caught import Outcome, call, count, in_a_fork, nothing_left, side_by_side, table_of, unfinished_files
from benchmarks.machine import machine, save
from sasr.agents import SacConfig
from sasr.agents.ppo import PpoConfig
from sasr.final_evaluation import evaluate_policy, write_evaluation

SECRET = "a line of a file that is nobody else's business"
STEPS, STOPPED = 432, 420


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    folders: int = 300
    limit: int = 60
    """Seconds that a command may take."""
    jobs: int = 1
    """Folders that are tried at a time."""
    gigabytes: int = 16
    """Of address space for each: a crafted size must not take the machine's memory."""
    seed: int = 0


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


ODD: list[Any] = [
    None, "", "x", -1, 0, -(10**15), 10**15, 10**30, 1e308, float("nan"), float("inf"), True, [], {}, [[]], {"a": 1},
    [1] * 1000, "\x1b[2J[/]:boom:", "../../secret", "=cmd|' /C calc'!A0", "</script><script>alert(1)</script>",
    "x" * 10**5,
]  # fmt: skip
TASKS = ["their_tasks:Theirs-v0", "their_tasks.more:Theirs-v0", "antigravity:Id-v0", "..their_tasks:Id", "No-v0", ":x"]


# ------------------------------------------------------------------ the folders


def made(place: Path, agent: Any, shaper: Any) -> Path:
    """A run that was stopped a little before its end, with a video and an evaluation."""
    run = sasr.train(
        "TwoRooms",
        agent=agent,
        shaper=shaper,
        steps=STOPPED,
        capacity=300,
        workers=0,
        eval_every=200,
        eval_episodes=1,
        checkpoint_minutes=1e-9,
        out=place,
        progress=False,
        events=False,
    )
    facts = json.loads((run.folder / "config.json").read_bytes())
    facts["config"] |= {"steps": STEPS, "eval_every": 0}
    (run.folder / "config.json").write_text(json.dumps(facts))
    write_evaluation(run.policy(), evaluate_policy(run.policy(), episodes=2, workers=0), seed=0, deterministic=True)
    (run.folder / "video-seed-0.mp4").write_bytes(os.urandom(5_000))
    return run.folder


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())


# ------------------------------------------------------------------ the damage


class Damage:
    """Ways to damage a run's folder; each method is one, and returns a description of what it did."""

    def __init__(self, run: Path, rng: random.Random, mark: Path, secret: Path) -> None:
        self.run, self.rng, self.mark, self.secret = run, rng, mark, secret

    def flipped_bits(self) -> str:
        path = self.rng.choice(files_of(self.run))
        data = bytearray(path.read_bytes())
        for _ in range(self.rng.choice((1, 8, 200))):
            if data:
                data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        path.write_bytes(data)
        return path.name

    def cut(self) -> str:
        path = self.rng.choice(files_of(self.run))
        os.truncate(path, self.rng.randrange(path.stat().st_size + 1))
        return path.name

    def lost(self) -> str:
        paths = self.rng.sample(files_of(self.run), self.rng.choice((1, 1, 3)))
        for path in paths:
            path.unlink()
        return ", ".join(path.name for path in paths)

    def noise(self) -> str:
        path = self.rng.choice(files_of(self.run))
        path.write_bytes(self.rng.randbytes(self.rng.choice((0, 10, 10_000))))
        return path.name

    def exchanged(self) -> str:
        one, other = self.rng.sample(files_of(self.run), 2)
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return f"{one.name}, {other.name}"

    def with_holes(self) -> str:
        path = self.rng.choice(files_of(self.run))
        os.truncate(path, 2**40)
        return path.name

    def no_file(self) -> str:
        path = self.rng.choice([*files_of(self.run), *(path for path in self.run.rglob("*") if path.is_dir())])
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        replacement = self.rng.choice(("pipe", "zero", "secret", "loop", "folder", "root"))
        targets: dict[str, str | Path] = {"zero": "/dev/zero", "secret": self.secret, "loop": path, "root": "/"}
        if replacement == "pipe":
            os.mkfifo(path)
        elif replacement == "folder":
            path.mkdir()
        else:
            path.symlink_to(targets[replacement])
        return f"{path.name}: {replacement}"

    def video_of_a_secret(self) -> str:
        video = self.run / self.rng.choice(("video-seed-1.mp4", "video.webm", "more/video.mp4"))
        video.parent.mkdir(exist_ok=True)
        video.symlink_to(self.secret)
        return video.name

    def pickles(self) -> str:
        data = pickle.dumps(Bomb(self.mark))
        name = self.rng.choice(("tensors", "maps", "metrics.jsonl"))
        if name == "maps":
            self._archive(data)
        elif name == "tensors":
            self._in_manifest(self._part(), data)
        else:
            (self.run / name).write_bytes(data)
        return name

    def bomb_of_zeros(self) -> str:
        self._archive(
            b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'shape': (10000000000,)}".ljust(118) + bytes(10**8)
        )
        return "success_map.npz"

    def other_module(self) -> str:
        task = self.rng.choice(TASKS)
        for path in [self.run / "config.json", *self.run.glob("checkpoints/*/manifest.json")]:
            text = path.read_text().replace('"TwoRooms"', json.dumps(task))
            path.write_text(text)
            if path.name == "manifest.json":
                self._sign(path)
        return task

    def odd_setting(self) -> str:
        return self._changed_file(self.run / "config.json")

    def odd_manifest(self) -> str:
        path = self.rng.choice(list(self.run.glob("checkpoints/*/manifest.json")))
        change = self._changed_file(path)
        self._sign(path)
        return change

    def odd_metrics(self) -> str:
        path = self.run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        changes = [self._change(self.rng.choice(lines)) for _ in range(self.rng.choice((1, 20)))]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return ", ".join(changes)

    def odd_evaluation(self) -> str:
        return self._changed_file(self.run / "eval.json")

    def deep(self) -> str:
        path = self.rng.choice([self.run / "config.json", self.run / "eval.json", *self.run.glob("**/manifest.json")])
        path.write_text("[" * 10**5 + "]" * 10**5)
        return path.name

    def odd_tensor(self) -> str:
        path = self._part()
        tensors = load_file(path)
        if not tensors:
            return "nothing"
        name = self.rng.choice(sorted(tensors))
        tensor = tensors[name]
        change = self.rng.choice(("gone", "longer", "shape", "type", "huge", "nan", "below 0", "more"))
        match change:
            case "gone":
                del tensors[name]
            case "longer":
                tensors[name] = torch.cat([tensor.flatten(), tensor.flatten(), torch.ones(3).to(tensor.dtype)])
            case "shape":
                tensors[name] = tensor.flatten()
            case "type":
                tensors[name] = tensor.to(torch.uint8 if tensor.dtype == torch.float64 else torch.float64)
            case "more":
                tensors["another"] = torch.ones(3)
            case _:
                value = {"huge": 2**62, "nan": float("nan"), "below 0": -(10**15)}[change]
                if tensor.is_floating_point() or (change != "nan" and tensor.dtype == torch.int64):
                    tensors[name] = torch.full_like(tensor, value)
        save_file({key: value.contiguous() for key, value in tensors.items()}, path)
        self._in_manifest(path, path.read_bytes())
        return f"{path.stem} {name}: {change}"

    # ------------------------------------------------------------------ helpers

    def _part(self) -> Path:
        return self.rng.choice(sorted(self.run.glob("checkpoints/*/*.safetensors")))

    def _archive(self, data: bytes) -> None:
        with zipfile.ZipFile(self.run / "success_map.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("steps", "x", "y", "rate"):
                archive.writestr(f"{name}.npy", data)

    def _in_manifest(self, path: Path, data: bytes) -> None:
        """Put bytes where a part of a checkpoint is, with sizes and checksums right."""
        path.write_bytes(data)
        manifest = path.parent / "manifest.json"
        contents = json.loads(manifest.read_bytes())
        contents["files"][path.name] = {"bytes": len(data), "crc32": zlib.crc32(data)}
        manifest.write_text(json.dumps(contents))
        self._sign(manifest)

    def _sign(self, manifest: Path) -> None:
        contents = json.loads(manifest.read_bytes())
        contents.pop("crc32", None)
        contents["crc32"] = zlib.crc32(json.dumps(contents, sort_keys=True).encode())
        manifest.write_text(json.dumps(contents))

    def _changed_file(self, path: Path) -> str:
        """Change a value in a JSON file."""
        data = json.loads(path.read_bytes())
        change = self._change(data)
        path.write_text(json.dumps(data))
        return change

    def _change(self, data: Any) -> str:
        """Another value, or none, somewhere in plain data."""
        places = list(_places(data))
        if not places:
            return "nothing"
        holder, key = self.rng.choice(places)
        if self.rng.random() < 0.15:
            del holder[key]
            return f"{key} is gone"
        holder[key] = self.rng.choice(ODD)
        return f"{key} is {str(holder[key])[:20]!r}"


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every dict and list in plain data with each of its keys."""
    keys: Iterable[Any] = ()
    if isinstance(data, dict):
        keys = list(data)
    elif isinstance(data, list):
        keys = range(len(data))
    for key in keys:
        yield data, key
        yield from _places(data[key])


DAMAGES: list[str] = [name for name, method in vars(Damage).items() if callable(method) and not name.startswith("_")]
COMMANDS = {"eval": ("--episodes", "1", "--workers", "0"), "resume": ("--no-tensorboard",), "report": ()}


# ------------------------------------------------------------------- trials


def outcomes_on(run: Path, settings: Settings) -> tuple[dict[str, Outcome], int]:
    """How each command ends on a copy of the run, and how many files they leave unfinished.

    The copies lie beside a module that must not be imported.
    """
    address_space = settings.gigabytes * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    sys.path.insert(0, "")
    outcomes = {}
    with contextlib.chdir(run.parent):
        for command, flags in COMMANDS.items():
            copy = run.parent / command
            shutil.copytree(run, copy, symlinks=True, copy_function=_copy, ignore_dangling_symlinks=True)
            outcomes[command] = call([command, copy.name, *flags], limit=settings.limit)
    return outcomes, unfinished_files(run.parent)


def _copy(source: str, target: str) -> None:
    path = Path(source)
    if path.is_fifo():
        os.mkfifo(target)
    elif path.stat().st_size > 2**32:  # a hole stays one
        Path(target).touch()
        os.truncate(target, path.stat().st_size)
    else:
        shutil.copy2(source, target)


class Trial(NamedTuple):
    """A damaged folder, and what the commands made of it."""

    damage: str
    outcomes: dict[str, Outcome]
    """By command; empty where they did not end in time."""
    executed: bool
    """Whether code of the folder ran."""
    leaked: bool
    """Whether a file outside of the folder was shown."""
    secret_changed: bool
    unfinished: int
    """Files that were begun and neither finished nor removed."""

    @property
    def is_odd(self) -> bool:
        """Whether a command did what it must not do."""
        if not self.outcomes or self.executed or self.leaked or self.secret_changed or self.unfinished:
            return True
        return any(outcome.is_odd or outcome.code not in (0, 2) for outcome in self.outcomes.values())


def run_trial(number: int, runs: list[Path], settings: Settings, folder: Path) -> Trial:
    """Damage a copy of a run and give it to the commands."""
    rng = random.Random(settings.seed * 10**6 + number)
    name = DAMAGES[number % len(DAMAGES)]
    home = folder / f"{number:03d}"
    home.mkdir()
    mark, secret = home / "ran", home / "secret"
    secret.write_text(SECRET)
    (home / "their_tasks.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    run = Path(shutil.copytree(rng.choice(runs), home / "run"))
    change = getattr(Damage(run, rng, mark, secret), name)()
    outcomes, unfinished = in_a_fork(lambda: outcomes_on(run, settings), limit=3.5 * settings.limit) or ({}, 0)
    page = home / "report" / "report.html"
    trial = Trial(
        damage=f"{name}: {change}",
        outcomes=outcomes,
        executed=mark.exists(),
        leaked=is_leaked(page, outcomes),
        secret_changed=secret.read_text() != SECRET,
        unfinished=unfinished,
    )
    shutil.rmtree(home)
    return trial


def is_leaked(page: Path, outcomes: Mapping[str, Outcome]) -> bool:
    encoded = base64.b64encode(SECRET.encode()).decode()[:30]
    shown = "".join(outcome.output for outcome in outcomes.values())
    if page.is_file() and not page.is_symlink():
        shown += page.read_text()
    return SECRET in shown or encoded in shown


def main(settings: Settings) -> None:
    torch.set_num_threads(1)
    where, left = machine(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as name, nothing_left(left):
        folder = Path(name)
        sac = SacConfig(hidden=(8, 8), burn_in=40, batch_size=16)
        ppo = PpoConfig(hidden=(8, 8), rollout=50, minibatches=2, epochs=2)
        runs = [made(folder / "sac", sac, sasr.SASR("auto", features=50)), made(folder / "ppo", ppo, "none")]
        for command, flags in COMMANDS.items():  # what is loaded and compiled once is there before the forks
            whole = shutil.copytree(runs[0], folder / "whole" / command)
            outcome = call([command, str(whole), *flags], limit=settings.limit)
            if outcome.code != 0:
                raise SystemExit(f"sasr {command} does not work on a whole folder either: {outcome}")
        attempt = partial(run_trial, runs=runs, settings=settings, folder=folder)
        trials = side_by_side(attempt, range(settings.folders), settings.jobs)
    counts = {}
    for command in COMMANDS:
        outcomes = [trial.outcomes[command] for trial in trials if trial.outcomes]
        counts[command] = {
            "folders": len(outcomes),
            "worked": sum(outcome.code == 0 for outcome in outcomes),
            **count(outcomes),
            "longest": round(max((outcome.seconds for outcome in outcomes), default=0.0), 1),
        }
    totals = {
        "folders": len(trials),
        "hangs": sum(not trial.outcomes for trial in trials),
        "executed": sum(trial.executed for trial in trials),
        "leaked": sum(trial.leaked for trial in trials),
        "files_outside_changed": sum(trial.secret_changed for trial in trials),
        "left_behind": {**left, "partial_files_left": sum(trial.unfinished for trial in trials)},
    }
    odd = [trial for trial in trials if trial.is_odd]
    console = Console(width=140)
    console.print(table_of(counts))
    console.print(totals)
    for trial in odd:
        console.print(trial.damage, markup=False)
        for command, outcome in trial.outcomes.items():
            console.print("   ", command, outcome.code, outcome.escaped, outcome.output[-250:], markup=False)
    result = {"settings": asdict(settings), "commands": counts, "totals": totals, "kinds": DAMAGES}
    result["odd"] = [trial.damage for trial in odd]
    save(f"damage-{settings.label}", result, where)


if __name__ == "__main__":
    main(tyro.cli(Settings))
