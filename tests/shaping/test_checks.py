from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from sasr import SASR, Batch, Host, Transition, check_shaper


@pytest.mark.parametrize("preset", ["auto", "paper", "authors"])
def test_our_own_shaper_passes(preset: str) -> None:
    check_shaper(SASR(preset))
    check_shaper(SASR(preset, estimator="exact", state_action=True))


class Novelty(nn.Module):
    """A small shaper that keeps every promise: one over the distance to the member's mean state."""

    mean: Tensor

    def bind(self, host: Host) -> None:
        self.register_buffer("mean", torch.zeros(host.members, 4))

    def observe(self, step: Transition) -> None:
        self.mean += 0.1 * (step.obs.mean(1) - self.mean)

    def release(self, slots: Tensor) -> None:
        pass

    def shape(self, batch: Batch) -> Tensor:
        return (batch.obs - self.mean[:, None]).norm(dim=-1)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"size": self.mean.norm(dim=-1)}


class WrongShape(Novelty):
    def shape(self, batch: Batch) -> Tensor:
        return super().shape(batch)[..., None]


class Trains(Novelty):
    def shape(self, batch: Batch) -> Tensor:
        self.mean += 1.0
        return super().shape(batch)


class Touches(Novelty):
    def observe(self, step: Transition) -> None:
        self.mean += step.obs.mean((0, 1))


class DrawsGlobally(Novelty):
    def shape(self, batch: Batch) -> Tensor:
        return super().shape(batch) + torch.rand(()) * 0


class Forgets(Novelty):
    def bind(self, host: Host) -> None:
        super().bind(host)
        self.seen = 0

    def observe(self, step: Transition) -> None:
        self.seen += 1

    def shape(self, batch: Batch) -> Tensor:
        return super().shape(batch) + self.seen


class WritesRewards(Novelty):
    def shape(self, batch: Batch) -> Tensor:
        batch.reward.add_(1.0)
        return super().shape(batch)


class HasGradient(Novelty):
    def bind(self, host: Host) -> None:
        super().bind(host)
        self.weight = nn.Parameter(torch.ones(()))

    def shape(self, batch: Batch) -> Tensor:
        return super().shape(batch) * self.weight


class Blows(Novelty):
    def shape(self, batch: Batch) -> Tensor:
        return super().shape(batch) / 0.0


class FiguresOfAnotherShape(Novelty):
    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"size": self.mean}


class FiguresThatMove(Novelty):
    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"first": self.mean[:, 0]}


def test_somebody_elses_good_shaper_passes() -> None:
    check_shaper(Novelty())


@pytest.mark.parametrize(
    ("shaper", "message"),
    [
        (WrongShape, r"must return \(P, B\) = \(3, 8\)"),
        (Trains, "shape changed the entry 'mean'"),
        (Touches, "seeds of the population influence each other"),
        (DrawsGlobally, "drew from a global generator"),
        (Forgets, "something counted is not in state_dict"),
        (WritesRewards, "stored rewards are the environment's"),
        (HasGradient, "must carry no gradient"),
        (Blows, "NaN or inf"),
        (FiguresOfAnotherShape, r"figure 'size' must be \(P,\)"),
        (FiguresThatMove, "figure 'first' is a view"),
    ],
)
def test_each_broken_promise_is_named(shaper: type[Novelty], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_shaper(shaper())


def test_a_missing_method_is_named() -> None:
    with pytest.raises(AssertionError, match="lacks bind, observe, release, shape, update"):
        check_shaper(cast(Any, nn.Linear(1, 1)))
