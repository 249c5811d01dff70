from __future__ import annotations

from pathlib import Path

import pytest

from pages.blocks import blocks_of
from pages.markdown import empty
from pages.pictures import png_data
from pages.rows import DEFAULT
from pages.store import read_store
from pages.write import begin_pages, differences, not_shown, write_pages
from sasr.report.store import write_result
from tests.report.synthetic import make_result


def write(results: Path, docs: Path) -> list[str]:
    """What `make results` does, for one folder of pages; the names of what it changed."""
    store = read_store(results)
    blocks = blocks_of(store)
    begin_pages(store, blocks, docs)
    return [path.name for path in write_pages(sorted(docs.glob("*.md")), blocks)]


def test_a_task_that_has_results_but_no_page_gets_one(store: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(store, docs)
    assert {path.name for path in docs.iterdir()} == {
        "HumanKeep.md",
        "HumanKeep.png",
        "MountainCar.md",
        "MountainCar.png",
    }
    text = (docs / "HumanKeep.md").read_text()
    assert text.startswith("# HumanKeep\n")
    assert f"| {DEFAULT} |" in text
    blocks = blocks_of(read_store(store))
    assert differences(docs.glob("*.md"), blocks) == []
    unused = not_shown(docs.glob("*.md"), blocks)
    assert "table: in short" in unused
    assert "table: final HumanKeep" not in unused


def test_words_stay_and_the_same_store_changes_nothing_twice(store: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "MountainCar.md").write_text(f"# By hand\n\n{empty('table: final MountainCar')}\nMore words.\n")
    (docs / "other.md").write_text("# Not generated\n")
    write(store, docs)
    text = (docs / "MountainCar.md").read_text()
    assert text.startswith("# By hand\n")
    assert text.endswith("More words.\n")
    assert f"| {DEFAULT} |" in text
    assert (docs / "other.md").read_text() == "# Not generated\n"
    assert write(store, docs) == []


def test_a_picture_that_is_older_than_its_data_is_found_and_drawn_again(store: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(store, docs)
    before = png_data(docs / "MountainCar.png")
    assert before in (docs / "MountainCar.md").read_text()
    write_result(make_result("MountainCar", DEFAULT, seeds=8, level=0.9), store / "compare")
    found = differences(docs.glob("*.md"), blocks_of(read_store(store)))
    assert {"MountainCar.md is not what the results give", "MountainCar.png was drawn from other data"} == {*found}
    assert set(write(store, docs)) == {"MountainCar.md", "MountainCar.png"}
    assert differences(docs.glob("*.md"), blocks_of(read_store(store))) == []
    assert png_data(docs / "MountainCar.png") != before


def test_a_picture_of_ours_that_no_page_has_goes(store: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(store, docs)
    page = docs / "HumanKeep.md"
    page.write_text("# By hand\n")
    assert differences([page], blocks_of(read_store(store))) == [
        "HumanKeep.png belongs to no page", "MountainCar.png belongs to no page",
    ]  # fmt: skip
    assert write(store, docs) == ["HumanKeep.png"]


def test_a_block_whose_results_are_gone_is_named_and_nothing_is_written(store: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(store, docs)
    before = {path: path.stat().st_mtime_ns for path in docs.iterdir()}
    for file in store.glob("compare/HumanKeep/*.json"):
        file.unlink()
    with pytest.raises(ValueError, match=r"HumanKeep\.md: block '.*HumanKeep' is unknown"):
        write(store, docs)
    assert {path: path.stat().st_mtime_ns for path in docs.iterdir()} == before
