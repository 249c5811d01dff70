"""The small grid, run once in this process, for others to be compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from sasr.experiments.runners import Inline
from tests.experiments.small import carried_out


@pytest.fixture(scope="session")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("inline")
    grid = carried_out(Inline(), out)
    assert len(grid.of("done")) == 4
    return out
