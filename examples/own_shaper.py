"""A reward shaper of one's own: a bonus for states that are seldom visited, in fifty lines.

The observation space is cut into cells, visits of each are counted, and the bonus of a state is weight/√(1 + visits).
Everything that is counted is a registered buffer, so checkpoints and resumed runs need no more code.

    python examples/own_shaper.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import tyro
from torch import Tensor

import sasr
from sasr import Batch, Host, Shaper, Transition, check_shaper


class Visits(Shaper):
    """Counts visits of cells; shapes are (P, …), one row for each seed, and seeds share nothing."""

    visits: Tensor  # (P, cells)

    def __init__(self, weight: float = 0.1, width: float = 0.05, cells: int = 4096) -> None:
        super().__init__()
        self.weight, self.width, self.cells = weight, width, cells

    def make(self, host: Host) -> None:
        """Make what is counted, for a host whose observations have `self.obs_width` numbers."""
        self.register_buffer("visits", torch.zeros(host.members, self.cells, device=host.device))
        # Cells are hashed into a table: a number for each dimension, the same on every machine.
        self.primes = torch.tensor([73856093, 19349663, 83492791, 49979687]).repeat(self.obs_width)[: self.obs_width]

    def observe(self, step: Transition) -> None:
        """Count the states of one step of every environment."""
        self.check(step)  # refuses NaN, and steps of another host
        for member, cells in enumerate(self.cell(step.obs).to(self.visits.device)):
            self.visits[member] += torch.bincount(cells, minlength=self.cells)

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """The bonus of every sampled state, (P, B); changes nothing."""
        return self.weight / (1.0 + self.visits.gather(1, self.cell(batch.obs))).sqrt()

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """Nothing to train; a figure for the log."""
        return {"cells_visited": (self.visits > 0).sum(1)}

    def cell(self, obs: Tensor) -> Tensor:
        """The cell of every state, (P, n)."""
        corner = (obs.flatten(2) / self.width).floor().long()
        return (corner * self.primes.to(obs.device)).sum(-1) % self.cells


def main(steps: int = 20_000, seeds: int = 1, out: Path | None = None) -> None:
    """Check the shaper, then train with it.

    Args:
        steps: environment steps of each seed.
        seeds: how many independent runs.
        out: the run's folder, new; without it, one under runs/.
    """
    check_shaper(Visits())
    print("check_shaper found nothing wrong")
    run = sasr.train("TwoRooms", shaper=Visits(), steps=steps, seeds=seeds, out=out)
    print(f"evaluation returns: {run.evaluation().returns.mean(0).round(2).tolist()}")
    print(f"run: {run.folder}")


if __name__ == "__main__":
    tyro.cli(main)
