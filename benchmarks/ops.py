"""How many small operations one turn of learning launches, for each method: what bounds many runs on one GPU.

python -m benchmarks.ops                        compiled on a CPU: products, what is compiled, and what is left outside
python -m benchmarks.ops --device cuda          on a GPU: its kernels and copies, those inside graphs included
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import rich
import torch
import tyro
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from sasr.agents import SacConfig
from sasr.evidence.on_device import LinearCountsOnDevice
from sasr.shaping.registry import NONE, SHAPERS
from sasr.training import TrainConfig, Trainer

FREE = """alias as_strided contiguous detach detach_ empty empty_like empty_strided expand expand_as flatten item
    is_nonzero lift_fresh new_empty permute reshape resolve_conj resolve_neg result_type select slice split squeeze t to
    transpose type_as unbind unsqueeze view view_as _reshape_alias _unsafe_view""".split()  # noqa: SIM905
"""What a profiler lists although no kernel runs."""


def launched(event: Any) -> bool:
    """Whether an event of the profiler is an operation of its own."""
    if event.device_type.name == "CUDA":
        return not getattr(event, "is_user_annotation", False)
    if not event.name.startswith("aten::"):
        return "cpp_fused" in event.name
    return event.name.removeprefix("aten::") not in FREE and not any(map(launched, event.cpu_children))


def count(method: str, device: str) -> list[int]:
    """Operations of two turns in a row: the critics learn in both, the actor in one of them."""
    config = TrainConfig(
        task="MountainCar",
        shaper=method,
        seeds=(0,) if device == "cpu" else (0, 1, 2, 3, 4),
        steps=10**9,
        device=device,
        accelerate="compile" if device == "cpu" else "graph",
        agent_config=SacConfig(burn_in=300),
        agent="sac",
    )
    counts = []
    with Trainer(config) as trainer:
        trainer.loop.run(320)  # everything is compiled and captured by now
        for _ in range(2):
            with profile(activities=[getattr(ProfilerActivity, device.upper())]) as trace:
                trainer.loop.turn()
                if device == "cuda":
                    torch.cuda.synchronize()
            counts.append(sum(map(launched, trace.events())))
    return sorted(counts)


def main(methods: tuple[str, ...] = (NONE, *SHAPERS), device: str = "cpu") -> None:
    """Count, and print a table.

    Args:
        methods: Shapers on SAC; none is plain SAC.
        device: cpu, with one seed, whose numbers are drawn at once as all seeds' are on a GPU; or cuda, with five.
    """
    torch._inductor.config.cpp.enable_kernel_profile = True  # compiled parts of a CPU show too
    table = Table("shaper", "critics alone", "with the actor")
    with mock.patch("sasr.shaping.assembly.LinearCounts", LinearCountsOnDevice):  # as on a GPU
        for method in methods:
            table.add_row(method, *map(str, count(method, device)))
    rich.print(table)


if __name__ == "__main__":
    tyro.cli(main)
