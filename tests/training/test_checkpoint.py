"""Checkpoints are whole or not there: cut, flipped, lost, crafted, or written to a disk that is full."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sasr.training import Trainer, checkpoint
from sasr.training.checkpoint import MANIFEST, NewerFormatError, newest, write
from sasr.training.trainer import CHECKPOINTS

from .runs import Ended, Everything, checkpoint_in, config_of, run, shaped

DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.uint64, torch.float16, torch.float32, torch.float64]


def parts_of(value: float = 1.0) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "agent": {"weight": torch.full((3, 2), value), "updates": torch.tensor(7)},
        "replay": {"obs": torch.arange(24.0).reshape(2, 3, 4)[:, :2]},  # a view with gaps
        "unobserved": {},
    }


def folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rewrite_manifest(path: Path, **changes: Any) -> None:
    """As a forger would who knows the checksum's rule."""
    contents = json.loads((path / MANIFEST).read_text())
    del contents["crc32"]
    contents |= changes
    contents["crc32"] = zlib.crc32(json.dumps(contents, sort_keys=True).encode())
    (path / MANIFEST).write_text(json.dumps(contents))


# --------------------------------------------------------------- there and back


def test_every_kind_of_tensor_comes_back(tmp_path: Path) -> None:
    base = torch.randint(0, 100, (4, 6))
    tensors = {f"{dtype} {shape}": torch.zeros(shape, dtype=dtype) for dtype in DTYPES for shape in ((), (0, 3), (5,))}
    tensors |= {f"{dtype} strided": base.to(dtype).T[::2] for dtype in DTYPES}
    tensors |= {"one": base, "the same memory": base[:2]}
    found = write(tmp_path, {"agent": tensors}, {})
    for read in (checkpoint.verified(found).read("agent"), load_file(found / "agent.safetensors")):
        assert read.keys() == tensors.keys()
        for name, own in tensors.items():
            assert read[name].dtype == own.dtype
            assert read[name].shape == own.shape
            assert torch.equal(read[name], own), name


def test_large_tensors_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PIECE", 100)
    tensors = {str(shape): torch.randn(shape) for shape in ((3, 7, 11), (40, 1), (1, 200), (77,))}
    tensors["turned"] = torch.randn(30, 40).T
    longest = max(len(piece) for own in tensors.values() for piece in checkpoint.pieces(own))
    assert longest <= 100
    read = checkpoint.verified(write(tmp_path, {"replay": tensors}, {})).read("replay")
    assert all(torch.equal(read[name], own) for name, own in tensors.items())


def test_facts_and_parts_come_back(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    assert newest(tmp_path / "missing") is None
    write(tmp_path / "deep" / "er", parts_of(), {"steps": 12, "recorder": {"bytes": 3}})
    found = checkpoint_in(tmp_path / "deep" / "er")
    assert found.facts == {"steps": 12, "recorder": {"bytes": 3}}
    assert found.parts == {"agent", "replay", "unobserved"}
    assert found.read("unobserved") == {}
    with pytest.raises(KeyError, match="has no part 'shaper'; it has agent, replay"):
        found.read("shaper")


def test_the_last_two_stay(tmp_path: Path) -> None:
    for value in range(4):
        write(tmp_path, parts_of(value), {"steps": value})
    assert folders(tmp_path) == ["000003", "000004"]
    assert checkpoint_in(tmp_path).facts["steps"] == 3


def test_everything_is_brought_to_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced.append(path.name if path.is_file() else f"{path.name}/")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / "checkpoints", parts_of(), {})
    files = ["agent.safetensors", "replay.safetensors", "unobserved.safetensors", MANIFEST]
    assert synced == [*files, "000001.partial/", "checkpoints/", f"{tmp_path.name}/"]


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"../agent": {}}, "part '../agent' can't be a file"),
        ({"agent": {"z": torch.zeros(2, dtype=torch.complex64)}}, "z is torch.complex64"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, parts: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        write(tmp_path, parts, {})
    assert folders(tmp_path) == []


# ----------------------------------------------------------------------- damage


def flip(path: Path) -> None:
    words = bytearray(path.read_bytes())
    words[len(words) // 2] ^= 0x10
    path.write_bytes(words)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """A function that makes something else where a file was."""

    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "missing": Path.unlink,
    "a folder": replace_by(Path.mkdir),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"weight": 1})),
    "a link": lambda path: path.symlink_to(path.rename(path.with_suffix(".elsewhere"))),
    "a pipe": replace_by(os.mkfifo),
    "a device": replace_by(lambda path: path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["agent.safetensors", "replay.safetensors", "unobserved.safetensors", MANIFEST])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path: Path, name: str, damage: Any) -> None:
    write(tmp_path, parts_of(1.0), {"steps": 1})
    broken = write(tmp_path, parts_of(2.0), {"steps": 2})
    DAMAGE[damage](broken / name)
    problems: list[tuple[Path, str]] = []
    found = newest(tmp_path, lambda *problem: problems.append(problem))
    assert found is not None
    if (name, damage) == (MANIFEST, "longer"):  # a blank after JSON changes nothing
        assert found.facts["steps"] == 2
        return
    assert found.facts["steps"] == 1
    assert found.read("agent")["weight"].eq(1.0).all()
    ((path, reason),) = problems
    assert path == broken
    assert name in reason


def test_any_flipped_bit_of_a_manifest_is_found(tmp_path: Path) -> None:
    path = write(tmp_path, parts_of(), {"steps": 123, "names": ["a", "b"]}) / MANIFEST
    original = path.read_bytes()
    expected = checkpoint.verified(path.parent)
    for position in range(len(original)):
        for bit in range(8):
            words = bytearray(original)
            words[position] ^= 1 << bit
            path.write_bytes(words)
            try:
                assert checkpoint.verified(path.parent) == expected  # another kind of blank is no damage
            except checkpoint.DamagedError:
                continue


def test_a_half_written_one_is_named_and_goes_with_the_next_write(tmp_path: Path) -> None:
    write(tmp_path, parts_of(), {"steps": 1})
    for name in ("000002.partial", "000001.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.safetensors").write_bytes(b"hal")
    (tmp_path / "notes").mkdir()  # not ours
    problems: list[str] = []
    found = newest(tmp_path, lambda path, reason: problems.append(f"{path.name} {reason}"))
    assert found is not None
    assert found.facts["steps"] == 1
    assert problems == ["000002.partial half written when the run ended"]
    write(tmp_path, parts_of(), {"steps": 2})
    assert folders(tmp_path) == ["000001", "000002", "notes"]


# ---------------------------------------------------------------------- forgery


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOMB"],)


@pytest.mark.parametrize("words", ["pickle", "torch", "huge header", "json"])
def test_a_crafted_file_runs_nothing_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    as_torch = io.BytesIO()
    torch.save(Bomb(), as_torch)
    header = b'{"weight": {"dtype": "F32", "shape": [-1, 4], "data_offsets": [0, 16]}}'
    crafted = {
        "pickle": pickle.dumps(Bomb()),
        "torch": as_torch.getvalue(),
        "huge header": (2**62).to_bytes(8, "little") + b"{}",
        "json": len(header).to_bytes(8, "little") + header + bytes(16),
    }[words]
    pickle.loads(pickle.dumps(Bomb()))  # it would work
    (tmp_path / "exploded").rmdir()
    path = write(tmp_path / "run", parts_of(), {"steps": 1})
    (path / "agent.safetensors").write_bytes(crafted)
    told = json.loads((path / MANIFEST).read_text())["files"]
    told["agent.safetensors"] = {"bytes": len(crafted), "crc32": zlib.crc32(crafted)}
    rewrite_manifest(path, files=told)
    problems: list[str] = []
    assert newest(tmp_path / "run", lambda _, reason: problems.append(reason)) is None
    assert "agent.safetensors can't be read" in problems[0]
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "agent.pt", "", ".."])
def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    save_file({"secret": torch.ones(1)}, tmp_path / "secret.safetensors")
    path = write(tmp_path / "run", parts_of(), {})
    rewrite_manifest(path, files={name: {"bytes": 1, "crc32": 0}})
    problems: list[str] = []
    assert newest(tmp_path / "run", lambda _, reason: problems.append(reason)) is None
    assert "which is no file of a checkpoint" in problems[0]


@pytest.mark.parametrize(
    "changes",
    [{"files": []}, {"facts": 3}, {"format": "1"}, {"format": 0}, {"files": {"agent.safetensors": 5}}],
)
def test_a_manifest_of_the_wrong_kind_is_named(tmp_path: Path, changes: Any) -> None:
    rewrite_manifest(write(tmp_path, parts_of(), {}), **changes)
    problems: list[str] = []
    assert newest(tmp_path, lambda _, reason: problems.append(reason)) is None
    assert len(problems) == 1


@pytest.mark.parametrize("size", ["x", None, -1, True, 1e400, [3]])
def test_a_size_that_is_none_is_named_and_the_one_before_is_taken(tmp_path: Path, size: Any) -> None:
    write(tmp_path, parts_of(1.0), {"steps": 1})
    path = write(tmp_path, parts_of(2.0), {"steps": 2})
    files = json.loads((path / MANIFEST).read_text())["files"]
    rewrite_manifest(path, files=files | {"agent.safetensors": {"bytes": size, "crc32": 0}})
    problems: list[str] = []
    found = newest(tmp_path, lambda _, reason: problems.append(reason))
    assert found is not None
    assert found.facts["steps"] == 1
    assert "agent.safetensors has" in problems[0]


def test_a_checkpoint_that_is_a_link_is_named(tmp_path: Path) -> None:
    write(tmp_path / "theirs", parts_of(), {"steps": 2})
    write(tmp_path / "own", parts_of(), {"steps": 1})
    (tmp_path / "own" / "000002").symlink_to(tmp_path / "theirs" / "000001")
    problems: list[str] = []
    found = newest(tmp_path / "own", lambda _, reason: problems.append(reason))
    assert found is not None
    assert found.facts["steps"] == 1
    assert "link" in problems[0]
    (tmp_path / "linked").symlink_to("own")
    with pytest.raises(OSError, match="is a link"):
        newest(tmp_path / "linked")


def test_a_pipe_where_a_checkpoint_belongs_keeps_nobody_waiting(tmp_path: Path) -> None:
    write(tmp_path, parts_of(), {"steps": 1})
    for name in ("000002", "000003.partial", "000003.broken"):
        os.mkfifo(tmp_path / name)
    problems: list[str] = []
    found = newest(tmp_path, lambda path, reason: problems.append(path.name))
    assert found is not None
    assert found.facts["steps"] == 1
    assert problems == ["000003.partial", "000002"]
    checkpoint.retire(tmp_path / "000002")
    write(tmp_path, parts_of(), {"steps": 2}, keep=1)
    assert folders(tmp_path) == ["000002"]


def test_a_newer_format_is_refused_and_nothing_older_is_taken(tmp_path: Path) -> None:
    write(tmp_path, parts_of(), {})
    rewrite_manifest(write(tmp_path, parts_of(), {}), format=checkpoint.FORMAT + 1, sasr="9.0")
    with pytest.raises(NewerFormatError, match=r"000002 was written by sasr 9\.0 in format 2, but .* up to 1; install"):
        newest(tmp_path)


# -------------------------------------------------------------------- disk full


def spending(real: Any, left: list[int]) -> Any:
    """`real`, until there is nothing left; from then on the disk is full."""

    def call(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    return call


class FillingFile:
    def __init__(self, file: Any, left: list[int]) -> None:
        self.file, self.write = file, spending(file.write, left)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def fill_disk_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> list[int]:
    """Of opening, writing, syncing, making and renaming, only so many calls work."""
    left = [calls]
    opening = spending(checkpoint.create_file, left)
    monkeypatch.setattr(checkpoint, "create_file", lambda path: FillingFile(opening(path), left))
    monkeypatch.setattr(os, "fsync", spending(os.fsync, left))
    monkeypatch.setattr(Path, "rename", spending(Path.rename, left))
    monkeypatch.setattr(Path, "mkdir", spending(Path.mkdir, left))
    return left


def test_a_full_disk_leaves_the_checkpoints_as_they_were_at_whichever_call_it_comes(tmp_path: Path) -> None:
    failures = 0
    for calls in range(100):
        folder = tmp_path / str(calls)
        write(folder, parts_of(1.0), {"steps": 1})
        with pytest.MonkeyPatch.context() as patch:
            left = fill_disk_after(patch, calls)
            try:
                write(folder, parts_of(2.0), {"steps": 2})
            except OSError:
                failures += 1
        found = newest(folder, lambda path, reason: pytest.fail(f"{path} {reason}"))
        assert found is not None
        if folders(folder) == ["000001"]:
            assert found.facts["steps"] == 1
        else:  # the new one is in its place; only what makes it outlast a power cut failed
            assert folders(folder) == ["000001", "000002"]
            assert found.facts["steps"] == 2
        if left[0] >= 0:
            break
    assert failures > 15
    assert left[0] >= 0


def test_a_run_goes_on_when_its_disk_is_full(tmp_path: Path, whole: tuple[Everything, Ended]) -> None:
    config, expected = config_of(**shaped("auto")), whole[1]
    run(config, tmp_path, stop_at=60)
    with pytest.MonkeyPatch.context() as patch:
        recorder = Everything(stop_at=120)
        with Trainer(config, folder=tmp_path, recorder=recorder) as trainer:
            assert trainer.resume()
            fill_disk_after(patch, 5)
            assert not trainer.run()
    (notice,) = recorder.notices
    assert "No space left on device" in notice
    assert "the run goes on" in notice
    assert folders(tmp_path / CHECKPOINTS) == ["000001"]
    _, trainer = run(config, tmp_path)
    assert all(torch.equal(own, expected.state[name]) for name, own in trainer.state.items())


# ------------------------------------------------------------------------- runs


def test_a_run_with_a_damaged_checkpoint_says_so_and_goes_on_from_the_one_before(
    whole: tuple[Everything, Ended], stopped_twice: tuple[Path, list[Any]]
) -> None:
    config, expected, (folder, events) = config_of(**shaped("auto")), whole[1], stopped_twice
    flip(folder / CHECKPOINTS / "000002" / "shaper.safetensors")
    (folder / CHECKPOINTS / "000003.partial").mkdir()
    recorder, trainer = run(config, folder, events=events)
    half, damaged = recorder.notices
    assert "000003.partial can't be used: half written" in half
    assert "000002 can't be used: shaper.safetensors does not match its checksum" in damaged
    assert "going on from 000001, after 60 steps" in damaged
    assert recorder.events == whole[0].events
    assert all(torch.equal(own, expected.state[name]) for name, own in trainer.state.items())
    assert folders(folder / CHECKPOINTS) == ["000001", "000002"]  # the damaged one took no whole one's place


def forget_part(path: Path, name: str) -> None:
    files = json.loads((path / MANIFEST).read_text())["files"]
    rewrite_manifest(path, files={own: size for own, size in files.items() if own != f"{name}.safetensors"})


def change_part(path: Path, name: str, **tensors: torch.Tensor | None) -> None:
    """Other tensors in a part (None: one that is gone), with all sizes and checksums right."""
    file = path / f"{name}.safetensors"
    left = load_file(file) | tensors
    save_file({own: tensor for own, tensor in left.items() if tensor is not None}, file)
    words = file.read_bytes()
    files = json.loads((path / MANIFEST).read_text())["files"]
    rewrite_manifest(path, files=files | {file.name: {"bytes": len(words), "crc32": zlib.crc32(words)}})


def change_facts(path: Path, **facts: Any) -> None:
    rewrite_manifest(path, facts=json.loads((path / MANIFEST).read_text())["facts"] | facts)


LONG_AGO = -(10**15)
CRAFTED = {
    "steps long ago": lambda path: change_facts(path, steps=LONG_AGO),
    "steps ahead": lambda path: change_facts(path, steps=10**15),
    "steps in words": lambda path: change_facts(path, steps="many"),
    "no settings": lambda path: change_facts(path, config=None),
    "other settings": lambda path: change_facts(path, config={"steps": 180, "environments": 1, "task": "Other-v0"}),
    "no metrics": lambda path: change_facts(path, recorder=3),
    "no agent": lambda path: forget_part(path, "agent"),
    "no shaper": lambda path: forget_part(path, "shaper"),
    "no loop": lambda path: forget_part(path, "loop"),
    "no environments": lambda path: forget_part(path, "environments"),
    "another step in the loop": lambda path: change_part(path, "loop", steps=torch.tensor(LONG_AGO)),
    "a counter of no shape": lambda path: change_part(path, "loop", open_return=torch.zeros(7, 7)),
    "a weight less": lambda path: change_part(
        path, "agent", **{next(iter(load_file(path / "agent.safetensors"))): None}
    ),
    "a shape of its own": lambda path: change_part(path, "environments", **{"0.seed": torch.zeros(3)}),
    "a seed below 0": lambda path: change_part(path, "environments", **{"1.seed": torch.tensor(LONG_AGO)}),
    "an environment less": lambda path: change_part(path, "environments", **{"0.length": None}),
}


@pytest.mark.parametrize("crafted", CRAFTED)
def test_a_crafted_checkpoint_is_named_and_the_one_before_is_taken(
    stopped_twice: tuple[Path, list[Any]], crafted: Any
) -> None:
    config, (folder, events) = config_of(**shaped("auto")), stopped_twice
    CRAFTED[crafted](folder / CHECKPOINTS / "000002")
    recorder = Everything(events=events, stop_at=61)
    with Trainer(config, folder=folder, recorder=recorder) as trainer:
        assert trainer.resume()
        assert trainer.loop.steps == 60
        trainer.run()
    (notice,) = recorder.notices
    assert "000002 can't be used" in notice
    assert "going on from 000001, after 60 steps" in notice


def test_a_run_of_which_no_checkpoint_can_be_used_does_not_begin_anew(tmp_path: Path) -> None:
    config = config_of(**shaped("auto"))
    run(config, tmp_path, stop_at=60)
    forget_part(tmp_path / CHECKPOINTS / "000001", "loop")
    with (
        Trainer(config, folder=tmp_path) as trainer,
        pytest.raises(ValueError, match=r"no checkpoint .* can be used: 000001: .*loop"),
    ):
        trainer.resume()


def test_a_run_without_any_whole_checkpoint_says_so(tmp_path: Path) -> None:
    config = config_of(shaper="none")
    run(config, tmp_path, stop_at=40)
    (tmp_path / CHECKPOINTS / "000001" / MANIFEST).unlink()
    recorder = Everything(stop_at=1)
    with Trainer(config, folder=tmp_path, recorder=recorder) as trainer:
        assert not trainer.resume()
        trainer.run()
    assert "manifest.json is missing; there is no other one" in recorder.notices[0]


class Twice(Everything):
    """Sends this process one signal in the middle of a run and another one while the run is saved."""

    def __init__(self, first: signal.Signals, second: signal.Signals) -> None:
        super().__init__()
        self.first, self.second = first, second

    def turned(self, steps: int) -> None:
        if steps == 100:
            os.kill(os.getpid(), self.first)

    def save(self) -> dict[str, Any]:
        os.kill(os.getpid(), self.second)
        return super().save()


def unheeded(number: int, frame: object) -> None:
    raise AssertionError(f"signal {number} came through")


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)],
)
def test_a_second_signal_while_the_run_is_saved_loses_nothing(tmp_path: Path, first: Any, second: Any) -> None:
    before = signal.signal(second, unheeded)
    config = config_of(**shaped("auto"))
    recorder = Twice(first, second)
    try:
        with Trainer(config, folder=tmp_path, recorder=recorder) as trainer:
            assert not trainer.run()
    finally:
        signal.signal(second, before)
    assert folders(tmp_path / CHECKPOINTS) == ["000001"]
    assert checkpoint_in(tmp_path / CHECKPOINTS).facts["steps"] == 100


def test_a_second_ctrl_c_while_the_run_is_saved_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    config = config_of(**shaped("auto"))
    run(config, tmp_path, stop_at=60)
    with Trainer(config, folder=tmp_path, recorder=Twice(signal.SIGTERM, signal.SIGINT)) as trainer:
        assert trainer.resume()
        with pytest.raises(KeyboardInterrupt):
            trainer.run()
    assert folders(tmp_path / CHECKPOINTS) == ["000001"]
