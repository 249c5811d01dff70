"""Pages to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from sasr.report.page import write_page
from sasr.report.read import Collection

from .synthetic import table_1


@pytest.fixture(scope="session")
def table_1_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """14 tasks × 11 methods × 10 seeds × 200 points."""
    return write_page(Collection(table_1()), tmp_path_factory.mktemp("table-1") / "report.html")
