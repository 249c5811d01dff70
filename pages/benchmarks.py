"""Tables of docs/ from what `python -m benchmarks.…` stored, each with the machine and the commit below it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pages.markdown import Block, table

Stored = Mapping[str, Any]
Columns = tuple[tuple[str, str], ...]
"""Headings, each with the format of the column's entries."""
_SB3 = "Stable-Baselines3 SAC, one seed"
_SHAPES = {
    "16-cores-ant-v5": "Ant-v5",
    "16-cores": "AntStand",
    "2-cores": "AntStand",
}
_ATTACKS = ("kills", "crash_points", "signals")


def blocks_of(folder: Path) -> dict[str, Callable[[], Block]]:
    """A block for each table; files are read when it is asked for."""

    def read(name: str) -> Stored:
        data: Stored = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        return data

    made: dict[str, Callable[[], str]] = {
        "diagnosis": lambda: _rows(_DIAGNOSIS, read("diagnosis")),
        "bandwidth rules": lambda: _rows(_BANDWIDTH_RULES, read("diagnosis-rules")),
        "image evidence": lambda: _rows(
            _IMAGE_EVIDENCE, *(read(f"image_evidence-{game}") for game in ("Freeway", "Frogger"))
        ),
        "estimators-cpu": lambda: _rows(_ESTIMATORS, read("estimators-cpu")),
        "estimators-cuda": lambda: _rows(_ESTIMATORS, read("estimators-cuda")),
        "inside Stable-Baselines3": lambda: _mountain_car(
            read("mountain_car-new-default"), read("mountain_car-16-cores")
        ),
        "hindsight": lambda: _rows(_HINDSIGHT, read("hindsight")),
        "throughput-h200": lambda: _throughput(read("throughput-h200-1-seed"), read("throughput-h200-10-seeds")),
        "throughput-2-cores": lambda: _throughput_of_one(read("throughput-2-cores")),
        "goals-2-cores": lambda: _goals(read("goals-2-cores")),
        "splitting seeds": lambda: _sharing(
            {task: read(f"sharing-split-2-cores-{task}") for task in ("AntStand", "MountainCar")}
        ),
        "environments": lambda: _environments({label: read(f"environments-{label}") for label in _SHAPES}),
        "discovery": lambda: _discovery({"H200": read("discovery-held-out"), "CPU": read("discovery-held-out-cpu")}),
        "costs-2-cores": lambda: _costs(read("costs-2-cores"), digits=1),
        "costs-h200": lambda: _costs(read("costs-h200"), digits=2),
        "attacks": lambda: _attacks(*(read(f"reliability-{name}-2-cores") for name in _ATTACKS)),
        "damage": lambda: _damage(read("damage-2-cores")),
        "bad flags": lambda: _bad_flags(read("bad_flags-2-cores")),
    }
    return {f"table: {name}": partial(_block, text) for name, text in made.items()}


def _block(text: Callable[[], str]) -> Block:
    return Block(text())


def _where(stored: Stored) -> str:
    """Machine and commit, as the line below a table."""
    machine = stored["machine"]
    processor = machine.get("processor") or machine.get("cpu")
    torch = machine.get("torch") or machine["versions"]["torch"]
    gpu = f", {machine['gpu']}" if machine.get("gpu") else ""
    return f"{machine['cores']} cores of {processor}{gpu}, torch {torch}, commit {machine['commit']}"


def _measured(text: str, *stored: Stored) -> str:
    places = dict.fromkeys(_where(one) for one in stored)
    return f"{text}\n\n*{'; '.join(places)}.*"


def _rows(columns: Columns, *stored: Stored) -> str:
    """A table of all stored rows."""
    rows = []
    for one in stored:
        for row in one["figures"]["rows"]:
            rows.append([form.format_map(row) for _, form in columns])
    return _measured(table([heading for heading, _ in columns], rows), *stored)


def _goals(stored: Stored) -> str:
    """Ratios of speeds beside what we aim at."""
    goals = stored["figures"]["goals"]
    lines = [[goal["what"], f"{goal['measured']:.2f}", f"{goal['least']:.2f}"] for goal in goals]
    return _measured(table(["", "measured", "aim, at least"], lines), stored)


_DIAGNOSIS = (
    ("task", "{task}"),
    ("k", "{features}"),
    ("preset", "`{preset}`"),
    ("h", "{bandwidth:.3g}"),
    ("no neighbour", "{lonely:.0%}"),
    ("neighbours", "{neighbours:,.0f}"),
    ("rank correlation", "{rank_correlation:.2f}"),
    ("signal to noise", "{signal_to_noise:.2g}"),
    ("verdict", "{verdict}"),
)
_BANDWIDTH_RULES = (
    ("task", "{task}"),
    ("k", "{features}"),
    ("rule", "`{preset}`"),
    ("h", "{bandwidth:.3g}"),
    ("neighbours", "{neighbours:,.0f}"),
    ("rank correlation", "{rank_correlation:.2f}"),
    ("signal to noise", "{signal_to_noise:.2g}"),
)
_HINDSIGHT = (
    ("`shaper`", "{shaper}"),
    ("seed 0", "{successes[0]:.2f}"),
    ("seed 1", "{successes[1]:.2f}"),
    ("seed 2", "{successes[2]:.2f}"),
)
_IMAGE_EVIDENCE = (
    ("game", "{game}"),
    ("policy", "{policy}"),
    ("kept: successes, failures", "{successes:,}, {failures:,}"),
    ("pixels", "{pixels:.2f}"),
    ("coin flips", "{coin flips:.2f}"),
    ("places", "{places:.2f}"),
)
_ESTIMATORS = (
    ("states per outcome", "{stored:,}"),
    ("recomputed, linear", "{recompute_linear_ms:,.1f} ms"),
    ("kept, linear", "{linear_ms:.2f} ms"),
    ("ratio", "{linear_speedup:,.0f}×"),
    ("recomputed, squared", "{recompute_squared_ms:,.1f} ms"),
    ("kept, squared", "{squared_ms:.2f} ms"),
    ("ratio", "{squared_speedup:,.0f}×"),
)


def _mountain_car(new: Stored, old: Stored) -> str:
    rows = [
        _row_of_mountain_car("SAC + SASR `auto`", new, "auto"),
        _row_of_mountain_car("SAC + SASR `authors`", old, "authors"),
        _row_of_mountain_car("SAC", old, "none"),
    ]
    steps = [f"{int(step):,} steps" for step in new["figures"]["methods"]["auto"]["return_at"]]
    return _measured(table(["method", *steps, "seeds that ever reached the goal"], rows), new, old)


def _row_of_mountain_car(name: str, stored: Stored, method: str) -> list[str]:
    figures = stored["figures"]["methods"][method]
    returns = [f"{mean:.2f} ± {error:.2f}" for mean, error in figures["return_at"].values()]
    return [name, *returns, f"{figures['reached']} of {stored['figures']['seeds']}"]


def _throughput(one: Stored, ten: Stored) -> str:
    alone, together = one["figures"]["median"], ten["figures"]["median"]
    rows = [[name, f"{alone[name]:,.0f}", f"{rate:,.0f}"] for name, rate in together.items()]
    rows.append(["Stable-Baselines3's SAC", f"{alone[_SB3]:,.0f}", ""])
    return _measured(table(["", "one seed", "ten seeds"], rows), one, ten)


def _throughput_of_one(stored: Stored) -> str:
    rates = stored["figures"]["median"]
    names = {name: "Stable-Baselines3's SAC" if name.startswith("Stable") else name for name in rates}
    return _measured(
        table(["", "seed-steps per second"], [[names[name], f"{rates[name]:,.0f}"] for name in rates]), stored
    )


def _sharing(stored: Mapping[str, Stored]) -> str:
    rows = []
    for task, one in stored.items():
        whole, split = (statistics.median(row["together"]) for row in one["figures"]["rows"])
        rows.append([task, f"{whole:.0f}", f"{split:.0f}"])
    return _measured(table(["", "one process of two threads", "two processes of one"], rows), *stored.values())


def _environments(stored: Mapping[str, Stored]) -> str:
    rows = []
    for label, one in stored.items():
        rates = one["rounds_per_second"]
        ours = next(name for name in rates if name.startswith("sasr population"))  # the default's is first
        names = (ours, "gymnasium SyncVectorEnv", "gymnasium AsyncVectorEnv")
        place = _where(one).split(",")[0]
        rows.append([f"{_SHAPES[label]}, {place}", *(f"{statistics.median(rates[name]):,.0f}" for name in names)])
    columns = ["", "`Population`", "Gymnasium's SyncVectorEnv", "its AsyncVectorEnv"]
    return _measured(table(columns, rows), *stored.values())


def _discovery(stored: Mapping[str, Stored]) -> str:
    """The held-out runs of every contender; one run again on a CPU, with new defaults, counts as that one."""
    runs: dict[str, tuple[str, Stored]] = {}
    for place, one in stored.items():
        for run in one["figures"]["runs"]:
            runs[run["shaper"]] = (f"{place}, {run.get('commit', one['machine']['commit'])}", run)
    plain = runs["none"][1]
    rows = []
    for name, (place, run) in sorted(runs.items(), key=lambda item: -_reached(item[1][1]["first_goal"])):
        seeds = len(run["first_goal"])
        steps = [step for step in run["first_goal"] if step is not None]
        rows.append(
            [
                f"`{name}`",
                f"{_reached(run['first_crossing'])} of {seeds}",
                f"{len(steps)} of {seeds}",
                "" if name == "none" else f"{_fisher(run, plain):.2g}",
                f"{statistics.median(steps):,.0f}" if steps else "never",
                f"{statistics.mean(run['goals']):.1f}",
                place,
            ]
        )
    columns = [
        "method",
        "found the other room",
        "found the goal",
        "p",
        "first time, median step",
        "goals a seed",
        "run on, commit",
    ]
    return table(columns, rows)


def _reached(steps: list[int | None]) -> int:
    return sum(step is not None for step in steps)


def _fisher(run: Stored, plain: Stored) -> float:
    """Two-sided p of as many seeds with the goal as these, were the two the same."""
    from scipy.stats import fisher_exact

    counts = [[_reached(one["first_goal"]), one["first_goal"].count(None)] for one in (run, plain)]
    return float(fisher_exact(counts).pvalue)


def _costs(stored: Stored, *, digits: int) -> str:
    rows = []
    for row in stored["figures"]["rows"]:
        time, memory = (str(row[f"paper_{what}_over_sasr"] or "") for what in ("time", "memory"))
        ours = [f"`{row['shaper']}`", f"{row['ms']:.{digits}f}", f"{row['over_sac']:.2f}", f"{row['over_sasr']:.2f}"]
        rows.append([*ours, time, f"{row['state_bytes'] / 2**20:.1f} MiB", memory])
    columns = ["method", "ms", "× SAC", "× SASR", "paper: time × SASR", "what it keeps", "paper: memory × SASR"]
    return _measured(table(columns, rows), stored)


def _attacks(kills: Stored, crashes: Stored, signals: Stored) -> str:
    """What was done to running processes, and what was left of it."""
    cases, pairs = kills["figures"]["cases"], signals["figures"]["pairs"]
    agents = ", ".join(f"{name} {case['kills']}" for name, case in cases.items())
    lines = [
        (f"SIGKILL at random moments: {agents}", "kills", "runs", cases.values(), kills),
        ("SIGKILL at an event of the file system", "crashes", "crashes", [crashes["figures"]], crashes),
        ("two signals while a checkpoint is written", "pairs", "pairs", pairs.values(), signals),
    ]
    rows = []
    for attack, times, runs, counts, stored in lines:
        total = {name: sum(one.get(name, 0) for one in counts) for name in (times, runs, "equal", "partial_files_left")}
        left = [total["partial_files_left"], stored["figures"]["processes_left"], stored["figures"]["segments_left"]]
        cells = [attack, str(total[times]), f"{total['equal']} of {total[runs]}", *map(str, left)]
        rows.append([*cells, stored["machine"]["commit"]])
    columns = ["attack", "times", "runs that ended equal", "partial files left", "processes left", "shared memory left"]
    columns.append("commit")
    return _measured(table(columns, rows), kills, crashes, signals)


def _damage(stored: Stored) -> str:
    commands, totals = stored["figures"]["commands"], stored["figures"]["totals"]
    names = ("folders", "worked", "refused", "unforeseen", "tracebacks")
    rows = [[f"`sasr {command}`", *(str(counts[name]) for name in names)] for command, counts in commands.items()]
    columns = ["command", "folders", "worked", "refused in one line", "unforeseen errors", "tracebacks"]
    facts = (
        f"Hangs: {totals['hangs']}. Folders whose code ran: {totals['executed']}. Files outside that were shown: "
        f"{totals['leaked']}; changed: {totals['files_outside_changed']}. {_left(totals)}"
    )
    return _measured(f"{table(columns, rows)}\n\n{facts}", stored)


def _left(figures: Stored) -> str:
    """What an attack left behind."""
    counts = [
        f"{name.removesuffix('_left').replace('_', ' ')} {number}" for name, number in figures["left_behind"].items()
    ]
    return f"Left behind: {', '.join(counts)}."


def _bad_flags(stored: Stored) -> str:
    names = ("flags", "commands", "refused", "accepted", "unforeseen", "hangs", "tracebacks")
    rows = []
    for command, counts in stored["figures"]["commands"].items():
        rows.append([f"`sasr {command}`", *(str(counts[name]) for name in names)])
    sums = [sum(int(row[column]) for row in rows) for column in range(1, len(names) + 1)]
    rows.append(["all", *map(str, sums)])
    columns = ["command", "flags", "tried", "refused", "accepted", "unforeseen errors", "hangs", "tracebacks"]
    return _measured(f"{table(columns, rows)}\n\n{_left(stored['figures'])}", stored)
