"""Files that are there whole or not at all, and places that can be written to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: str | bytes) -> None:
    """Write beside, then rename: a reader never sees half a file, and a full disk leaves the old one as it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
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
    return sorted(folder.glob(".*.part"))


def check_writable(folder: Path, *, flag: str = "--out") -> None:
    """Make a folder and see that files can be put there; an error names the folder and the flag that names another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{folder} can't be written to ({error.strerror}); choose another place with {flag}") from None
