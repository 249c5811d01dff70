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

import matplotlib.figure  # noqa: F401  imported here, because every run is a fork of this process
import numpy as np
import torch
import torch.utils.tensorboard
import tyro
from rich.console import Console
from rich.progress import track

from benchmarks.caught import nothing_left, table_of
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
    """Kills, crashes or pairs of signals."""
    steps: int = 400
    """Steps of a run; one that ends before there were enough kills is followed by another."""
    seed: int = 0


@dataclass(frozen=True)
class CrashPoints(Kills):
    """Kill a run at events of its file system: before it opens, syncs, renames or removes, or amid a write."""

    number: int = 100
    steps: int = 45


@dataclass(frozen=True)
class Signals(Kills):
    """Send pairs of signals while a checkpoint is written."""

    number: int = 20


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


# --------------------------------------------------------------- processes


def train_or_resume(folder: Path, config: TrainConfig) -> None:
    """Start a run, or continue it where it is."""
    if not (folder / "config.json").exists():
        start(config, out=folder)
    elif Run(folder).finished:
        clean_up(Run(folder))
    else:
        resume(folder, progress=False, start_over=newest(folder / CHECKPOINTS) is None)


def start_process(folder: Path, config: TrainConfig, prepare: Callable[[], None] = lambda: None) -> int:
    """Train in a forked process, with its output in a log beside the folder; returns its id."""
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
        train_or_resume(folder, config)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    """The exit code of a process, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_to_end(folder: Path, config: TrainConfig) -> float:
    """Train to the end in a process; returns the seconds that took."""
    began = time.perf_counter()
    code = exit_code(start_process(folder, config))
    if code != 0:
        raise SystemExit(f"{folder} ended with {code}:\n{folder.with_suffix('.log').read_text()}")
    return time.perf_counter() - began


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on what a run went through: its history, and checksums of all tensors."""
    last = newest(folder / CHECKPOINTS)
    assert last is not None
    files = json.loads((last.path / MANIFEST).read_bytes())["files"]
    return {"history": read_metrics(folder, *HISTORY), "files": files, "steps": last.facts["steps"]}


def partial_files(folder: Path) -> list[str]:
    """Files and folders of a run that were begun and neither finished nor removed."""
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
        seconds[case] = run_to_end(folder, config_of(case, settings.steps, checkpoint_minutes=0.0))
        expected[case] = outcome(folder)
    share = -(-settings.number // (2 * len(CASES)))  # of a run, so that every case has its part of the kills
    for number, case in enumerate(itertools.cycle(CASES)):
        count, folder = counts[case], place / str(number)
        left = settings.number - sum(each["kills"] for each in counts.values())
        if left <= 0:
            break
        _kill_until_done(folder, config_of(case, settings.steps), seconds[case], rng, count, min(left, share))
        count["runs"] += 1
        count["equal"] += outcome(folder) == expected[case]
        count["partial_files_left"] += len(partial_files(folder))
    return {"cases": {case: dict(count) for case, count in counts.items()}}


def _kill_until_done(
    folder: Path, config: TrainConfig, seconds: float, rng: np.random.Generator, count: Counter[str], most: int
) -> None:
    for attempt in itertools.count(start=1):
        child = start_process(folder, config)
        if attempt <= most:
            time.sleep(rng.uniform(0.0, seconds))
            os.kill(child, signal.SIGKILL)
        code = exit_code(child)
        if code == 0:
            return
        if code != -signal.SIGKILL:
            raise SystemExit(f"a process ended with {code}:\n{folder.with_suffix('.log').read_text()}")
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

    def event(self, name: str, last_act: Callable[[], None] = lambda: None) -> None:
        """Something is about to happen."""
        self.count += 1
        if self.log >= 0:
            os.write(self.log, f"{name}\n".encode())
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
    """Kill a run at one event, let another process end it, and compare; every sort of event has its turn."""
    cases = {case: replace(config_of(case, settings.steps), workers=0) for case in CASES}
    count: Counter[str] = Counter()
    by_event: Counter[str] = Counter()
    expected, events = {}, {}
    for case, config in cases.items():
        folder, log = place / f"whole-{case}", place / f"events-{case}"
        exit_code(start_process(folder, config, Crash(folder, -1, log).install))
        expected[case], events[case] = outcome(folder), log.read_text().splitlines()
    rng = np.random.default_rng(settings.seed)
    for number in track(range(settings.number), "crashing"):
        case = list(CASES)[number % len(CASES)]
        folder = place / str(number)
        names = sorted(set(events[case]))  # most events are writes, and there are few renames
        name = names[number // len(CASES) % len(names)]
        at = int(rng.choice([index for index, event in enumerate(events[case], start=1) if event == name]))
        code = exit_code(start_process(folder, cases[case], Crash(folder, at).install))
        count["crashes"] += code == -signal.SIGKILL
        by_event[name] += 1
        run_to_end(folder, cases[case])
        count["equal"] += outcome(folder) == expected[case]
        count["partial_files_left"] += len(partial_files(folder))
    total = sum(map(len, events.values()))
    return {"events_of_the_uninterrupted_runs": total, **count, "crashes_by_kind": dict(by_event)}


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
    run_to_end(place / "whole", config)
    expected = outcome(place / "whole")
    pairs: dict[str, Counter[str]] = {}
    for number in track(range(settings.number), "signalling"):
        first, second = PAIRS[number % len(PAIRS)]
        count = pairs.setdefault(f"{first.name}, {second.name}", Counter())
        folder = place / str(number)
        child = start_process(folder, config, slow_disk)
        count["first_while_saving"] += wait_for_a_save(child, folder)
        os.kill(child, first)
        time.sleep(rng.uniform(0.0, 0.3))
        count["second_while_saving"] += wait_for_a_save(child, folder)
        os.kill(child, second)
        count["pairs"] += 1
        count["killed_by_the_signal"] += exit_code(child) < 0
        count["partial_files_left"] += len(partial_files(folder))
        saved = newest(folder / CHECKPOINTS)
        reached = max((event["step"] for event in read_metrics(folder)), default=0)
        count["saved_where_they_were"] += saved is not None and saved.facts["steps"] == reached
        run_to_end(folder, config)
        count["equal"] += outcome(folder) == expected
        count["partial_files_left"] += len(partial_files(folder))
    return {"pairs": {name: dict(count) for name, count in pairs.items()}}


# ------------------------------------------------------------------- the rest


def rows(figures: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Lines of the table."""
    for name in ("cases", "pairs"):
        if name in figures:
            return dict(figures[name])
    return {"all": {name: count for name, count in figures.items() if isinstance(count, int)}}


def all_is_well(figures: dict[str, Any]) -> bool:
    """Whether every run ended as if nothing had happened, and nothing was left."""
    lines = rows(figures).values()
    runs = sum(line.get("runs", line.get("crashes", line.get("pairs", 0))) for line in lines)
    equal = sum(line.get("equal", 0) for line in lines)
    bad = ("partial_files_left", "damaged", "killed_by_the_signal")
    left = sum(line.get(name, 0) for line in lines for name in bad)
    return equal == runs > 0 and left + figures["processes_left"] + figures["segments_left"] == 0


ATTACKS: dict[type[Kills], tuple[str, Callable[[Any, Path], dict[str, Any]]]] = {
    Kills: ("kills", kill_often),
    CrashPoints: ("crash_points", crash_everywhere),
    Signals: ("signals", signal_twice),
}


def main(settings: Kills | CrashPoints | Signals) -> None:
    torch.set_num_threads(1)
    where = machine()
    began = time.perf_counter()
    figures: dict[str, Any] = {}
    name, attack = ATTACKS[type(settings)]
    with tempfile.TemporaryDirectory() as place, nothing_left(figures):
        counts = attack(settings, Path(place))
    figures = {"settings": asdict(settings), **counts, **figures, "seconds": round(time.perf_counter() - began)}
    console = Console()
    console.print(table_of(rows(counts)))
    console.print(f"processes left: {figures['processes_left']}, shared memory left: {figures['segments_left']}")
    if settings.label:
        console.print(str(save(f"reliability-{name}-{settings.label}", figures, where)))
    if not all_is_well(figures):
        raise SystemExit("not everything came back as it was, or something was left")


if __name__ == "__main__":
    main(tyro.cli(Kills | CrashPoints | Signals))
