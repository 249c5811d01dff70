"""DRND: distributional random network distillation (Yang et al., 2024), a bonus that counts visits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from sasr.experience.types import Batch, Host
from sasr.randomness import MemberStreams
from sasr.shaping.rivals.distillation import Distillation, DistillationConfig
from sasr.shaping.rivals.moments import spread
from sasr.shaping.settings import settings_from

_TINY = 1e-8


@dataclass(frozen=True, kw_only=True)
class DrndConfig(DistillationConfig):
    """Settings of DRND; the defaults are the released code's of October 2024, on an agent that learns from replay."""

    targets: int = 5
    """Number N of random networks, at least 2."""
    alpha: float = 0.95
    """Weight α of the first term, the distance to the targets' mean, in [0, 1]; 1 − α weighs the count term."""
    root: Literal["each", "mean"] = "each"
    """Take the root of the count term per output, as released (each), or of its mean over the outputs (mean)."""
    compat: bool = False
    """The code as first released, in May 2024: means over outputs in place of sums, and a floor of 1e-3."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.targets < 2:
            raise ValueError(f"targets={self.targets} must be at least 2: one has no spread to count with; 5 is usual")
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha={self.alpha} must be in [0, 1]; the released code has 0.95")


class Terms(NamedTuple):
    """The parts of the bonus, each (P, B)."""

    distance: Tensor  # b1, squared distance of the predictor to the targets' mean
    rarity: Tensor  # b2, the root of the count's statistic
    inverse_count: Tensor  # that statistic, averaged over the outputs: about 1/n after n visits


class DRND(Distillation):
    """Adds the distance of a predictor to the mean of N random networks, and how little it has averaged over them.

    The predictor learns a target drawn anew for each sample. After n visits it is about the mean of n draws, whose
    second moment estimates n.

    >>> DRND(targets=10).config.alpha
    0.95
    """

    config: DrndConfig

    def __init__(self, *, config: DrndConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(DrndConfig, config, options)
        self.separate_stream = self.config.separate_stream

    def make(self, host: Host) -> None:
        """Draw the targets and the predictor."""
        self.make_networks(host, "drnd", targets=self.config.targets, deeper=True)
        # The two terms have different units: the first grows with the targets' outputs, the second does not. Here
        # they weigh as on the frames of the published runs, whose targets' outputs have a mean square of 2 · 84²/512.
        self.unit = 1.0
        if not self.states.picture and not self.config.compat:
            self.unit = 27.6 * self.output_count / (2.0 * self.states.width)
        self.draw_streams = MemberStreams(host.seeds, "drnd/draw", host.device)

    def outputs(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the predictor (P, B, D) and of the targets (N, P, B, D) for states (P, B, width)."""
        x = self.standardise(states)
        N = self.config.targets
        return self.predictor(x), self.target(x).unflatten(0, (N, len(x)))

    def terms(self, states: Tensor) -> Terms:
        """The parts of the bonus for states (P, B, width)."""
        predicted, targets = self.outputs(states)
        return drnd_terms(predicted, targets, root=self.config.root, compat=self.config.compat)

    def bonus(self, terms: Terms) -> Tensor:
        """α·b1 + (1 − α)·b2, (P, B)."""
        return self.config.alpha * self.unit * terms.distance + (1.0 - self.config.alpha) * terms.rarity

    def raw_novelty(self, states: Tensor) -> Tensor:
        """α·b1 + (1 − α)·b2 of states (P, B, width), (P, B)."""
        return self.bonus(self.terms(states))

    def loss(self, obs: Tensor, drawn: Tensor, number: Tensor) -> tuple[Tensor, Tensor, Terms]:
        """Squared errors of the predictor, and the bonus's terms.

        Args:
            obs: States (P, B, …).
            drawn: Numbers (P, B) in [0, 1) that say which of them it learns from.
            number: Which target (P, B) it learns in each.

        Returns:
            The mean error, summed over P and for each (P,), and the terms.
        """
        keep = (drawn < self.config.trained_share).float()
        predicted, targets = self.outputs(self.states(obs))
        index = number[None, ..., None].expand(1, *predicted.shape)
        error = (predicted - targets.gather(0, index)[0]).square().mean(-1)
        terms = drnd_terms(predicted.detach(), targets, root=self.config.root, compat=self.config.compat)
        loss = (error * keep).sum(1) / keep.sum(1).clamp(min=1.0)
        return loss.sum(), loss.detach(), terms

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One step of the predictor; its loss and the bonus's parts, each (P,)."""
        self.check_batch(batch)
        drawn = self.draw_streams.uniform(batch.reward)
        loss, error, terms = self.loss(batch.next_obs, drawn, self.draw_targets(drawn))
        self.adam.minimise(loss)
        return self.update_scale(error, terms)

    def update_scale(self, error: Tensor, terms: Terms) -> dict[str, Tensor]:
        """Take the bonus's terms into the scale; figures (P,)."""
        bonus = self.bonus(terms)
        self.scale.update(bonus)
        return {
            "prediction_error": error,
            "distance": terms.distance.mean(1),
            "inverse_count": terms.inverse_count.mean(1),
            "novelty_spread": spread(bonus),
            "bonus_scale": self.scale()[:, 0],
        }

    def draw_targets(self, like: Tensor) -> Tensor:
        """Which of the targets each row is learned from."""
        N = self.config.targets
        return self.draw_streams.draw(lambda row, g: torch.randint(N, row.shape, generator=g, device=row.device), like)


def drnd_terms(predicted: Tensor, targets: Tensor, *, root: str = "each", compat: bool = False) -> Terms:
    """The parts of the bonus from the outputs of the predictor (…, D) and of N targets (N, …, D)."""
    mean = targets.mean(0)
    variance = (targets - mean).square().mean(0) + _TINY  # B₂ − μ², without its cancellation
    ratio = (predicted.square() - mean.square()) / variance
    floor = 1e-3 if compat else 1e-6
    if root == "each":
        roots = ratio.abs().clamp(floor, 1.0).sqrt()
    else:
        roots = ratio.mean(-1, keepdim=True).abs().clamp(floor, 1.0).sqrt().expand_as(ratio)
    distance = (predicted - mean).square()
    inverse_count = ratio.mean(-1).clamp(0.0, 1.0)
    if compat:
        return Terms(distance.mean(-1), roots.mean(-1), inverse_count)
    return Terms(distance.sum(-1), roots.sum(-1), inverse_count)
