"""What SASR takes the success rate to be all over a two-dimensional observation space, at some moments of the run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from sasr.experience.retained import FAILURE, SUCCESS
from sasr.experience.types import Batch
from sasr.files import read_arrays, write_whole
from sasr.logs.learning_curve import save_picture
from sasr.shaping.beta import beta_mean
from sasr.shaping.sasr import SASR
from sasr.training.trainer import Silent, Trainer

DATA, PICTURE = "success_map.npz", "success_map.png"
MOMENTS = 10
_POINTS = 61
_BYTES = 2**28


class Maps(NamedTuple):
    """Success-rate estimates of P members at K moments over a grid of observations."""

    steps: NDArray[np.int64]  # (K,)
    x: NDArray[np.float64]  # (X,) the observation's first entry
    y: NDArray[np.float64]  # (Y,) the second
    rate: NDArray[np.float32]  # (K, P, Y, X) mean of Beta(N_S + 1, N_F + 1)


class SuccessMap(Silent):
    """Asks SASR's own estimate; idle where observations are not two bounded numbers, or where the shaper is another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shaper: SASR | None = None
        self.kept: list[tuple[int, NDArray[np.float32]]] = []

    @staticmethod
    def fits(trainer: Trainer) -> bool:
        """Whether there is something to map."""
        space, shaper = trainer.population.observation_space, trainer.shaper
        flat = isinstance(space, spaces.Box) and space.shape == (2,) and space.is_bounded()
        return flat and isinstance(shaper, SASR) and not shaper.config.state_action

    def begin(self, trainer: Trainer) -> None:
        """Lay the grid; a resumed run keeps the maps from before."""
        if not self.fits(trainer):
            return
        space = trainer.population.observation_space
        assert isinstance(trainer.shaper, SASR)
        self.shaper, self.action_space = trainer.shaper, trainer.population.action_space
        (x_low, y_low), (x_high, y_high) = space.low.tolist(), space.high.tolist()
        self.x, self.y = np.linspace(x_low, x_high, _POINTS), np.linspace(y_low, y_high, _POINTS)
        self.period = max(1, trainer.config.steps // MOMENTS)
        self.next = (trainer.loop.steps // self.period + 1) * self.period
        if trainer.loop.steps and (self.folder / DATA).exists():
            try:
                self.kept = _maps_until(trainer.loop.steps, read_maps(self.folder))
            except Exception as error:  # numpy and zipfile have many kinds for a damaged file
                raise ValueError(f"{DATA} can't be read, only what follows will be in it: {error}") from error

    def turned(self, steps: int) -> None:
        """Another map when it is time."""
        if self.shaper is not None and steps >= self.next:
            self.next = (steps // self.period + 1) * self.period
            self.kept.append((steps, success_rates(self.shaper, self.x, self.y)))
            self._write()

    def close(self, steps: int) -> None:
        """Nothing waits."""

    def _write(self) -> None:
        buffer = io.BytesIO()
        steps, rate = np.array([step for step, _ in self.kept], np.int64), np.stack([own for _, own in self.kept])
        np.savez_compressed(buffer, steps=steps, x=self.x, y=self.y, rate=rate)
        write_whole(self.folder / DATA, buffer.getvalue())


def _maps_until(steps: int, maps: Maps) -> list[tuple[int, NDArray[np.float32]]]:
    return [(int(step), rate) for step, rate in zip(maps.steps, maps.rate, strict=True) if step <= steps]


def success_rates(shaper: SASR, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float32]:
    """Mean of the Beta distribution at every point of a grid, (P, Y, X), by the shaper's own counts."""
    host = shaper.host
    assert host is not None
    grid = torch.tensor(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2), dtype=torch.float32, device=host.device)
    obs = grid.expand(host.members, -1, -1)
    nothing = torch.zeros(obs.shape[:2], device=host.device)
    with torch.no_grad():
        counts = shaper.counts(Batch(obs, nothing[..., None], nothing, obs, nothing.bool()))
        rate = beta_mean(counts[..., SUCCESS], counts[..., FAILURE])
    found: NDArray[np.float32] = rate.view(host.members, len(y), len(x)).float().cpu().numpy()
    return found


def read_maps(run: str | Path) -> Maps:
    """The maps of a run."""
    return Maps(*read_arrays(Path(run) / DATA, Maps._fields, _BYTES))


def draw_maps(run: Path, *, title: str, axes: Mapping[int, str] | None = None) -> Path | None:
    """Draw the mean over members at every moment as small panels; None where there are no maps."""
    if not (run / DATA).exists():
        return None
    from matplotlib.figure import Figure

    maps, names = read_maps(run), axes or {}
    columns = min(5, len(maps.steps))
    rows = -(-len(maps.steps) // columns)
    figure = Figure(figsize=(2.3 * columns + 1.2, 2.1 * rows + 0.6), layout="constrained")
    panels: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for panel in panels.ravel()[len(maps.steps) :]:
        panel.set_axis_off()
    image: Any = None
    for panel, step, rate in zip(panels.ravel(), maps.steps, maps.rate, strict=False):
        image = panel.pcolormesh(maps.x, maps.y, rate.mean(0), vmin=0.0, vmax=1.0, shading="auto", rasterized=True)
        panel.set_title(f"{step:,} steps", fontsize=9)
        panel.tick_params(labelsize=7)
    figure.supxlabel(names.get(0, "observation[0]"), fontsize=9)
    figure.supylabel(names.get(1, "observation[1]"), fontsize=9)
    figure.suptitle(title, fontsize=11)
    figure.colorbar(image, ax=panels, label="success rate, (N_S + 1) / (N_S + N_F + 2)")
    return save_picture(figure, run / PICTURE)
