"""How long the report of a large grid takes to open in Chromium: 14 tasks × 11 methods × 10 seeds × 200 points.

python -m benchmarks.page --label 2-cores
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from rich.console import Console
from tests.report.synthetic import table_1

from benchmarks.machine import machine, save
from pages.chromium import chromium
from sasr.report.page import write_page
from sasr.report.read import Collection


@dataclass(frozen=True)
class Settings:
    label: str = "local"
    """Ends the name of the result file; say which machine."""
    openings: int = 7
    """How often it is opened, each time in a browser of its own."""


def main(settings: Settings) -> None:
    where, console, seconds = machine(), Console(), []
    with tempfile.TemporaryDirectory() as folder:
        path = write_page(Collection(table_1()), Path(folder) / "report.html")
        size = path.stat().st_size
        for _ in range(settings.openings):
            with chromium() as browser:
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                start = time.perf_counter()
                page.goto(path.as_uri())
                page.wait_for_selector("html[data-ready]")
                page.wait_for_selector("#intervals .main-svg")
                seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    console.print(
        f"{size / 2**20:.1f} MiB, open with its figures after {median:.2f} s (median of {len(seconds)}, "
        f"{min(seconds):.2f} to {max(seconds):.2f})"
    )
    save(f"page-{settings.label}", {"settings": asdict(settings), "bytes": size, "seconds": seconds}, where)


if __name__ == "__main__":
    main(tyro.cli(Settings))
