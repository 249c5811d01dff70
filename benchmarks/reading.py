"""How far a reader has to go: files, functions and lines that one learning step of `sasr train MountainCar` crosses.

python -m benchmarks.reading
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

import sasr
from sasr.agents import SacConfig
from sasr.training import TrainConfig, Trainer

SOURCE = Path(sasr.__file__).parent
METHOD = (
    "experience/segments.py",
    "evidence/counts.py",
    "evidence/evidence.py",
    "shaping/beta.py",
    "shaping/sasr.py",
    "agents/sac.py",
    "training/off_policy.py",
    "training/loop.py",
)
"""The files that explain the method, in reading order."""


def one_step() -> set[CodeType]:
    """The functions of this package that run in two turns of the loop: in one of them the actor learns too."""
    agent = SacConfig(hidden=(16, 16), burn_in=300)
    config = TrainConfig(task="MountainCar", steps=400, agent="sac", agent_config=agent, device="cpu", eval_every=0)
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            seen.add(frame.f_code)

    with Trainer(config) as trainer:
        trainer.loop.run(350)
        sys.setprofile(note)
        trainer.loop.run(2)
        sys.setprofile(None)
    return seen


def lines_of(path: Path) -> int:
    """Lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


def main() -> None:
    """Trace, and print what was crossed."""
    functions = one_step()
    places = Counter(Path(code.co_filename).relative_to(SOURCE) for code in functions)
    table = Table("file", "functions", "lines", title="Crossed by a learning step")
    for place, count in places.most_common():
        table.add_row(str(place), str(count), str(lines_of(SOURCE / place)))
    console = Console()
    console.print(table)
    console.print(f"{len(places)} files, {len(functions)} functions")
    there = [name for name in METHOD if (SOURCE / name).exists()]
    total = sum(lines_of(SOURCE / name) for name in there)
    inside = sum(places[Path(name)] for name in there)
    console.print(f"the {len(there)} files of the method: {total} lines, {inside} of these functions")


if __name__ == "__main__":
    main()
