"""What every benchmark says about where it ran, and how it writes what it found."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "numpy", "gymnasium", "mujoco", "stable-baselines3")},
        "load_before": os.getloadavg()[0],
        "commit": _commit(),
    }


def save(name: str, figures: object, where: dict[str, object] | None = None) -> Path:
    """Write `figures` with the machine they were measured on, as it is now or as it was `where` the run began."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": where or machine(), "figures": figures}, indent=1) + "\n")
    return path


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=RESULTS.parent
    )
    # A copy of the tree without its history can be told the commit it is a copy of.
    return os.environ.get("SASR_COMMIT") or asked.stdout.strip() or "unknown"
