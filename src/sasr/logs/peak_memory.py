"""The most memory that a run had in use: the device's where there is one, else this process's."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Counts from when it is made; environments in processes of their own are not counted."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):
                _RESET.write_text("5")  # Linux: forget the peak of what this process did before

    def bytes(self) -> int | None:
        """The peak so far; None where the system does not tell."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_reserved(self.device))
        # Not getrusage where it can be helped: a process inherits the peak of the one that started it.
        with suppress(OSError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return _resource_peak()


def _resource_peak() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
