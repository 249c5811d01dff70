"""Atomic writes, checks of folders, and safe reading of files from others."""

from __future__ import annotations

import errno
import io
import math
import os
import stat
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


class IrregularFileError(OSError):
    """A link, a folder, a pipe or a device in place of a file: it may lead elsewhere, or block its reader."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is a link, a folder, a pipe or a device; only regular files are read")


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a temporary file, then rename it: readers never see half a file, and a full disk leaves the old one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.unlink(missing_ok=True)  # in a folder from others it might be a link
        with beside.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """A value in the types of JSON: tuples become lists, NaN and infinities null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    return value


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that `write_whole` left in a folder when its process was killed."""
    for path in leftovers(folder):
        path.unlink(missing_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Temporary files that `write_whole` left in a folder, and unfinished videos."""
    return sorted(folder.glob(".*.part*"))  # a video's ends with .part.mp4


def check_writable(folder: Path, *, flag: str = "--out") -> None:
    """Make a folder and check that it takes files; an error names the folder, and the flag to choose another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{folder} can't be written to ({error.strerror}); choose another place with {flag}") from None


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; a link, a pipe or a device is refused before anything is read from it."""
    # O_NONBLOCK: opening a pipe would wait for a writer.
    strict = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    try:
        handle = os.open(path, os.O_RDONLY | strict)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise IrregularFileError(path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise IrregularFileError(path)
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file, if they are no more than `most`: a file with holes can be larger than its disk."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(f"{path} has {size:,} bytes, but at most {most:,} are read")
        return file.read(most)


def read_arrays(path: Path, names: Sequence[str], most: int) -> list[NDArray[Any]]:
    """Arrays of an npz file that unpacks to at most `most` bytes; an error says what is wrong with the file."""
    try:
        packed = io.BytesIO(read_regular(path, most))
        with zipfile.ZipFile(packed) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > most:
            raise ValueError(f"it unpacks to {size:,} bytes, but at most {most:,} are read")
        with np.load(packed, allow_pickle=False) as data:
            return [np.asarray(data[name]) for name in names]
    except Exception as error:  # numpy and zipfile have many classes for damaged and crafted files
        raise ValueError(f"{path.name} cannot be read ({error})") from None


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays as a compressed npz file, whole or not at all."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_whole(path, buffer.getvalue())
