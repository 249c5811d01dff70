"""What `sasr doctor` says of the three presets on some tasks, or of `auto` with other rules for the bandwidth.

python -m benchmarks.diagnosis                                      writes benchmarks/results/diagnosis.json
python -m benchmarks.diagnosis --rules dimension neighbours         writes benchmarks/results/diagnosis-rules.json
"""

from __future__ import annotations

from dataclasses import asdict

import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.machine import save
from sasr import SASR, diagnose
from sasr.experience.random_rollout import random_rollout
from sasr.shaping.presets import PRESETS, preset_config
from sasr.tasks import make

TASKS = ("MountainCarContinuous-v0", "Walker2d-v5", "AntStand", "RobotPush", "Ant-v5", "HumanKeep")


def main(tasks: tuple[str, ...] = TASKS, steps: int = 6000, rules: tuple[str, ...] = ()) -> None:
    configs = {rule: preset_config("auto", bandwidth=rule) for rule in rules} or PRESETS
    console, rows = Console(), []
    columns = ("task", "k", "rule" if rules else "preset", "h", "no neighbour", "neighbours", "rank correlation")
    table = Table(*columns, "signal to noise", "verdict", title=f"{steps:,} steps of a random policy")
    for task in tasks:
        states = random_rollout(make(task), steps).states
        for name, config in configs.items():
            result = diagnose(states, SASR(config=config))
            rows.append({"task": task, "preset": name, "verdict": result.verdict, **asdict(result)})
            table.add_row(
                task, str(result.features), name, f"{result.bandwidth:.3g}", f"{result.lonely:.0%}",
                f"{result.neighbours:,.0f}", f"{result.rank_correlation:.2f}", f"{result.signal_to_noise:.2g}",
                result.verdict,
            )  # fmt: skip
    console.print(table)
    console.print(f"wrote {save('diagnosis-rules' if rules else 'diagnosis', {'steps': steps, 'rows': rows})}")


if __name__ == "__main__":
    tyro.cli(main)
