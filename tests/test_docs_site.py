"""The built documentation in a real Chromium, wide and on a phone; `make docs` runs this after it has built it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package: pip install playwright")
SITE = Path(os.environ.get("SASR_DOCS_SITE", "")).resolve()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif("SASR_DOCS_SITE" not in os.environ, reason="needs the built documentation: make docs"),
]
MADE_BY_SPHINX = {"index.html", "genindex.html", "search.html", "py-modindex.html"}
WIDTHS = {"wide": 1280, "phone": 400}


def pages() -> list[Path]:
    """Every page that was written by hand, and the reference."""
    found = [path for path in sorted(SITE.rglob("*.html")) if "_modules" not in path.parts]
    return [path for path in found if path.name not in MADE_BY_SPHINX]


@pytest.fixture(params=WIDTHS)
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": WIDTHS[request.param], "height": 800})
    yield context.new_page()
    context.close()


def test_every_page_is_reached_by_the_navigation(page: Any) -> None:
    page.goto((SITE / "index.html").as_uri())
    links = page.locator(".sidebar-tree a.reference.internal")
    targets = {href.partition("#")[0] for href in links.evaluate_all("found => found.map((link) => link.href)")}
    assert {path.as_uri() for path in pages()} <= targets
    if page.viewport_size["width"] == WIDTHS["phone"]:
        page.locator(".nav-overlay-icon").click()
        page.wait_for_timeout(500)  # the drawer slides in
    links.first.click()
    playwright.expect(page.locator("h1")).to_contain_text("Install")


def test_no_page_scrolls_sideways(page: Any) -> None:
    too_wide = []
    for path in [SITE / "index.html", *pages()]:
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > page.viewport_size["width"]:
            too_wide.append(f"{path.relative_to(SITE)}: {width}")
    assert too_wide == []


def test_every_link_within_the_site_leads_somewhere(browser: Any) -> None:
    page = browser.new_page()
    broken = set()
    for path in [SITE / "index.html", *pages()]:
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        for link in page.eval_on_selector_all("a[href]", "found => found.map((link) => link.href)"):
            if link.startswith("file:") and not leads_somewhere(link):
                broken.add(f"{path.relative_to(SITE)}: {link}")
    page.close()
    assert broken == set()


def leads_somewhere(link: str) -> bool:
    """Whether a link to a file, and to a place in it, finds both."""
    address, _, place = unquote(link).partition("#")
    path = Path(address.removeprefix("file://"))
    if not path.exists():
        return False
    return not place or path.suffix != ".html" or f'id="{place}"' in path.read_text()
