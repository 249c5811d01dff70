"""Whether a change of the code changed any number: digests of short runs of every agent and shaper on a CPU.

python -m benchmarks.same_numbers FILE              writes the digests; where the file exists, compares with it
python -m benchmarks.same_numbers FILE sasr td3     only some of the runs
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

import sasr
from sasr.agents import PpoConfig, SacConfig, SacDiscreteConfig, Td3Config
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import SHAPERS

SMALL: dict[str, Any] = {"hidden": (16, 16), "burn_in": 300, "batch_size": 32}
SAC, PAPER = SacConfig(**SMALL), SacConfig.paper(**SMALL)
PPO = PpoConfig(hidden=(16, 16), rollout=128, epochs=2)
DISCRETE = SacDiscreteConfig(**SMALL)
# A push of MountainCar costs up to 0.001: the gentle ones count as successes here, so that there is evidence to count.
OFTEN: dict[str, Any] = {"success_rule": "segments", "segment_steps": 20, "reward_above": -0.0003}
COUNTING = {
    "linear": preset_config(**OFTEN),
    "squared": preset_config(**OFTEN, estimator="squared", state_action=True),
    "exact": preset_config("paper", **OFTEN, estimator="exact", scaling="density"),
    "flags": preset_config(**OFTEN, storage="flags", retention=0.5),
    "authors": preset_config("authors", **OFTEN | {"success_rule": "authors", "burn_in": 10, "sample": "ratio"}),
}
RUNS: dict[str, dict[str, Any]] = {
    "sac": {"agent": SAC, "shaper": "none"},
    "td3": {"agent": Td3Config(**SMALL)},
    "noisy": {"agent": SacConfig(**SMALL, exploration="noisy")},
    "sac_discrete": {"agent": DISCRETE, "task": "CartPole-v1"},
    "ppo": {"agent": PPO},
    "ppo, rnd": {"agent": PPO, "shaper": "rnd"},
    "sasr-paper": {"agent": PAPER, "preset": "paper"},
    "sasr-authors": {"agent": PAPER, "preset": "authors"},
    "two environments": {"agent": SAC, "environments": 2},
    "AntStand": {"agent": SAC, "task": "AntStand", "steps": 400},
    **{f"sasr, {name}": {"agent": SAC, "shaper_config": config} for name, config in COUNTING.items()},
    **{shaper: {"agent": SAC, "shaper": shaper} for shaper in SHAPERS},
}


def digest(settings: dict[str, Any]) -> str:
    """A digest of every number that a run of two seeds logs, but for what a clock said."""
    options: dict[str, Any] = {
        "task": "MountainCar",
        "steps": 700,
        "seeds": 2,
        "eval_every": 0,
        "log_every": 50,
    } | settings
    with tempfile.TemporaryDirectory() as folder:
        run = sasr.train(**options, out=f"{folder}/run", device="cpu", workers=0, progress=False, events=False)
        numbers = [number for event in run.metrics() if event["kind"] != "clock" for number in _numbers(event)]
    return f"{len(numbers)} {hashlib.sha256(repr(numbers).encode()).hexdigest()[:16]}"


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _numbers(entry)


def main() -> None:
    """Train, and write or compare."""
    file, names = Path(sys.argv[1]), sys.argv[2:] or list(RUNS)
    torch.set_num_threads(1)
    digests = {name: digest(RUNS[name]) for name in track(names, transient=True)}
    if not file.exists():
        file.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    differ = [name for name in names if digests[name] != before.get(name)]
    print(f"{len(names) - len(differ)} of {len(names)} runs as before; not so: {', '.join(differ) or 'none'}")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
