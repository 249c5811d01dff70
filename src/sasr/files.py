"""Files that are there whole or not at all, places that can be written to, and files of somebody else's."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


class IrregularFileError(OSError):
    """A link, a folder, a pipe or a device where a file belongs: it may lead elsewhere, or never answer."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is a link, a folder, a pipe or a device; only regular files are read")


def write_whole(path: Path, data: str | bytes) -> None:
    """Write beside, then rename: a reader never sees half a file, and a full disk leaves the old one as it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.unlink(missing_ok=True)  # in a folder of somebody else's it might be a link
        with beside.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what `write_whole` had half written into a folder when its process was killed."""
    for path in leftovers(folder):
        path.unlink(missing_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Files in a folder that were never finished."""
    return sorted(folder.glob(".*.part*"))  # a film's ends with .part.mp4


def check_writable(folder: Path, *, flag: str = "--out") -> None:
    """Make a folder and see that files can be put there; an error names the folder and the flag that names another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{folder} can't be written to ({error.strerror}); choose another place with {flag}") from None


def open_regular(path: Path) -> BinaryIO:
    """A file for reading; a link, a pipe or a device is refused before anything is read from it."""
    # A pipe would keep its reader waiting for a writer; opened so, it answers at once.
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
            raise OSError(f"{path} has {size:,} bytes, and no more than {most:,} are read")
        return file.read(most)


def read_arrays(path: Path, names: Sequence[str], most: int) -> list[NDArray[Any]]:
    """Arrays of an npz file, which unpack to no more than `most` bytes; an error says what is wrong with the file."""
    try:
        packed = io.BytesIO(read_regular(path, most))
        with zipfile.ZipFile(packed) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > most:
            raise ValueError(f"it unpacks to {size:,} bytes, and no more than {most:,} are read")
        with np.load(packed, allow_pickle=False) as data:
            return [np.asarray(data[name]) for name in names]
    except _UNREADABLE as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from None


_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    MemoryError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and zipfile raise for files that are no archives of arrays, or crafted ones."""
