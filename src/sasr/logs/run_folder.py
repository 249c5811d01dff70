"""A run's folder and its config.json."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import shlex
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.envs.worker_pool import cores
from sasr.files import leftovers, read_regular, remove_leftovers, write_whole
from sasr.settings import TrainConfig
from sasr.training import checkpoint
from sasr.training.trainer import CHECKPOINTS, Recorder, Trainer

FORMAT = 1
"""The version of the format, increased when an older sasr would misread a new folder."""
CONFIG = "config.json"
CONFIG_BYTES = 2**26
COPY = "config"
"""The name of config.json's copy in checkpoints."""
PLACE = Path("runs")


class RunFolder:
    """The folder of one run: config.json, metrics.jsonl, checkpoints and plots."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path = path
        self.facts = facts
        self.config = TrainConfig.from_json(facts["config"])
        self.observation_space: spaces.Space[Any] = space_from_json(facts["observation_space"])
        self.action_space: spaces.Space[Any] = space_from_json(facts["action_space"])

    @classmethod
    def create(
        cls,
        path: Path,
        config: TrainConfig,
        *,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device,
        extra_facts: Mapping[str, Any] | None = None,
    ) -> RunFolder:
        """Make the folder and write its config.json; an existing one is refused.

        `extra_facts` are added to it or replace a part: the name of the method, the command line of a grid.
        """
        check_free(path)
        facts = {
            "format": FORMAT,
            "versions": _versions(),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "commit": commit_here(),
            "command": command_line(),
            "machine": _machine(device),
            "observation_space": space_to_json(observation_space),
            "action_space": space_to_json(action_space),
            "config": config.to_json(),
            **(extra_facts or {}),
        }
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / CONFIG, _as_text(facts))
        return cls(path, facts)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The run in a folder; one from a newer version is refused."""
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"there is no run in {path}{_near(path)}")
        check_entries(path)
        facts = read_facts(path)
        try:
            return cls(path, facts)
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
            message = f"{path / CONFIG} is damaged or was changed by hand ({error})"
            raise ValueError(message) from None

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / CHECKPOINTS


def check_entries(path: Path) -> None:
    """Refuse a run folder with a link in it, which would be read from, or written to, elsewhere."""
    for entry in path.iterdir():
        mode = entry.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ValueError(
                f"{entry} is a link, a pipe or a device, but a run folder has files and folders only; "
                "remove it, or put there what it points to"
            )


class ConfigCopy(Recorder):
    """Saves a copy of config.json in every checkpoint, from which a damaged one is restored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, trainer: Trainer) -> None:
        """Read config.json, and remove temporary files of a killed process."""
        remove_leftovers(self.folder)
        self.facts = read_facts(self.folder)

    def save(self) -> dict[str, Any]:
        """The copy."""
        return self.facts


def read_facts(folder: Path) -> dict[str, Any]:
    """A run's config.json; a missing or damaged one is restored from the newest complete checkpoint."""
    file = folder / CONFIG
    try:
        facts = json.loads(read_regular(file, CONFIG_BYTES))
        damage = _damage(facts)
    except FileNotFoundError:
        damage = "is missing"
    except (ValueError, RecursionError):
        damage = "is cut off or was changed"
    if damage:
        facts = _restored(file, damage)
    if facts["format"] > FORMAT:
        by = facts.get("versions", {}).get("sasr", "unknown")
        raise ValueError(
            f"{folder} was written by a newer sasr ({by}, format {facts['format']}; this one reads up to {FORMAT}): "
            "upgrade sasr"
        )
    return dict(facts)


def _damage(facts: Any) -> str:
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
        return "is cut off or was changed"
    if facts["format"] > FORMAT:
        return ""  # a newer format may have other fields
    for name in ("config", "observation_space", "action_space"):
        if name not in facts:
            return f"has no {name!r}"
    return ""


def _restored(file: Path, damage: str) -> dict[str, Any]:
    folder = file.parent
    saved = checkpoint.newest(folder / CHECKPOINTS)
    facts: Any = None
    if saved is not None:
        facts = saved.facts.get("recorder", {}).get(COPY)
    if saved is None or _damage(facts):
        error_type = ValueError if file.exists() else FileNotFoundError
        raise error_type(
            f"{file} {damage}, and no complete checkpoint has a copy: {folder} is not a run, or an incomplete one; "
            "give a run folder, or train again in another one"
        )
    warnings.warn(f"{file} {damage}; restored from checkpoint {saved.path.name}", stacklevel=2)
    with suppress(OSError):  # a folder that can't be written to can still be read
        if file.exists():
            file.replace(file.with_name(f"{CONFIG}.damaged"))
        write_whole(file, _as_text(facts))
    return dict(facts)


def _as_text(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1) + "\n"


def check_free(path: Path) -> None:
    """Raise if `path` cannot be a new run's folder; an empty folder can."""
    if any((path / name).exists() for name in (CONFIG, CHECKPOINTS)):
        raise FileExistsError(
            f"{path} has a run already; continue it with `sasr resume {path}`, or choose another folder with --out"
        )
    if path.exists() and (not path.is_dir() or set(path.iterdir()) - set(leftovers(path))):
        raise FileExistsError(
            f"{path} exists and is not a run, or an incomplete one; choose another folder with --out, or move this one "
            "away"
        )


def default_place(config: TrainConfig) -> Path:
    """`runs/TASK-shaper-YYYYmmdd-HHMMSS`, with a counter where that is taken."""
    task = re.sub(r"[^\w.-]+", "-", config.task.removeprefix("SASR/")).strip("-")
    name = f"{task}-{config.shaper}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([name], (f"{name}-{counter}" for counter in itertools.count(2)))
    return next(PLACE / name for name in names if not (PLACE / name).exists())


def _near(path: Path) -> str:
    """A hint at the newest run in the same folder."""
    runs = sorted(file.parent for file in path.parent.glob(f"*/{CONFIG}"))
    if not runs:
        return ""
    newest = max(runs, key=lambda run: run.stat().st_mtime)
    return f"; the newest one in {path.parent} is {newest}"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("sasr", "torch", "gymnasium", "numpy", "mujoco", "ale-py"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            if package == "sasr":  # run from a source tree
                from sasr import __version__

                versions[package] = __version__
    return versions


def command_line() -> str:
    """The command that started this run; a script is given without its folder, since runs are shared."""
    name = Path(sys.argv[0]).name
    program = ["python", name]
    if name in ("sasr", "__main__.py"):
        program = ["sasr"]
    return shlex.join([*program, *sys.argv[1:]])


def commit_here() -> str | None:
    """The commit of the code in the current folder, with a + if it was changed since.

    The environment variable SASR_COMMIT replaces it, for code that was copied without its history.
    """
    if commit := os.environ.get("SASR_COMMIT"):
        return commit
    try:
        commit = _git("rev-parse", "HEAD")
        is_changed = _git("status", "--porcelain", "--untracked-files=no") != ""
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+" if is_changed else commit


def _git(*words: str) -> str:
    result = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()


def _machine(device: torch.device) -> dict[str, Any]:
    """The hardware; no names of hosts or users, since runs are shared."""
    device_name = str(device)
    if device.type == "cuda":
        device_name = torch.cuda.get_device_name(device)
    return {"system": platform.system(), "processor": processor(), "cores": cores(), "device": device_name}


def processor() -> str:
    """The name of the machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.machine()


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as plain data, for `space_from_json`.

    >>> space_to_json(spaces.Box(-1.0, np.inf, (3,)))
    {'kind': 'Box', 'shape': [3], 'dtype': 'float32', 'low': -1.0, 'high': 'inf'}
    """
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"kind": "Box", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        n = space.n if isinstance(space.n, int) else list(space.shape)
        return {"kind": "MultiBinary", "n": n}
    raise TypeError(f"the space {space} can't be stored; use Box, Discrete, MultiDiscrete or MultiBinary")


def space_from_json(data: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that plain data describes.

    >>> space_from_json({"kind": "Discrete", "n": 4, "start": 0})
    Discrete(4)
    """
    kind = data.get("kind")
    if kind == "Box":
        shape = tuple(data["shape"])
        dtype = np.dtype(data["dtype"])
        low, high = (_bound_from_json(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(data["nvec"], start=data["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    raise ValueError(f"space {data!r} is unknown to this version of sasr; another one wrote it")


def _bound_to_json(bound: NDArray[Any]) -> Any:
    """A list of numbers, or one number if all are equal; infinities are text, since JSON lacks them."""
    flat = [value if np.isfinite(value) else str(value) for value in bound.ravel().tolist()]
    if len(set(flat)) == 1:
        return flat[0]
    return flat


def _bound_from_json(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    flat = np.array(value, np.float64).astype(dtype)
    if flat.size == 1:
        return np.broadcast_to(flat, shape)
    return flat.reshape(shape)
