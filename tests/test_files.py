from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sasr.files import check_writable, open_regular, read_arrays, read_regular, write_whole


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


def test_only_a_file_of_its_own_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    for name in ("link", "device", "folder", "pipe"):
        with pytest.raises(OSError, match=f"{name} is a link, a folder, a pipe or a device"):
            open_regular(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


def test_no_more_is_read_than_was_agreed(tmp_path: Path) -> None:
    (tmp_path / "holes").touch()
    os.truncate(tmp_path / "holes", 2**33)
    with pytest.raises(OSError, match="at most 1,000 are read"):
        read_regular(tmp_path / "holes", 1_000)


def test_a_link_in_the_way_of_what_is_written_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("untouched")
    for name in ("file", f".file.{os.getpid()}.part"):
        (tmp_path / name).symlink_to("theirs")
    write_whole(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "theirs").read_text() == "untouched"


def npy(header: str, data: bytes = b"") -> bytes:
    words = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words + data


@pytest.mark.parametrize(
    "member",
    [
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,)}"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"\x80\x04K\x01."),
        npy("{'descr': '<f8', 'shape': (__import__('os'),)}"),
        npy("{'descr': '<q9', 'fortran_order': False, 'shape': (-1,)}"),
        bytes(10_000_000),
    ],
    ids=["huge", "pickled", "code", "nonsense", "bomb"],
)
def test_a_crafted_archive_of_arrays_is_refused(tmp_path: Path, member: bytes) -> None:
    path = tmp_path / "maps.npz"
    np.savez(path, x=np.arange(3.0))
    assert read_arrays(path, ["x"], 2**20)[0].tolist() == [0.0, 1.0, 2.0]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", member)
    path.write_bytes(packed.getvalue())
    with pytest.raises(ValueError, match=r"maps\.npz cannot be read"):
        read_arrays(path, ["x"], 2**20)
