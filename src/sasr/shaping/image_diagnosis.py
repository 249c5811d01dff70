"""Do counts on images follow the visits of what the agent controls? Judged by what can be checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sasr.evidence.places import ROWS, PlaceCounts
from sasr.experience.random_rollout import RandomRollout
from sasr.experience.types import Batch
from sasr.shaping.assembly import counts_places
from sasr.shaping.diagnosis import EVERY_STATE, MIN_RANK_CORRELATION, rank_correlation, spaces_of, visited
from sasr.shaping.outcomes import explained, outcomes
from sasr.shaping.sasr import SASR
from sasr.tasks.environment import TaskLike

UPDATES = 600
"""Of the attention; a run makes thousands."""
PART = 500
"""Images that are added to the statistics at once: it bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class ImageDiagnosis:
    """What a shaper's settings make of some images."""

    stored: int
    """Images taken as evidence."""
    cells: int
    """Cells of an image in which what the agent controls can be."""
    action_loss: float
    """Error of the predicted action after the updates: log of the number of actions where nothing was learned."""
    visits: float
    """Spearman correlation of new images' counts with the true visits of the agent's place; NaN without
    info["place"]."""
    explained: dict[str, float]
    """R² of what follows a new image, predicted by stored ones in its cell; NaN where it is always the same."""
    reason: str
    """Why the shaped reward is noise; empty where it is signal or that is unknown."""

    @property
    def verdict(self) -> str:
        """`signal`, `noise`, or `unknown` where there was nothing to check the counts against."""
        if self.reason:
            return "noise"
        unknown = all(math.isnan(figure) for figure in (self.visits, *self.explained.values()))
        return "unknown" if unknown else "signal"


def diagnoses_images(rollout: RandomRollout, shaper: SASR) -> bool:
    """Whether `diagnose_images` is for these states and settings, and not `diagnose`."""
    return counts_places(shaper.config, spaces_of(rollout))


@torch.no_grad()
def diagnose_images(
    rollout: RandomRollout | TaskLike,
    shaper: SASR | None = None,
    *,
    seed: int = 0,
    steps: int = 6000,
    updates: int = UPDATES,
    progress: Callable[[int], None] | None = None,
) -> ImageDiagnosis:
    """Train the attention on a rollout, count its first five sixths, and compare the counts of the rest with the truth.

    Args:
        rollout: Of a task whose observations are images; or that task, on which a random policy acts.
        shaper: Its settings are judged; it is not touched itself.
        seed: Of the networks and the batches, and of what is acted here.
        steps: How long to act where a task is given.
        updates: How many; thousands in a run.
        progress: Called with the number of updates done now and then.
    """
    shaper = shaper or SASR()
    if not isinstance(rollout, RandomRollout):
        rollout = visited(rollout, steps, seed=seed)
    if not diagnoses_images(rollout, shaper):
        raise ValueError("no places in images are counted under these spaces and settings: use sasr.diagnose")
    images = torch.from_numpy(rollout.states)
    if len(images) < 60:
        raise ValueError(f"{len(images)} images are too few to judge counts; give at least 60, better 6,000")
    stored, new = images[: -(len(images) // 6)], images[-(len(images) // 6) :]
    config = shaper.config
    counted = SASR(config=dataclasses.replace(config, background=0.0, **EVERY_STATE))
    counted.bind(spaces_of(rollout, seed))
    for part in torch.split(stored, PART):
        counted.add_trajectory(part, success=False)
    counted.evidence.rebuild(0)
    loss = _train(counted, rollout, len(stored), updates, seed, progress)
    counted.evidence.rebuild(0)

    z_stored, z_new = _features(counted, stored), _features(counted, new)
    visits = _visits(rollout, z_new @ z_stored.sum(0), len(stored))
    r2 = {
        name: explained(lambda x, y: x @ y.T, z_stored, z_new, values)
        for name, values in outcomes(rollout, config.segment_steps).items()
    }
    return ImageDiagnosis(
        stored=len(stored),
        cells=z_stored.shape[1],
        action_loss=loss,
        visits=visits,
        explained=r2,
        reason=_reason(visits, r2),
    )


def _train(
    shaper: SASR,
    rollout: RandomRollout,
    stored: int,
    updates: int,
    seed: int,
    progress: Callable[[int], None] | None,
) -> float:
    """Learn from stored steps that the next one continues; the mean loss of the last tenth."""
    ended = rollout.terminated | rollout.truncated
    continued = torch.from_numpy(np.flatnonzero(~ended[: stored - 1]))
    images, actions = torch.from_numpy(rollout.states), torch.from_numpy(rollout.actions)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for update in range(updates):
        step = continued[torch.randint(len(continued), (1, ROWS), generator=generator)]
        nothing = torch.zeros(step.shape)
        batch = Batch(images[step], actions[step], nothing, images[step + 1], nothing.bool())
        losses.append(float(shaper.update(batch)["action_loss"][0]))
        if progress and (update + 1) % 10 == 0:
            progress(update + 1)
    return float(np.mean(losses[-max(1, updates // 10) :]))


def _features(shaper: SASR, images: Tensor) -> Tensor:
    """Features (n, cells) of images (n, k), as they are counted."""
    evidence = shaper.evidence
    assert isinstance(evidence.estimator, PlaceCounts)
    features = evidence.estimator.features
    parts = torch.split(images, PART)
    return torch.cat([features.of_member(0, evidence.normaliser.of_member(0, part)) for part in parts])


def _visits(rollout: RandomRollout, counts: Tensor, stored: int) -> float:
    """Rank correlation of new images' counts with how often the agent was in the same place; NaN if that is unknown."""
    if np.isnan(rollout.place).any():
        return math.nan
    places, times = np.unique(rollout.place[:stored], return_counts=True)
    of_place = dict(zip(places.tolist(), times.tolist(), strict=True))
    true = np.array([of_place.get(place, 0) for place in rollout.place[stored:].tolist()])
    return rank_correlation(counts.numpy(), true)


def _reason(visits: float, r2: dict[str, float]) -> str:
    if not math.isnan(visits):
        if visits < MIN_RANK_CORRELATION:
            return f"counts do not follow the visits of the agent's place (rank correlation {visits:.2f})"
        return ""
    known = [figure for figure in r2.values() if not math.isnan(figure)]
    if known and max(known) <= 0.0:
        return "images in the same place say no more than the average about what follows"
    return ""
