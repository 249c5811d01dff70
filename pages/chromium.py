"""The Chromium that is installed on this machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's, closed at the end."""
    from playwright.sync_api import sync_playwright

    flags = []
    if os.geteuid() == 0:  # as in containers, where Chromium's sandbox refuses to run
        flags.append("--no-sandbox")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()
