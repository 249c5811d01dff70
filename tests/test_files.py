from __future__ import annotations

from pathlib import Path

import pytest

from sasr.files import check_writable, write_whole


@pytest.mark.parametrize("data", ["ünïcode\n", b"\x00\xff"])
def test_what_is_written_is_there(tmp_path: Path, data: str | bytes) -> None:
    path = tmp_path / "file"
    write_whole(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")

    def fail(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file/folder can't be written to .*; choose another place with --out"):
        check_writable(tmp_path / "file" / "folder")
