"""How far random features are from the exact kernel: phases or pairs, independent or orthogonal frequencies.

python -m benchmarks.feature_error
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.machine import save
from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import Gaussian

Variant = tuple[Literal["phase", "paired"], Literal["independent", "orthogonal"]]
VARIANTS: tuple[Variant, ...] = (
    ("phase", "independent"),
    ("phase", "orthogonal"),
    ("paired", "independent"),
    ("paired", "orthogonal"),
)


@torch.no_grad()
def main(features: int = 1000, states: int = 300, seeds: int = 20, widths: tuple[int, ...] = (2, 29, 105, 376)) -> None:
    console = Console()
    table = Table(
        title=f"root mean square error of a kernel value, M = {features}, h = 0.5√k, {seeds} draws of the features"
    )
    for column in ("k", *(f"{form}, {frequencies}" for form, frequencies in VARIANTS)):
        table.add_column(column, justify="right")
    rows = []
    for k in widths:
        x = torch.randn(states, k, generator=torch.Generator().manual_seed(0))
        h = 0.5 * k**0.5
        exact = Gaussian().value(x, x, h)
        row: dict[str, float] = {"k": k}
        for form, frequencies in VARIANTS:
            errors = []
            for seed in range(seeds):
                mapping = RandomFeatures(Gaussian(), k, features, seeds=(seed,), form=form, frequencies=frequencies)
                mapping.bandwidth.fill_(h)
                z = mapping.of_member(0, x)
                errors.append(float(((z @ z.T - exact) ** 2).mean().sqrt()))
            row[f"{form}-{frequencies}"] = float(np.mean(errors))
        rows.append(row)
        table.add_row(str(k), *(f"{row[f'{form}-{frequencies}']:.4f}" for form, frequencies in VARIANTS))
    console.print(table)
    console.print(
        f"wrote {save('feature_error', {'features': features, 'seeds': seeds, 'states': states, 'rows': rows})}"
    )


if __name__ == "__main__":
    tyro.cli(main)
