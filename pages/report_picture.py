"""Write docs/report.png: the page of made-up results in the size of the paper's Table 1, as Chromium shows it.

python -m pages.report_picture    from the repository's root; needs Chromium and the dev extra
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.report.synthetic import table_1

from pages.chromium import chromium
from sasr.report.page import write_page
from sasr.report.read import Collection

OUT = Path(__file__).parents[1] / "docs" / "report.png"
TITLE = "Made-up results in the size of Table 1"


def main() -> None:
    """Write the page, open it, photograph the learning curves."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page_file = write_page(Collection(table_1()), Path(folder) / "report.html", title=TITLE)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready]")
        page.add_style_tag(content="html { scroll-behavior: auto !important; }")
        page.locator("#curves").evaluate("(curves) => curves.scrollIntoView()")
        page.wait_for_function("document.querySelectorAll('#charts .plot .main-svg').length >= 12")
        page.wait_for_timeout(500)
        page.screenshot(path=OUT)


if __name__ == "__main__":
    main()
