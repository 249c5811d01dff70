"""Write docs/results: pages and pictures of everything in the folder results/, and of nothing else.

python docs/write_results_pages.py            what `make results` does
python docs/write_results_pages.py --check    say what is not up to date, and exit with 1 if anything is
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from sasr.report.pages.write import differences, write_pages

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Settings:
    """From where to where."""

    results: Path = ROOT / "results"
    """The store, with notes, plans, reference curves and analyses."""
    out: Path = ROOT / "docs" / "results"
    """Folder of the pages."""
    check: bool = False
    """Write nothing; compare."""
    redraw: bool = False
    """Draw pictures again whose data are the same, after a change of how they look."""


def main(settings: Settings) -> None:
    """Write, or compare; what is wrong with the results is one message."""
    try:
        if settings.check:
            found = differences(settings.results, settings.out)
            sys.exit("\n".join([*found, "run `make results`"]) if found else 0)
        for path in write_pages(settings.results, settings.out, redraw=settings.redraw):
            print(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(tyro.cli(Settings))
