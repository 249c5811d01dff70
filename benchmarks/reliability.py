"""Runs that are killed, crash or are signalled at bad moments: do they end as if nothing had happened?

python -m benchmarks.reliability kills --label NAME          SIGKILL at 50 random moments
python -m benchmarks.reliability crash-points --label NAME   SIGKILL at 100 events of the file system
python -m benchmarks.reliability signals --label NAME        20 pairs of signals while checkpoints are written

Each writes benchmarks/results/reliability-COMMAND-NAME.json; without a label it only prints.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import matplotlib.figure  # noqa: F401  imported here, because every life is a fork of this process
import numpy as np
import torch
import torch.utils.tensorboard
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.caught import nothing_left
from benchmarks.machine import machine, save
from sasr.agents import SacConfig
from sasr.agents.ppo import PpoConfig
from sasr.agents.td3 import Td3Config
from sasr.api import Run, clean_up, resume, start
from sasr.files import leftovers
from sasr.logs.metrics import HISTORY, read_metrics
from sasr.shaping.presets import preset_config
from sasr.training import TrainConfig
from sasr.training.checkpoint import MANIFEST, newest
from sasr.training.trainer import CHECKPOINTS

SHAPED = {"shaper": "sasr", "shaper_config": preset_config("auto", features=40, burn_in=5, retention=0.5)}
OFTEN = 1e-9  # minutes between checkpoints: one after every step
CASES: dict[str, dict[str, Any]] = {
    "SAC + SASR": {
        "agent": "sac",
        "agent_config": SacConfig(hidden=(8, 8), burn_in=30, batch_size=16),
        "workers": 2,  # so that there are processes to leave behind
        **SHAPED,
    },
    "TD3": {
        "agent": "td3",
        "agent_config": Td3Config(hidden=(8, 8), burn_in=30, batch_size=16),
        "workers": 0,
        "shaper": "none",
    },
    "PPO": {
        "agent": "ppo",
        "agent_config": PpoConfig(hidden=(8, 8), rollout=32, minibatches=2, epochs=2),
        "workers": 0,
        "shaper": "none",
    },
}


@dataclass(frozen=True)
class Kills:
    """Kill runs at random moments."""

    label: str = ""
    """Ends the name of the result file; say which machine. Without one nothing is written."""
    number: int = 50
    steps: int = 400
    """Steps of a run; one that ends before there were enough kills is followed by another."""
    seed: int = 0


@dataclass(frozen=True)
class CrashPoints:
    """Kill a run at events of its file system: before it opens, syncs, renames or removes, or amid a write."""

    label: str = ""
    """Ends the name of the result file; say which machine. Without one nothing is written."""
    number: int = 100
    steps: int = 45
    seed: int = 0


@dataclass(frozen=True)
class Signals:
    """Send pairs of signals while a checkpoint is written."""

    label: str = ""
    """Ends the name of the result file; say which machine. Without one nothing is written."""
    number: int = 20
    steps: int = 400
    seed: int = 0


def config_of(case: str, steps: int, **changes: Any) -> TrainConfig:
    """Two seeds of a task whose observations are mapped, so that a run writes every kind of file that there is."""
    return TrainConfig(
        task="MountainCar",
        seeds=(0, 1),
        steps=steps,
        device="cpu",
        capacity=200,
        max_episode_steps=60,
        eval_every=max(1, steps // 3),
        eval_episodes=1,
        log_every=10,
        **{"checkpoint_minutes": OFTEN, **CASES[case], **changes},
    )


# ---------------------------------------------------------------------- lives


def live(folder: Path, config: TrainConfig) -> None:
    """Start a run, or go on with it, as somebody would who wants it to end."""
    if not (folder / "config.json").exists():
        start(config, out=folder)
    elif Run(folder).finished:
        clean_up(Run(folder))
    else:
        resume(folder, progress=False, start_over=newest(folder / CHECKPOINTS) is None)


def begin_life(folder: Path, config: TrainConfig, prepare: Callable[[], None] = lambda: None) -> int:
    """A life in a process of its own; its id. What it says goes into a log beside the folder."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prepare()
        live(folder, config)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def end_of(child: int) -> int:
    """How a life ended: its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def whole_life(folder: Path, config: TrainConfig) -> float:
    """Live to the end; how many seconds that took."""
    began = time.perf_counter()
    code = end_of(begin_life(folder, config))
    if code != 0:
        raise SystemExit(f"{folder} ended with {code}:\n{folder.with_suffix('.log').read_text()}")
    return time.perf_counter() - began


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on what a run went through: its history, and checksums of all tensors."""
    last = newest(folder / CHECKPOINTS)
    assert last is not None
    files = json.loads((last.path / MANIFEST).read_bytes())["files"]
    return {"history": read_metrics(folder, *HISTORY), "files": files, "steps": last.facts["steps"]}


def half_files(folder: Path) -> list[str]:
    """What was begun in a run's folder and neither finished nor removed."""
    kept = [path for path in (folder / CHECKPOINTS).iterdir() if path.suffix]
    return [str(path.relative_to(folder)) for path in (*leftovers(folder), *kept)]


# ---------------------------------------------------------------------- kills


def kill_often(settings: Kills, place: Path) -> dict[str, Any]:
    """Run after run, each killed at random moments until there were enough kills."""
    rng = np.random.default_rng(settings.seed)
    counts = {case: Counter[str]() for case in CASES}
    expected, seconds = {}, {}
    for case in CASES:
        folder = place / f"whole-{case}"
        seconds[case] = whole_life(folder, config_of(case, settings.steps, checkpoint_minutes=0.0))
        expected[case] = outcome(folder)
    share = -(-settings.number // (2 * len(CASES)))  # of a run, so that every case has its part of the kills
    for number, case in enumerate(itertools.cycle(CASES)):
        count, folder = counts[case], place / str(number)
        left = settings.number - sum(each["kills"] for each in counts.values())
        if left <= 0:
            break
        _until_it_ends(folder, case, settings, seconds[case], rng, count, min(left, share))
        count["runs"] += 1
        count["equal"] += outcome(folder) == expected[case]
        count["partial_files_left"] += len(half_files(folder))
    return {"cases": {case: dict(count) for case, count in counts.items()}}


def _until_it_ends(
    folder: Path, case: str, settings: Kills, seconds: float, rng: np.random.Generator, count: Counter[str], most: int
) -> None:
    config = config_of(case, settings.steps)
    lives = 0
    while True:
        lives += 1
        child = begin_life(folder, config)
        if lives <= most:
            time.sleep(rng.uniform(0.0, seconds))
            os.kill(child, signal.SIGKILL)
        code = end_of(child)
        if code == 0:
            return
        if code != -signal.SIGKILL:
            raise SystemExit(f"a life ended with {code}:\n{folder.with_suffix('.log').read_text()}")
        count["kills"] += 1
        problems = _problems(folder / CHECKPOINTS)
        count["kills_while_writing"] += any(path.suffix == ".partial" for path in problems)
        count["damaged"] += sum(path.suffix == "" for path in problems)


def _problems(checkpoints: Path) -> list[Path]:
    problems: list[Path] = []
    newest(checkpoints, lambda path, reason: problems.append(path))
    return problems


# --------------------------------------------------------------- crash points


class Crash:
    """Counts what a process does to files below a folder, and kills it at event number `at`."""

    def __init__(self, folder: Path, at: int, log: Path | None = None) -> None:
        self.folder, self.at, self.count = str(folder), at, 0
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if log else -1
        self.open = Path.open

    def install(self) -> None:
        """In the process that is to crash; there is no way back."""
        fsync, crash = os.fsync, self

        def counted_fsync(handle: int) -> None:
            crash.event("fsync")
            fsync(handle)

        def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            file = crash.open(path, mode, *arguments, **options)
            ours = str(path).startswith(crash.folder) and set(mode) & set("wax")
            return Torn(file, crash) if ours else file

        os.fsync = counted_fsync  # type: ignore[assignment]
        Path.open = opened  # type: ignore[assignment, method-assign]
        sys.addaudithook(self.on_audit_event)

    def on_audit_event(self, name: str, arguments: tuple[Any, ...]) -> None:
        """An audit event of Python's."""
        if name not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            return
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else "/"
        writes = name != "open" or bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes and (path.startswith(self.folder) or not path.startswith("/")):  # rmtree names files relatively
            self.event(name.removeprefix("os."))

    def event(self, kind: str, last_act: Callable[[], None] = lambda: None) -> None:
        """Something is about to happen."""
        self.count += 1
        if self.log >= 0:
            os.write(self.log, f"{kind}\n".encode())
        if self.count == self.at:
            last_act()
            os.kill(os.getpid(), signal.SIGKILL)


class Torn:
    """A file whose process may be killed in the middle of a write."""

    def __init__(self, file: IO[bytes], crash: Crash) -> None:
        self.file, self.crash = file, crash

    def write(self, data: Any) -> int:
        """Half of it, where the process ends there."""

        def half() -> None:
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()

        self.crash.event("write", half)
        return self.file.write(data)

    def __enter__(self) -> Torn:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def crash_everywhere(settings: CrashPoints, place: Path) -> dict[str, Any]:
    """Kill a run at one event, let another process end it, and compare; at events of every kind in turn."""
    cases = {case: replace(config_of(case, settings.steps), workers=0) for case in CASES}
    count: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    expected, events = {}, {}
    for case, config in cases.items():
        folder, log = place / f"whole-{case}", place / f"events-{case}"
        end_of(begin_life(folder, config, Crash(folder, -1, log).install))
        expected[case], events[case] = outcome(folder), log.read_text().splitlines()
    rng = np.random.default_rng(settings.seed)
    for number in track(range(settings.number), "crashing"):
        case = list(CASES)[number % len(CASES)]
        folder = place / str(number)
        kinds = sorted(set(events[case]))  # most events are writes, and there are few renames
        kind = kinds[number // len(CASES) % len(kinds)]
        at = int(rng.choice([index for index, event in enumerate(events[case], start=1) if event == kind]))
        code = end_of(begin_life(folder, cases[case], Crash(folder, at).install))
        count["crashes"] += code == -signal.SIGKILL
        by_kind[kind] += 1
        whole_life(folder, cases[case])
        count["equal"] += outcome(folder) == expected[case]
        count["partial_files_left"] += len(half_files(folder))
    total = sum(map(len, events.values()))
    return {"events_of_the_uninterrupted_runs": total, **count, "crashes_by_kind": dict(by_kind)}


# -------------------------------------------------------------------- signals

PAIRS = [
    (signal.SIGTERM, signal.SIGTERM),
    (signal.SIGINT, signal.SIGTERM),
    (signal.SIGTERM, signal.SIGINT),
    (signal.SIGINT, signal.SIGINT),
]


def slow_disk() -> None:
    """Make saving take long enough to be hit twice."""
    fsync = os.fsync

    def slow(handle: int) -> None:
        time.sleep(0.03)
        fsync(handle)

    os.fsync = slow  # type: ignore[assignment]


def wait_for_a_save(child: int, folder: Path) -> bool:
    """Come back while a checkpoint is being written, or when the process has ended: then False."""
    while not list(folder.glob(f"{CHECKPOINTS}/*.partial")):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False
        time.sleep(0.002)
    return True


def signal_twice(settings: Signals, place: Path) -> dict[str, Any]:
    """Two signals to a run while it saves: the run ends, with a whole checkpoint, and goes on to the same end."""
    rng = np.random.default_rng(settings.seed)
    config = config_of("SAC + SASR", settings.steps, checkpoint_minutes=0.005)
    whole_life(place / "whole", config)
    expected = outcome(place / "whole")
    pairs: dict[str, Counter[str]] = {}
    for number in track(range(settings.number), "signalling"):
        first, second = PAIRS[number % len(PAIRS)]
        count = pairs.setdefault(f"{first.name}, {second.name}", Counter())
        folder = place / str(number)
        child = begin_life(folder, config, slow_disk)
        count["first_while_saving"] += wait_for_a_save(child, folder)
        os.kill(child, first)
        time.sleep(rng.uniform(0.0, 0.3))
        count["second_while_saving"] += wait_for_a_save(child, folder)
        os.kill(child, second)
        count["pairs"] += 1
        count["killed_by_the_signal"] += end_of(child) < 0
        count["partial_files_left"] += len(half_files(folder))
        saved = newest(folder / CHECKPOINTS)
        reached = max((event["step"] for event in read_metrics(folder)), default=0)
        count["saved_where_they_were"] += saved is not None and saved.facts["steps"] == reached
        whole_life(folder, config)
        count["equal"] += outcome(folder) == expected
        count["partial_files_left"] += len(half_files(folder))
    return {"pairs": {name: dict(count) for name, count in pairs.items()}}


# ------------------------------------------------------------------- the rest


def rows(figures: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Lines of the table."""
    if "cases" in figures:
        return dict(figures["cases"])
    if "pairs" in figures:
        return dict(figures["pairs"])
    return {"all": {name: count for name, count in figures.items() if isinstance(count, int)}}


def table(figures: dict[str, Any]) -> Table:
    """Every count in words."""
    lines = rows(figures)
    columns = list(dict.fromkeys(name for line in lines.values() for name in line))
    shown = Table()
    shown.add_column("")
    for name in columns:
        shown.add_column(name.replace("_", " "), justify="right")
    for label, line in lines.items():
        shown.add_row(label, *(str(line.get(name, 0)) for name in columns))
    return shown


def all_is_well(settings: Kills | CrashPoints | Signals, figures: dict[str, Any]) -> bool:
    """Whether every run ended as if nothing had happened, and nothing was left."""
    lines = rows(figures).values()
    runs = sum(line.get("runs", line.get("crashes", line.get("pairs", 0))) for line in lines)
    equal = sum(line.get("equal", 0) for line in lines)
    bad = ("partial_files_left", "damaged", "killed_by_the_signal")
    left = sum(line.get(name, 0) for line in lines for name in bad)
    return equal == runs > 0 and left + figures["processes_left"] + figures["segments_left"] == 0


def main(settings: Kills | CrashPoints | Signals) -> None:
    torch.set_num_threads(1)
    where = machine()
    began = time.perf_counter()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, nothing_left(figures):
        match settings:
            case Kills():
                name, counts = "kills", kill_often(settings, Path(place))
            case CrashPoints():
                name, counts = "crash_points", crash_everywhere(settings, Path(place))
            case Signals():
                name, counts = "signals", signal_twice(settings, Path(place))
    figures = {"settings": asdict(settings), **counts, **figures, "seconds": round(time.perf_counter() - began)}
    console = Console()
    console.print(table(counts))
    console.print(f"processes left: {figures['processes_left']}, shared memory left: {figures['segments_left']}")
    if settings.label:
        console.print(str(save(f"reliability-{name}-{settings.label}", figures, where)))
    if not all_is_well(settings, figures):
        raise SystemExit("not everything came back as it was, or something was left")


if __name__ == "__main__":
    main(tyro.cli(Kills | CrashPoints | Signals))
