"""What every benchmark says about where it ran, and how it writes what it found."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import torch


def machine() -> dict[str, object]:
    cpu = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.processor()
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        # A copy of the tree without its history can be told the commit it is a copy of.
        "commit": commit.stdout.strip() or os.environ.get("SASR_COMMIT", "unknown"),
    }


def save(name: str, figures: object) -> Path:
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")
    return path


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
