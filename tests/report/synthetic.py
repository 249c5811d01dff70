"""Made-up results and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sasr.report.seeds import SeedResult
from sasr.report.store import Result


def seed_result(
    seed: int, *, points: int = 20, steps: int = 10_000, level: float = 1.0, final: int = 100
) -> SeedResult:
    """A curve that rises to about `level`."""
    rng = np.random.default_rng([seed, round(1000 * level)])
    at = np.linspace(0, steps, points).astype(int)
    rise = 1.0 / (1.0 + np.exp(-(at / steps - rng.uniform(0.3, 0.6)) * 12.0))
    level *= rng.uniform(0.7, 1.1)
    returns = level * rise + 0.03 * level * rng.normal(size=points)
    return SeedResult(
        seed=seed,
        steps=tuple(at.tolist()),
        returns=tuple(returns.tolist()),
        success=tuple(rise.round(2).tolist()),
        final=tuple((level * (1.0 + 0.05 * rng.normal(size=final))).tolist()),
        final_success=0.9,
    )


def make_result(task: str = "AntStand", method: str = "sasr", *, seeds: int = 3, **options: Any) -> Result:
    seed_options = {name: options.pop(name) for name in ("points", "steps", "level", "final") if name in options}
    start = options.pop("first_seed", 0)
    facts: dict[str, Any] = {
        "commit": "abc1234",
        "command": f"sasr compare --tasks {task} --methods {method} --seeds {seeds} --save results/",
        "config": {"task": task, "shaper": method},
        "steps": seed_options.get("steps", 10_000),
        "planned": tuple(range(start, start + seeds)),
        "seeds": tuple(seed_result(seed, **seed_options) for seed in range(start, start + seeds)),
        "machine": {"processor": "a processor", "cores": 2},
        "versions": {"python": "3.11"},
        "wall_seconds": 100.0,
        "peak_memory_bytes": 1e9,
    }
    return Result(task=task, method=method, **(facts | options))


def make_run(
    folder: Path, *, task: str = "MountainCar", seeds: tuple[int, ...] = (0, 1), last: int = 3_000, **config: Any
) -> Path:
    """A run's folder as `sasr train` leaves it: an evaluation every 1,000 steps up to `last`."""
    folder.mkdir(parents=True)
    settings = {"task": task, "shaper": "sasr", "preset": "auto", "agent": "auto", "seeds": list(seeds), "steps": 3_000}
    facts = {
        "format": 1,
        "versions": {"sasr": "0.1.0"},
        "commit": "0123456789abcdef",
        "command": f"sasr train {task} --seeds {len(seeds)}",
        "machine": {"processor": "a processor", "cores": 2},
        "config": settings | config,
    }
    (folder / "config.json").write_text(json.dumps(facts))
    lines: list[dict[str, Any]] = []
    for step in range(1_000, last + 1, 1_000):
        for member, seed in enumerate(seeds):
            lines.append(_event("episode", step, member, seed) | {"return": step / 2000, "length": 9, "success": True})
            evaluation = {"return_mean": step / 1000 + seed, "success_rate": 0.5, "returns": [step / 1000 + seed] * 5}
            lines.append(_event("evaluation", step, member, seed) | evaluation)
        lines.append({"kind": "clock", "step": step, "member": None, "seed": None, "seconds": step / 100})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def add_maps(run: Path, *, moments: int = 4, members: int = 2) -> None:
    x, y = np.linspace(-1.2, 0.6, 21), np.linspace(-0.07, 0.07, 15)
    rate = np.stack([np.full((members, 15, 21), 0.2) + 0.6 * k / moments * (x > 0) for k in range(1, moments + 1)])
    np.savez_compressed(run / "success_map.npz", steps=np.arange(1, moments + 1) * 750, x=x, y=y, rate=rate)


def _event(kind: str, step: int, member: int, seed: int) -> dict[str, Any]:
    return {"kind": kind, "step": step, "member": member, "seed": seed}


def table_1() -> list[Result]:
    """Made-up results in the size of the paper's comparison."""
    rng = np.random.default_rng(0)
    # No real names: nobody must take these for measurements.
    return [
        make_result(f"Task {task}", f"method {method}", seeds=10, points=200, steps=1_000_000, level=level)
        for task in "ABCDEFGHIJKLMN"
        for method, level in enumerate(rng.uniform(5.0, 120.0, size=11).tolist(), start=1)
    ]
