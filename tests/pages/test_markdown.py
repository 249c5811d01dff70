from __future__ import annotations

import pytest

from pages.markdown import Block, Blocks, Picture, digest, empty, filled, picture, table

BLOCKS: Blocks = {"table: a": lambda: Block("| a |"), "sources: b": lambda: Block("from b\n\n")}


def test_what_stands_between_markers_is_replaced_and_nothing_else() -> None:
    text = "Words.\n<!-- table: a -->\nold\n<!-- end -->\nMore.\n\n<!-- sources: b -->\n<!-- end -->\nEnd"
    page = filled(text, BLOCKS, where="x.md")
    new = "Words.\n<!-- table: a -->\n\n| a |\n\n<!-- end -->\n"
    new += "More.\n\n<!-- sources: b -->\n\nfrom b\n\n<!-- end -->\nEnd"
    assert page.text == new
    assert page.names == ["table: a", "sources: b"]
    assert filled(new, BLOCKS, where="x.md").text == new


def test_a_text_without_markers_stays_as_it_is() -> None:
    text = "Words.\n<!-- a comment -->\n<!-- end -->\n"
    assert filled(text, BLOCKS, where="x.md") == (text, [], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (empty("table: aa"), r"x\.md: block 'table: aa' is unknown; did you mean 'table: a'"),
        ("<!-- table: a -->\nold\n", r"x\.md: <!-- table: a --> has no <!-- end --> behind it"),
        (f"<!-- table: a -->\nold\n{empty('sources: b')}", r"<!-- table: a --> has no <!-- end --> behind it"),
    ],
)
def test_a_marker_that_means_nothing_is_named_with_its_file(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filled(text, BLOCKS, where="x.md")


def test_a_picture_stands_in_the_page_with_what_it_was_drawn_from() -> None:
    drawn = Picture("own.png", digest([1, 2]), lambda: None)
    page = filled(empty("picture: p"), {"picture: p": lambda: picture(drawn, "Over [steps]. More.")}, where="x.md")
    assert page.pictures == [drawn]
    assert f"![Over steps](own.png)\n<!-- drawn from data {digest([1, 2])} -->\n\n*Over [steps]. More.*" in page.text
    assert digest([1, 2]) != digest([1, 3])


def test_texts_become_a_table() -> None:
    assert table(["a", "b"], [["1", "2"], ["3", ""]]) == "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 |  |"
