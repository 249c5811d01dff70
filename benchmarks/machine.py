"""What every benchmark says about where it ran, and how it writes what it found."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from rich.table import Column, Table

from sasr.envs.worker_pool import cores
from sasr.logs.run_folder import processor

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    return {
        "processor": processor(),
        "cores": cores(),
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


def figures_table(names: str, *columns: str, title: str) -> Table:
    """A table whose first column has names, and whose others have numbers."""
    return Table(names, *(Column(column, justify="right") for column in columns), title=title)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=RESULTS.parent
    )
    # The variable is for a copy of the tree without its history.
    return os.environ.get("SASR_COMMIT") or git.stdout.strip() or "unknown"
