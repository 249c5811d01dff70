"""Run folders that were damaged or crafted: what do `sasr eval`, `sasr resume` and `sasr report` make of them?

python -m benchmarks.damage --label NAME   writes benchmarks/results/damage-NAME.json
"""

from __future__ import annotations

import base64
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
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file

import sasr
from benchmarks.caught import Outcome, call, in_a_fork, inside, nothing_left, side_by_side, unfinished_files
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
    """A run that was stopped a little before its end, with a film and a judgement."""
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
    """Ways to damage a run's folder; each method is one, and says what it did."""

    def __init__(self, run: Path, rng: random.Random, mark: Path, secret: Path) -> None:
        self.run, self.rng, self.mark, self.secret = run, rng, mark, secret

    def flipped_bits(self) -> str:
        path = self.rng.choice(files_of(self.run))
        words = bytearray(path.read_bytes())
        for _ in range(self.rng.choice((1, 8, 200))):
            if words:
                words[self.rng.randrange(len(words))] ^= 1 << self.rng.randrange(8)
        path.write_bytes(words)
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
        words = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(words)
        return f"{one.name}, {other.name}"

    def with_holes(self) -> str:
        path = self.rng.choice(files_of(self.run))
        os.truncate(path, 2**40)
        return path.name

    def no_file(self) -> str:
        path = self.rng.choice([*files_of(self.run), *(own for own in self.run.rglob("*") if own.is_dir())])
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        kind = self.rng.choice(("pipe", "zero", "secret", "loop", "folder", "root"))
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case _:
                targets: dict[str, str | Path] = {"zero": "/dev/zero", "secret": self.secret, "loop": path, "root": "/"}
                path.symlink_to(targets[kind])
        return f"{path.name}: {kind}"

    def film_of_a_secret(self) -> str:
        film = self.run / self.rng.choice(("video-seed-1.mp4", "video.webm", "more/video.mp4"))
        film.parent.mkdir(exist_ok=True)
        film.symlink_to(self.secret)
        return str(film.name)

    def pickles(self) -> str:
        words = pickle.dumps(Bomb(self.mark))
        name = self.rng.choice(("tensors", "maps", "metrics.jsonl"))
        if name == "maps":
            self._archive(words)
        elif name == "tensors":
            self._in_manifest(self._part(), words)
        else:
            (self.run / name).write_bytes(words)
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
        path = self.run / "config.json"
        facts = json.loads(path.read_bytes())
        told = self._change(facts)
        path.write_text(json.dumps(facts))
        return told

    def odd_manifest(self) -> str:
        path = self.rng.choice(list(self.run.glob("checkpoints/*/manifest.json")))
        contents = json.loads(path.read_bytes())
        told = self._change(contents)
        path.write_text(json.dumps(contents))
        self._sign(path)
        return told

    def odd_metrics(self) -> str:
        path = self.run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        told = [self._change(self.rng.choice(lines)) for _ in range(self.rng.choice((1, 20)))]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return ", ".join(told)

    def odd_judgement(self) -> str:
        path = self.run / "eval.json"
        data = json.loads(path.read_bytes())
        told = self._change(data)
        path.write_text(json.dumps(data))
        return told

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
        own = tensors[name]
        how = self.rng.choice(("gone", "longer", "shape", "type", "huge", "nan", "below 0", "more"))
        match how:
            case "gone":
                del tensors[name]
            case "longer":
                tensors[name] = torch.cat([own.flatten(), own.flatten(), torch.ones(3).to(own.dtype)])
            case "shape":
                tensors[name] = own.flatten()
            case "type":
                tensors[name] = own.to(torch.float64 if own.dtype != torch.float64 else torch.uint8)
            case "more":
                tensors["another"] = torch.ones(3)
            case _:
                value = {"huge": 2**62, "nan": float("nan"), "below 0": -(10**15)}[how]
                if own.is_floating_point() or (how != "nan" and own.dtype == torch.int64):
                    tensors[name] = torch.full_like(own, value)
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path)
        self._in_manifest(path, path.read_bytes())
        return f"{path.stem} {name}: {how}"

    # ------------------------------------------------------------------ how

    def _part(self) -> Path:
        return self.rng.choice(sorted(self.run.glob("checkpoints/*/*.safetensors")))

    def _archive(self, words: bytes) -> None:
        with zipfile.ZipFile(self.run / "success_map.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("steps", "x", "y", "rate"):
                archive.writestr(f"{name}.npy", words)

    def _in_manifest(self, path: Path, words: bytes) -> None:
        """Put bytes where a part of a checkpoint is, with sizes and checksums right."""
        path.write_bytes(words)
        manifest = path.parent / "manifest.json"
        contents = json.loads(manifest.read_bytes())
        contents["files"][path.name] = {"bytes": len(words), "crc32": zlib.crc32(words)}
        manifest.write_text(json.dumps(contents))
        self._sign(manifest)

    def _sign(self, manifest: Path) -> None:
        contents = json.loads(manifest.read_bytes())
        contents.pop("crc32", None)
        contents["crc32"] = zlib.crc32(json.dumps(contents, sort_keys=True).encode())
        manifest.write_text(json.dumps(contents))

    def _change(self, data: Any) -> str:
        """Another value, or none, somewhere in plain data."""
        places: list[tuple[Any, Any]] = []

        def walk(own: Any) -> None:
            keys = list(own) if isinstance(own, dict) else range(len(own)) if isinstance(own, list) else []
            for key in keys:
                places.append((own, key))
                walk(own[key])

        walk(data)
        if not places:
            return "nothing"
        holder, key = self.rng.choice(places)
        if self.rng.random() < 0.15:
            del holder[key]
            return f"{key} is gone"
        holder[key] = self.rng.choice(ODD)
        return f"{key} is {str(holder[key])[:20]!r}"


KINDS: list[str] = [name for name, method in vars(Damage).items() if callable(method) and not name.startswith("_")]
COMMANDS = {
    "eval": ("--episodes", "1", "--workers", "0"),
    "resume": ("--no-tensorboard",),
    "report": (),
}


# ------------------------------------------------------------------- the trial


def answers(run: Path, settings: Settings) -> bytes:
    """What the three commands say of a folder, each of a copy of it, in a folder with a module that must not run.

    And how many files they leave unfinished.
    """
    room = settings.gigabytes * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    sys.path.insert(0, "")
    found = []
    with inside(run.parent):
        for command, flags in COMMANDS.items():
            own = run.parent / command
            shutil.copytree(run, own, symlinks=True, copy_function=_copy, ignore_dangling_symlinks=True)
            found.append(call([command, own.name, *flags], limit=settings.limit))
    return json.dumps([found, unfinished_files(run.parent)]).encode()


def _copy(source: str, target: str) -> None:
    path = Path(source)
    if path.is_fifo():
        os.mkfifo(target)
    elif path.stat().st_size > 2**32:  # a hole stays one
        Path(target).touch()
        os.truncate(target, path.stat().st_size)
    else:
        shutil.copy2(source, target)


def tried(number: int, bases: list[Path], settings: Settings, place: Path) -> dict[str, Any]:
    """Damage a copy of a run and show it to the commands."""
    rng = random.Random(settings.seed * 10**6 + number)
    kind = KINDS[number % len(KINDS)]
    home = place / f"{number:03d}"
    home.mkdir()
    mark, secret = home / "ran", home / "secret"
    secret.write_text(SECRET)
    (home / "their_tasks.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    run = Path(shutil.copytree(rng.choice(bases), home / "run"))
    told = getattr(Damage(run, rng, mark, secret), kind)()
    answer = in_a_fork(lambda: answers(run, settings), limit=3.5 * settings.limit)
    outcomes, unfinished = json.loads(answer) if answer is not None else (None, 0)
    ended = [Outcome(*own) for own in outcomes] if outcomes else None
    page = home / "report" / "report.html"
    result = {
        "number": number,
        "damage": f"{kind}: {told}",
        "ended": dict(zip(COMMANDS, (own._asdict() for own in ended), strict=True)) if ended else None,
        "executed": mark.exists(),
        "leaked": leaked(page, ended),
        "secret_changed": secret.read_text() != SECRET,
        "unfinished": unfinished,
    }
    shutil.rmtree(home)
    return result


def leaked(page: Path, ended: list[Outcome] | None) -> bool:
    words = base64.b64encode(SECRET.encode()).decode()[:30]
    text = page.read_text() if page.is_file() and not page.is_symlink() else ""
    return words in text or SECRET in text or any(SECRET in own.output for own in ended or [])


def main(settings: Settings) -> None:
    torch.set_num_threads(1)
    where, left = machine(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as name, nothing_left(left):
        place = Path(name)
        bases = [
            made(place / "sac", SacConfig(hidden=(8, 8), burn_in=40, batch_size=16), sasr.SASR("auto", features=50)),
            made(place / "ppo", PpoConfig(hidden=(8, 8), rollout=50, minibatches=2, epochs=2), "none"),
        ]
        for command, flags in COMMANDS.items():  # what is loaded and compiled once is there before the forks
            whole = shutil.copytree(bases[0], place / "whole" / command)
            outcome = call([command, str(whole), *flags], limit=settings.limit)
            if outcome.code != 0:
                raise SystemExit(f"sasr {command} does not work on a whole folder either: {outcome}")
        attempt = partial(tried, bases=bases, settings=settings, place=place)
        found = side_by_side(attempt, range(settings.folders), settings.jobs)
    hung = [trial for trial in found if trial["ended"] is None]
    table = Table("command", "folders", "worked", "refused", "unforeseen", "tracebacks", "steered", "longest [s]")
    figures_of = {}
    for command in COMMANDS:
        outcomes = [Outcome(*trial["ended"][command].values()) for trial in found if trial["ended"]]
        figures_of[command] = {
            "folders": len(outcomes),
            "worked": sum(outcome.code == 0 for outcome in outcomes),
            "refused": sum(outcome.code == 2 for outcome in outcomes),
            "unforeseen": sum(outcome.unforeseen for outcome in outcomes),
            "tracebacks": sum(outcome.traceback for outcome in outcomes),
            "steered": sum(outcome.steered for outcome in outcomes),
            "longest": round(max((outcome.seconds for outcome in outcomes), default=0.0), 1),
        }
        table.add_row(command, *map(str, figures_of[command].values()))
    totals = {
        "folders": len(found),
        "hangs": len(hung),
        "executed": sum(trial["executed"] for trial in found),
        "leaked": sum(own["leaked"] for own in found),
        "files_outside_changed": sum(trial["secret_changed"] for trial in found),
        "left_behind": {**left, "partial_files_left": sum(own["unfinished"] for own in found)},
    }
    odd = [trial for trial in found if is_odd(trial)]
    console = Console(width=140)
    console.print(table)
    console.print(totals)
    for trial in odd:
        console.print(trial["number"], trial["damage"], markup=False)
        for command, ended in (trial["ended"] or {}).items():
            console.print("   ", command, ended["code"], ended["escaped"], ended["output"][-250:], markup=False)
    result = {"settings": asdict(settings), "commands": figures_of, "totals": totals, "kinds": KINDS}
    result["odd"] = [trial["damage"] for trial in odd]
    save(f"damage-{settings.label}", result, where)


def is_odd(own: dict[str, Any]) -> bool:
    """Whether a trial went otherwise than it should."""
    if own["ended"] is None or own["executed"] or own["leaked"] or own["secret_changed"] or own["unfinished"]:
        return True
    ended = [Outcome(*one.values()) for one in own["ended"].values()]
    return any(one.traceback or one.unforeseen or one.steered or one.code not in (0, 2) for one in ended)


if __name__ == "__main__":
    main(tyro.cli(Settings))
