"""Markdown files with markers: their blocks written, or compared with what is there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pages.markdown import Blocks, Page, empty, filled
from pages.pictures import png_data, save_png
from pages.store import Store
from sasr.files import write_whole
from sasr.report.store import slug

TO_WRITE = "*To be written: what this shows, in three lines.*\n"
"""Stands in a page that was begun for results that had none."""


def begin_pages(store: Store, blocks: Blocks, folder: Path) -> list[Path]:
    """Begin a page for each task of the main comparison, and for each plan, that has results but no page."""
    begun = []
    for name in [*store.main.tasks, *(plan for plan in store.plans if store.groups[plan].results)]:
        path = folder / f"{slug(name)}.md"
        if path.exists():
            continue
        wanted = [block for block in blocks if _subject(block) == name or _subject(block).startswith(f"{name} ")]
        markers = "\n".join(empty(block) for block in wanted)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"# {store.about.get(name, name)}\n\n{TO_WRITE}\n{markers}")
        begun.append(path)
    return begun


def write_pages(paths: Iterable[Path], blocks: Blocks, *, redraw: bool = False) -> list[Path]:
    """Write the blocks and pictures of all these files; the paths of what has changed.

    A picture whose data are the same stays as it is, because another matplotlib would give it other bytes.

    Args:
        paths: Markdown files; those without markers stay as they are.
        blocks: What can stand between markers.
        redraw: Draw all pictures again, as after a change of how they look.
    """
    pages = _read(paths, blocks)  # raises before anything changes
    changed = []
    for path, page in pages.items():
        for picture in page.pictures:
            file = path.parent / picture.file
            if redraw or not file.exists() or png_data(file) != picture.data:
                save_png(picture.draw(), file, data=picture.data)
                changed.append(file)
        if path.read_text(encoding="utf-8") != page.text:
            write_whole(path, page.text)
            changed.append(path)
    for file in _stale(pages):
        file.unlink()
        changed.append(file)
    return changed


def differences(paths: Iterable[Path], blocks: Blocks) -> list[str]:
    """In which ways these files are not what the results give; empty where they are."""
    pages = _read(paths, blocks)
    differing = []
    for path, page in pages.items():
        if path.read_text(encoding="utf-8") != page.text:
            differing.append(f"{path.name} is not what the results give")
        for picture in page.pictures:
            file = path.parent / picture.file
            if not file.exists():
                differing.append(f"{picture.file} is missing")
            elif png_data(file) != picture.data:
                differing.append(f"{picture.file} was drawn from other data")
    return differing + [f"{file.name} belongs to no page" for file in _stale(pages)]


def not_shown(paths: Iterable[Path], blocks: Blocks) -> list[str]:
    """Blocks that no file has markers for."""
    shown: set[str] = set()
    for page in _read(paths, blocks).values():
        shown.update(page.names)
    return [name for name in blocks if name not in shown]


def _read(paths: Iterable[Path], blocks: Blocks) -> dict[Path, Page]:
    return {path: filled(path.read_text(encoding="utf-8"), blocks, where=str(path)) for path in paths}


def _stale(pages: dict[Path, Page]) -> list[Path]:
    """Pictures of ours, which say what they were drawn from, that no page beside them has."""
    shown: set[Path] = set()
    for path, page in pages.items():
        shown.update(path.parent / picture.file for picture in page.pictures)
    stale = []
    for folder in {path.parent for path in pages}:
        for file in set(folder.glob("*.png")) - shown:
            if re.fullmatch(r"[0-9a-f]{12}", png_data(file)):
                stale.append(file)
    return sorted(stale)


def _subject(block: str) -> str:
    """What a block is about: `table: final MountainCar` is about MountainCar."""
    return block.split(": ", 1)[1].removeprefix("final ")
