"""All pages from a folder of results: written, or compared with what is there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from sasr.errors import unknown_name
from sasr.files import check_writable, write_whole
from sasr.report.figures import png_data, save_png
from sasr.report.pages.ablations import ablations_page, plan_page, plan_rows
from sasr.report.pages.analyses import analysis_page
from sasr.report.pages.costs import costs_page
from sasr.report.pages.inputs import read_store
from sasr.report.pages.page import HEAD, Page
from sasr.report.pages.tasks import index_page, placeholders, rows_by_task, task_page


def pages_of(folder: str | Path) -> list[Page]:
    """Every page that a folder of results gives; pictures are not drawn yet."""
    store = read_store(folder)
    rows = rows_by_task(store)
    about = {name: _about(Path(folder) / "plans" / f"{name}.toml") for name in store.plans}
    plans = {name: plan_rows(store, name) for name in store.plans}
    quoted = {f"{task}/{row.method}": row for own in plans.values() for task, lot in own.items() for row in lot}
    known = {**quoted, **placeholders(rows)}  # a task's own row where a plan compares the same one with another base
    made = [(plan_page(store, name, text, plans[name], known), text) for name, text in about.items()]
    made += [
        (ablations_page(store, known), "the paper's six ablations"),
        (analysis_page(store), "where runs have been, and what they were paid for it"),
        (costs_page(store), "time and memory of whole runs beside the paper's tables"),
    ]
    others = [(page, text) for page, text in made if page is not None]
    index = index_page(store, rows, {page.name: text for page, text in others}, known)
    pages = [index, *(task_page(store, task, rows, quoted) for task in rows), *(page for page, _ in others)]
    names = [page.name for page in pages]
    for name in (*store.notes, *(name for name in names if names.count(name) > 1)):
        if names.count(name) != 1:
            raise ValueError(f"results/notes/{name}.md: {unknown_name('page', name, names)}")
    return pages


def write_pages(folder: str | Path, out: str | Path, *, redraw: bool = False) -> list[Path]:
    """Write all pages and pictures; those of an earlier call that are no more are removed.

    A picture whose data are the same stays as it is, because another matplotlib would give it other bytes.

    Args:
        folder: The results.
        out: Where pages go.
        redraw: Draw all pictures again, as after a change of how they look.

    Returns:
        The paths of everything that belongs there.
    """
    place = Path(out)
    pages = pages_of(folder)  # whatever is wrong is told before anything changes
    check_writable(place)
    written = []
    for page in pages:
        for picture in page.pictures:
            path = place / picture.file
            if redraw or not path.exists() or png_data(path) != picture.data:
                save_png(picture.draw(), path, data=picture.data)
            written.append(path)
        write_whole(place / f"{page.name}.md", page.text)
        written.append(place / f"{page.name}.md")
    for old in _stale(place, written):
        old.unlink()
    return written


def differences(folder: str | Path, out: str | Path) -> list[str]:
    """In which ways the pages in a folder are not what the results give; empty where they are."""
    place, found = Path(out), []
    expected = []
    for page in pages_of(folder):
        path = place / f"{page.name}.md"
        expected.append(path)
        if not path.exists() or path.read_text(encoding="utf-8") != page.text:
            found.append(f"{path.name} is not what the results give")
        for picture in page.pictures:
            expected.append(place / picture.file)
            if not expected[-1].exists():
                found.append(f"{picture.file} is missing")
            elif png_data(expected[-1]) != picture.data:
                found.append(f"{picture.file} was drawn from other data")
    return found + [f"{old.name} belongs to no page" for old in _stale(place, expected)]


def _stale(place: Path, kept: Iterable[Path]) -> list[Path]:
    """Pages of ours that are not kept, and pictures of ours: those that say what they were drawn from."""
    pages = [own for own in place.glob("*.md") if own.read_text(encoding="utf-8").startswith(HEAD)]
    pictures = [own for own in place.glob("*.png") if re.fullmatch(r"[0-9a-f]{12}", png_data(own))]
    return sorted({*pages, *pictures} - set(kept))


def _about(plan: Path) -> str:
    return str(tomllib.loads(plan.read_text(encoding="utf-8")).get("about") or plan.stem)
