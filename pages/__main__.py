"""`python -m pages`: see the package."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from pages import benchmarks, figure5, table1
from pages.blocks import blocks_of, rows_by_task
from pages.comparison import promises
from pages.store import read_store
from pages.write import begin_pages, differences, not_shown, write_pages

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Settings:
    """What is written."""

    check: bool = False
    """Write nothing; compare."""
    redraw: bool = False
    """Draw pictures again whose data are the same, after a change of how they look."""


def markdown_files(root: Path = ROOT) -> list[Path]:
    """Where blocks may stand."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def main(settings: Settings) -> None:
    """Write, or compare; what is wrong with the results is one message."""
    try:
        store = read_store(ROOT / "results")
        blocks = {
            **blocks_of(store),
            **table1.blocks_of(store),
            **figure5.blocks_of(store, ROOT / "results" / "figure5" / "states"),
            **benchmarks.blocks_of(ROOT / "benchmarks" / "results"),
        }
        if settings.check:
            lines = differences(markdown_files(), blocks)
            sys.exit("\n".join([*lines, "run `make results`"]) if lines else 0)
        changed = begin_pages(store, blocks, ROOT / "docs" / "results")
        changed += write_pages(markdown_files(), blocks, redraw=settings.redraw)
        unused = not_shown(markdown_files(), blocks)
    except ValueError as error:
        sys.exit(str(error))
    for path in dict.fromkeys(changed):
        print(f"{'wrote' if path.exists() else 'removed'} {path.relative_to(ROOT)}")
    for name in unused:
        print(f"on no page: <!-- {name} -->")
    for line in promises(rows_by_task(store)):
        print(line)


if __name__ == "__main__":
    main(tyro.cli(Settings))
