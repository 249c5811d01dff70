"""What the counts cost, side by side in one run: kept sums against recomputing over the buffer, as released.

python -m benchmarks.estimators [--device cuda]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.machine import save
from sasr.evidence.counts import Counts, LinearCounts
from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import Gaussian
from sasr.evidence.on_device import LinearCountsOnDevice
from sasr.evidence.squared_counts import SquaredCounts


def recompute(features: RandomFeatures, stored: Tensor, batch: Tensor, *, squared: bool) -> Tensor:
    """The released code's way: map every stored state again, then sum over all of them. Our own lines."""
    product = features.of_member(0, batch[0]) @ features.of_member(0, stored).T
    return (product**2 if squared else product).sum(1)


def milliseconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median of `repeats` timings after a warm-up."""
    timings = []
    for _ in range(repeats + 2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        timings.append(1000.0 * (time.perf_counter() - began))
    return statistics.median(timings[2:])


def sums_bytes(counts: Counts) -> int:
    return sum(buffer.nbytes for name, buffer in counts.named_buffers() if "features" not in name)


@torch.no_grad()
def measure(mapping: RandomFeatures, query: Tensor, size: int) -> dict[str, float]:
    """Times and bytes for `size` states of each outcome; the released code too has two buffers."""
    device = query.device
    stored = torch.randn(size, query.shape[-1], device=device)
    linear = LinearCounts(mapping) if device.type == "cpu" else LinearCountsOnDevice(mapping)
    squared = SquaredCounts(mapping)
    for counts in (linear, squared):
        for outcome in (0, 1):
            counts.add(0, outcome, stored)

    def recompute_both(squared: bool) -> list[Tensor]:
        return [recompute(mapping, stored, query, squared=squared) for _ in "SF"]

    slow = 3 if size > 20_000 else 15
    row: dict[str, float] = {
        "stored": size,
        "recompute_linear_ms": milliseconds(lambda: recompute_both(False), device, slow),
        "recompute_squared_ms": milliseconds(lambda: recompute_both(True), device, slow),
        "linear_ms": milliseconds(lambda: linear.raw(query).clamp(min=0.0), device, 60),
        "squared_ms": milliseconds(lambda: squared.raw(query).clamp(min=0.0), device, 60),
        "linear_bytes": sums_bytes(linear),
        "squared_bytes": sums_bytes(squared),
    }
    reference = recompute(mapping, stored, query, squared=True)
    row["squared_relative_error"] = float(((squared.raw(query)[0, :, 0] - reference).abs() / reference).max())
    row["linear_speedup"] = row["recompute_linear_ms"] / row["linear_ms"]
    row["squared_speedup"] = row["recompute_squared_ms"] / row["squared_ms"]
    return row


def main(
    k: int = 105,
    features: int = 1000,
    batch: int = 256,
    sizes: tuple[int, ...] = (500, 2_000, 10_000, 100_000),
    device: str = "cpu",
) -> None:
    mapping = RandomFeatures(Gaussian(), k, features, device=torch.device(device))
    mapping.bandwidth.fill_(0.5 * k**0.5)
    query = torch.randn(1, batch, k, device=device)
    rows = [measure(mapping, query, size) for size in sizes]
    by_size = {row["stored"]: row for row in rows}
    growth = {}
    if 2_000 in by_size:
        for form in ("linear", "squared"):
            growth[form] = by_size[max(sizes)][f"{form}_ms"] / by_size[2_000][f"{form}_ms"]
    console = Console()
    linear, squared = ((f"recompute, {form}", f"kept, {form}", "ratio") for form in ("linear", "squared"))
    title = f"both outcomes of a batch of {batch}, k = {k}, M = {features}, on {device}"
    table = Table("states per outcome", *linear, *squared, "sums", title=title)
    for row in rows:
        table.add_row(
            f"{row['stored']:,}",
            f"{row['recompute_linear_ms']:.1f} ms", f"{row['linear_ms']:.2f} ms", f"{row['linear_speedup']:.0f}×",
            f"{row['recompute_squared_ms']:.1f} ms", f"{row['squared_ms']:.2f} ms", f"{row['squared_speedup']:.0f}×",
            f"{row['linear_bytes'] / 1e3:.0f} kB / {row['squared_bytes'] / 1e6:.1f} MB",
        )  # fmt: skip
    console.print(table)
    for form, ratio in growth.items():
        console.print(f"{form}: time at {max(sizes):,} states over time at 2,000: {ratio:.2f}")
    figures = {"k": k, "features": features, "batch": batch, "device": device, "rows": rows, "growth_from_2000": growth}
    console.print(f"wrote {save(f'estimators-{device}', figures)}")


if __name__ == "__main__":
    tyro.cli(main)
