"""Checkpoints: folders of plain tensors that are whole or not there, and that run nothing when they are read."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sasr import __version__
from sasr.envs.population import PopulationError
from sasr.files import IrregularFileError, open_regular, read_regular

FORMAT = 1
"""Raised when an older sasr could not read what this one writes."""
MANIFEST = "manifest.json"

_WHOLE = re.compile(r"\d{6,}")  # names of checkpoints: serial numbers
_LEFT = re.compile(r"\d{6,}\.(partial|broken|old)")  # half written, found damaged, half removed
_FILE = re.compile(r"[a-z][a-z_]*\.safetensors")  # nothing that could lead out of the folder
_MANIFEST_BYTES = 2**26
PIECE = 2**26  # bytes in memory at a time: a replay of some GB is never copied whole
_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}

Parts = Mapping[str, Mapping[str, Tensor]]
Problem = Callable[[Path, str], None]


class NewerFormatError(ValueError):
    """A checkpoint that only a newer sasr can read."""


class DamagedError(ValueError):
    """A checkpoint that is not what was written; the message says in which way."""


# ---------------------------------------------------------------------- write


def write(folder: Path, parts: Parts, facts: Mapping[str, Any], *, keep: int = 2) -> Path:
    """Write a checkpoint into `folder` and let older ones go; the path of the new one.

    It is written beside, brought to the disk and renamed, so whatever happens there is the new checkpoint or the one
    before. An OSError, such as a full disk, comes after what was written of it is removed.

    Args:
        folder: Where the checkpoints of one run are.
        parts: Tensors by part and name; a part becomes a file.
        facts: Plain data for the manifest.
        keep: How many checkpoints stay.
    """
    for name in parts:
        if not _FILE.fullmatch(f"{name}.safetensors"):
            raise ValueError(f"part {name!r} can't be a file; take lower-case letters and underscores")
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    serials = [int(path.name) for path in _serials(folder)]
    path = folder / f"{max(serials, default=0) + 1:06d}"
    partial = path.with_suffix(".partial")
    try:
        partial.mkdir()
        files = {
            f"{name}.safetensors": _write_part(partial / f"{name}.safetensors", part) for name, part in parts.items()
        }
        _write_manifest(partial / MANIFEST, {"sasr": __version__, "files": files, "facts": dict(facts)})
        _to_disk(partial)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _to_disk(folder)
    _to_disk(folder.parent)
    for old in _serials(folder)[keep:]:
        _remove(old)
    return path


def retire(path: Path) -> None:
    """Take a damaged checkpoint out of the row, where it would count as one to keep; the next write removes it."""
    path.rename(path.with_suffix(".broken"))


def _write_part(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """A safetensors file, piece by piece; its size and checksum."""
    # Not by the library's writer, which makes a copy of everything in memory first.
    header: dict[str, Any] = {}
    end = 0
    # Larger items first, so that every tensor starts where its dtype may: the order that the library writes, too.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    for name, tensor in ordered:
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"{name} is {tensor.dtype}, which a checkpoint can't hold; convert it first")
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    size, check = 0, 0
    with create_file(path) as file:
        contents = chain.from_iterable(pieces(tensor.detach()) for _, tensor in ordered)
        for piece in chain((memoryview(len(words).to_bytes(8, "little") + words),), contents):
            file.write(piece)
            size, check = size + len(piece), zlib.crc32(piece, check)
        _flush(file)
    return {"bytes": size, "crc32": check}


def pieces(tensor: Tensor) -> Iterator[memoryview]:
    """The tensor's bytes in order, from whatever device and memory layout, never many at a time."""
    if tensor.numel() == 0:
        return
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes > PIECE:
        rows = PIECE * len(tensor) // nbytes
        for part in torch.split(tensor, rows) if rows else tensor.unbind():
            yield from pieces(part)
        return
    yield tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _write_manifest(path: Path, contents: Mapping[str, Any]) -> None:
    contents = json.loads(json.dumps({"format": FORMAT, **contents}))  # tuples to lists, as they will be read
    with create_file(path) as file:
        file.write(json.dumps({**contents, "crc32": _check_of(contents)}, indent=2).encode())
        _flush(file)


def _check_of(contents: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(contents, sort_keys=True).encode())


def create_file(path: Path) -> IO[bytes]:
    """A new file to write to; one that is there already is an error."""
    return path.open("xb")


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _to_disk(folder: Path) -> None:
    """Make the names in a folder last, as fsync does for the contents of a file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _serials(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if _WHOLE.fullmatch(path.name)]
    return sorted(paths, key=lambda path: int(path.name), reverse=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed had half written, or half removed."""
    for path in folder.iterdir():
        if _LEFT.fullmatch(path.name):
            _delete(path)


def _remove(path: Path) -> None:
    # Renamed first: removed halfway, it would look like a checkpoint that is damaged. Old ones that stay do no harm.
    with suppress(OSError):
        _delete(path.rename(path.with_suffix(".old")))


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):  # rmtree would wait for who writes to a pipe
        path.unlink()


# ----------------------------------------------------------------------- read


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    path: Path
    facts: dict[str, Any]
    """Plain data from the manifest."""
    parts: frozenset[str]

    def read(self, part: str) -> dict[str, Tensor]:
        """The tensors of a part, on the CPU."""
        if part not in self.parts:
            raise KeyError(f"{self.path} has no part {part!r}; it has {', '.join(sorted(self.parts))}")
        with safe_open(self.path / f"{part}.safetensors", "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)


def newest(
    folder: Path, on_problem: Problem | None = None, *, use: Callable[[Checkpoint], object] | None = None
) -> Checkpoint | None:
    """The newest checkpoint in `folder` that is whole and can be used; None if there is none.

    One that a newer sasr wrote raises, because going on from an older one would lose what it holds.

    Args:
        folder: Where the checkpoints of one run are.
        on_problem: Called with the path and the reason of each newer one that is damaged, half written or of no use.
        use: Takes what it needs from a checkpoint; where it raises, the one before is tried.
    """
    if folder.is_symlink():
        raise IrregularFileError(folder)
    report = on_problem or (lambda path, reason: None)
    for path in sorted(folder.glob("*.partial")):
        if _LEFT.fullmatch(path.name):
            report(path, "half written when the run ended")
    for path in _serials(folder):
        try:
            checkpoint = verified(path)
        except DamagedError as error:
            report(path, str(error))
            continue
        try:
            if use is not None:
                use(checkpoint)
        except (torch.OutOfMemoryError, PopulationError):  # no fault of the checkpoint's
            raise
        except (DamagedError, OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
            # One that was crafted can match every checksum and hold what makes no sense.
            report(path, str(error.args[0] if error.args else type(error).__name__))
            continue
        return checkpoint
    return None


def steps_of(checkpoint: Checkpoint) -> int:
    """Environment steps of each seed at a checkpoint; raises `DamagedError` for facts that can't be a run's."""
    steps: Any = checkpoint.facts.get("steps")
    config = checkpoint.facts.get("config")
    if not isinstance(config, dict) or not isinstance(checkpoint.facts.get("recorder"), dict):
        raise DamagedError(f"{MANIFEST} lacks the settings of the run, or what was recorded of it")
    limits: list[Any] = [config.get(name) for name in ("steps", "environments")]
    whole = all(type(number) is int for number in (steps, *limits))
    if not whole or not 0 <= steps <= sum(limits):
        raise DamagedError(f"{MANIFEST} says steps={steps!r}, which this run can't have taken")
    return int(steps)


def verified(path: Path) -> Checkpoint:
    """The checkpoint at `path`, after a look at every byte of it; raises `DamagedError` or `NewerFormatError`."""
    if path.is_symlink():
        raise DamagedError("it is a link to another place")
    contents = _read_manifest(path / MANIFEST)
    files = contents["files"]
    for name, expected in files.items():
        if not _FILE.fullmatch(name):
            raise DamagedError(f"{MANIFEST} names {name!r}, which is no file of a checkpoint")
        _verify_file(path / name, expected)
    return Checkpoint(path, contents["facts"], frozenset(name.removesuffix(".safetensors") for name in files))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        contents: dict[str, Any] = json.loads(read_regular(path, _MANIFEST_BYTES))
        check = _check_of({name: value for name, value in contents.items() if name != "crc32"})
    except FileNotFoundError:
        raise DamagedError(f"{MANIFEST} is missing") from None
    except AttributeError:
        raise DamagedError(f"{MANIFEST} is no manifest") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{MANIFEST} can't be read: {error}") from None
    # Every format has this checksum, so that a damaged number is not taken for a newer one.
    if contents.pop("crc32", None) != check:
        raise DamagedError(f"{MANIFEST} does not match its checksum")
    version = contents.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormatError(
            f"{path.parent} was written by sasr {contents.get('sasr')} in format {version}, but sasr {__version__} "
            f"reads formats up to {FORMAT}; install the newer sasr to go on with this run"
        )
    if version != FORMAT or not isinstance(contents.get("files"), dict) or not isinstance(contents.get("facts"), dict):
        raise DamagedError(f"{MANIFEST} is no manifest of format {FORMAT}")
    return contents


def _verify_file(path: Path, expected: Any) -> None:
    try:
        wanted = expected["bytes"]
        if type(wanted) is not int or wanted < 0:
            raise DamagedError(f"{MANIFEST} says that {path.name} has {wanted!r} bytes")
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != wanted:
                raise DamagedError(f"{path.name} has {size:,} bytes, {wanted:,} were written")
            check, left = 0, wanted
            while piece := file.read(min(PIECE, left)):
                check, left = zlib.crc32(piece, check), left - len(piece)
        if check != expected["crc32"]:
            raise DamagedError(f"{path.name} does not match its checksum")
        with safe_open(path, "pt"):  # refuses a header that does not cover the file exactly
            pass
    except FileNotFoundError:
        raise DamagedError(f"{path.name} is missing") from None
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise DamagedError(f"{path.name} can't be read: {error}") from None
