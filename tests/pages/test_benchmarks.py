from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages.benchmarks import blocks_of

MACHINE = {"processor": "a processor", "cores": 2, "gpu": None, "versions": {"torch": "2.0"}, "commit": "abc1234"}


def stored(folder: Path, name: str, figures: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"machine": MACHINE, "figures": figures}))


def test_a_table_ends_with_the_machine_and_the_commit(tmp_path: Path) -> None:
    stored(tmp_path, "throughput-2-cores", {"median": {"SASR on SAC": 1234.6, "Stable-Baselines3 SAC, one seed": 76.0}})
    lines = blocks_of(tmp_path)["table: throughput-2-cores"]().text.splitlines()
    assert "| SASR on SAC | 1,235 |" in lines
    assert "| Stable-Baselines3's SAC | 76 |" in lines
    assert lines[-1] == "*2 cores of a processor, torch 2.0, commit abc1234.*"


def test_a_contender_that_was_run_again_counts_as_that_run(tmp_path: Path) -> None:
    def run(shaper: str, found: int, **more: str) -> dict[str, Any]:
        steps = [100] * found + [None] * (20 - found)
        return {"shaper": shaper, "first_goal": steps, "first_crossing": [1] * 20, "goals": [found] * 20, **more}

    stored(tmp_path, "discovery-held-out", {"runs": [run("none", 1), run("rnd", 14), run("sasr", 11)]})
    stored(tmp_path, "discovery-held-out-cpu", {"runs": [run("sasr", 7, commit="def5678")]})
    rows = blocks_of(tmp_path)["table: discovery"]().text.splitlines()[2:]
    # By Fisher's exact test; the order is that of how many seeds got there.
    assert rows == [
        "| `rnd` | 20 of 20 | 14 of 20 | 3.9e-05 | 100 | 14.0 | H200, abc1234 |",
        "| `sasr` | 20 of 20 | 7 of 20 | 0.044 | 100 | 7.0 | CPU, def5678 |",
        "| `none` | 20 of 20 | 1 of 20 |  | 100 | 1.0 | H200, abc1234 |",
    ]


def test_ways_to_count_on_images_stand_side_by_side(tmp_path: Path) -> None:
    for game, places in (("Freeway", 0.914), ("Frogger", 0.803)):
        row = {"game": game, "policy": "random", "successes": 0, "failures": 5000}
        stored(
            tmp_path, f"image_evidence-{game}", {"rows": [row | {"pixels": 0.1, "coin flips": 0.2, "places": places}]}
        )
    assert blocks_of(tmp_path)["table: image evidence"]().text.splitlines()[2:4] == [
        "| Freeway | random | 0, 5,000 | 0.10 | 0.20 | 0.91 |",
        "| Frogger | random | 0, 5,000 | 0.10 | 0.20 | 0.80 |",
    ]


def test_attacks_are_added_up_over_agents_and_pairs(tmp_path: Path) -> None:
    def count(times: int, equal: int, **more: int) -> dict[str, int]:
        return {"kills": times, "pairs": times, "runs": 2, "equal": equal, "partial_files_left": 0, **more}

    nothing = {"processes_left": 0, "segments_left": 0}
    stored(tmp_path, "reliability-kills-2-cores", {"cases": {"TD3": count(30, 2), "PPO": count(20, 1)}, **nothing})
    crashes = {"crashes": 100, "equal": 99, "partial_files_left": 1, "processes_left": 2, "segments_left": 3}
    stored(tmp_path, "reliability-crash_points-2-cores", crashes)
    pairs = {"SIGTERM, SIGTERM": count(5, 5), "SIGINT, SIGTERM": count(6, 5)}
    stored(tmp_path, "reliability-signals-2-cores", {"pairs": pairs, **nothing})
    rows = blocks_of(tmp_path)["table: attacks"]().text.splitlines()[2:5]
    assert rows == [
        "| SIGKILL at random moments: TD3 30, PPO 20 | 50 | 3 of 4 | 0 | 0 | 0 | abc1234 |",
        "| SIGKILL at an event of the file system | 100 | 99 of 100 | 1 | 2 | 3 | abc1234 |",
        "| two signals while a checkpoint is written | 11 | 10 of 11 | 0 | 0 | 0 | abc1234 |",
    ]
