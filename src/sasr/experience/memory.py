"""How much memory stored steps may take."""

from __future__ import annotations

import os
from pathlib import Path

import torch

HEADROOM = 0.9
"""Share of the free memory that stored steps may take; networks, batches and the system need some."""


def free_bytes(device: torch.device) -> int:
    """Memory that can be allocated on a device now, without pushing anything out."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # on Linux most memory that is not free is cache that would be given up
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and (allowed := limit.read_text().strip()) != "max":  # a container may have less than its machine
        free = min(free, int(allowed) - int(used.read_text()))
    return free
