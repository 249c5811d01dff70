"""`states.npz`: visited states and SASR's bonus there, by period; only runs with `log_states` write it.

Figures 4 and 5 of the paper are drawn from it by `sasr report`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.experience.retained import FAILURE, SUCCESS
from sasr.experience.types import Batch
from sasr.files import read_arrays, write_arrays
from sasr.shaping.sasr import SASR
from sasr.training.trainer import Recorder, Trainer

NAME = "states.npz"
BINS = 40
"""Along each of two state variables."""
NEWEST = 1_000
"""The bonus is computed in the states of so many turns at the end of a period."""
_FILE_BYTES = 2**30


class States(NamedTuple):
    """K periods of a run with P seeds. X and Y are 0 where observations are not two bounded numbers."""

    steps: NDArray[np.int64]
    """(K,) end of each period."""
    x: NDArray[np.float64]
    """(X + 1,) edges of the bins of the observation's first entry."""
    y: NDArray[np.float64]
    """(Y + 1,) edges of the bins of its second entry."""
    visits: NDArray[np.int64]
    """(K, P, Y, X) number of visited states in each bin."""
    feature: NDArray[np.float32]
    """(K, P, N) the first entry of the newest states."""
    bonus: NDArray[np.float32]
    """(K, P, N) SASR's bonus there; NaN with another shaper."""


class VisitedStates(Recorder):
    """Counts visited states in bins, and at the end of every period computes SASR's bonus in the newest."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.period = 0
        self._saved: NDArray[np.int64] | None = None

    def begin(self, trainer: Trainer) -> None:
        """Set up the bins; a resumed run keeps its earlier periods."""
        space = trainer.population.observation_space
        if not trainer.config.log_states or len(space.shape) != 1:
            return
        self.period = trainer.config.log_states
        self.trainer = trainer
        self.next = (trainer.loop.steps // self.period + 1) * self.period
        self.x = self.y = np.zeros(1)
        if has_two_bounded_entries(space):
            self.x, self.y = (np.linspace(low, high, BINS + 1) for low, high in zip(space.low, space.high, strict=True))
        seeds = len(trainer.config.seeds)
        self.counts = np.zeros((seeds, len(self.y) - 1, len(self.x) - 1), np.int64)
        if self._saved is not None and self._saved.shape == self.counts.shape:
            self.counts = self._saved
        self.newest: deque[NDArray[Any]] = deque(maxlen=NEWEST)
        self.uncounted: list[NDArray[Any]] = []
        self.periods: list[tuple[Any, ...]] = []
        if trainer.loop.steps and self.path.exists():
            before = read_states(self.path.parent)
            kept = before.steps <= trainer.loop.steps
            self.periods = list(zip(before.steps, before.visits, before.feature, before.bonus, strict=True))
            self.periods = self.periods[: int(kept.sum())]

    def turned(self, steps: int) -> None:
        """Add the current observations; count and write at the end of a period."""
        if not self.period:
            return
        self.newest.append(self.trainer.loop.obs)
        if self.counts.size:
            self.uncounted.append(self.trainer.loop.obs)
        if len(self.uncounted) >= NEWEST:
            self._count()
        if steps >= min(self.next, self.trainer.config.steps):  # the last period may be a short one
            self.next = (steps // self.period + 1) * self.period
            self._end_period(steps)

    def save(self) -> dict[str, Any]:
        """Counts of the current period."""
        if not self.period:
            return {}
        self._count()
        return {"counts": self.counts.tolist()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Continue with the counts of the current period."""
        if "counts" in saved:
            self._saved = np.array(saved["counts"], np.int64)

    def _count(self) -> None:
        if not self.uncounted:
            return
        states = np.stack(self.uncounted)  # (T, P, E, 2)
        self.uncounted.clear()
        for index, counts in enumerate(self.counts):
            x, y = states[:, index, :, 0].ravel(), states[:, index, :, 1].ravel()
            counts += np.histogram2d(y, x, bins=(self.y, self.x))[0].astype(np.int64)

    def _end_period(self, steps: int) -> None:
        self._count()
        newest = np.concatenate(list(self.newest), axis=1)  # (P, N, k)
        picked = newest[:, np.linspace(0, newest.shape[1] - 1, NEWEST).astype(int)].astype(np.float32)
        self.periods.append((steps, self.counts.copy(), picked[..., 0], self._bonus(picked, steps)))
        self.counts[:] = 0
        ends, visits, feature, bonus = (np.stack(parts) for parts in zip(*self.periods, strict=True))
        states = States(ends.astype(np.int64), self.x, self.y, visits, feature, bonus)
        write_arrays(self.path, **states._asdict())

    def _bonus(self, obs: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
        shaper = self.trainer.shaper
        if not isinstance(shaper, SASR) or shaper.config.state_action:
            return np.full(obs.shape[:2], np.nan, np.float32)
        return drawn_bonus(shaper, obs, np.random.default_rng(steps))


def has_two_bounded_entries(space: spaces.Space[Any]) -> bool:
    """Whether observations are two bounded numbers, which can be shown as a map."""
    return isinstance(space, spaces.Box) and space.shape == (2,) and space.is_bounded()


@torch.no_grad()
def drawn_bonus(shaper: SASR, obs: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """SASR's bonus in these states (P, N, k), without drawing from its random streams."""
    host = shaper.bound
    batch = Batch.of_states(torch.as_tensor(obs, device=host.device))
    if shaper.config.sample == "ratio":
        rate = shaper.success_rate(batch)
    else:
        counts = shaper.counts(batch).cpu().numpy()
        draws = rng.beta(counts[..., SUCCESS] + 1.0, counts[..., FAILURE] + 1.0)
        rate = torch.as_tensor(draws, dtype=torch.float32, device=host.device)
    array: NDArray[np.float32] = shaper.bonus(rate, batch).float().cpu().numpy()
    return array


def read_states(run: str | Path) -> States:
    """The states of a run; an error says what is wrong with the file."""
    states = States(*read_arrays(Path(run) / NAME, States._fields, _FILE_BYTES))
    if any(part.dtype.kind not in "iuf" for part in states) or states.visits.ndim != 4 or states.bonus.ndim != 3:
        raise ValueError(f"{NAME} does not hold visited states")
    periods, seeds = states.visits.shape[:2]
    expected = (periods, seeds, len(states.y) - 1, len(states.x) - 1)
    if states.visits.shape != expected or len(states.steps) != periods:
        raise ValueError(f"{NAME} has visits of shape {states.visits.shape} but its bins need {expected}")
    if states.feature.shape != states.bonus.shape or states.bonus.shape[:2] != (periods, seeds):
        raise ValueError(f"{NAME} has {states.feature.shape} features for {states.bonus.shape} bonuses")
    return states
