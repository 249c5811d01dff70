"""Figures 4 and 5, from the states that stored runs logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages.figure5 import blocks_of
from pages.store import read_store

RESULTS = Path(__file__).parents[2] / "results"


def test_every_method_of_the_suite_has_a_row_of_four_periods() -> None:
    blocks = blocks_of(read_store(RESULTS), RESULTS / "figure5" / "states")
    block = blocks["picture: figure5"]()
    assert block.picture is not None
    figure = block.picture.draw()
    rows = [panel.get_ylabel() for panel in figure.axes if panel.get_ylabel() and panel.get_subplotspec() is not None]
    assert rows[:6] == ["sasr", "relara", "explo", "rnd", "sac", "noisynet"]
    bonus = blocks["picture: figure4"]().picture
    assert bonus is not None
    assert len(bonus.draw().axes) == 5


def test_without_states_there_are_no_pictures(tmp_path: Path) -> None:
    assert blocks_of(read_store(RESULTS), tmp_path / "none") == {}


def test_a_missing_method_is_named(tmp_path: Path) -> None:
    (tmp_path / "states").mkdir()
    with pytest.raises((OSError, ValueError), match="sasr"):
        blocks_of(read_store(RESULTS), tmp_path / "states")
