"""RND: random network distillation (Burda et al., 2019), the error of learning a random network as a bonus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sasr.experience.types import Batch, Host
from sasr.randomness import MemberStreams
from sasr.shaping.rivals.distillation import Distillation, DistillationConfig
from sasr.shaping.rivals.moments import RecentSum, ReturnSpread, TransposedSpread, spread
from sasr.shaping.rivals.ranges import check_positive
from sasr.shaping.settings import settings_from


@dataclass(frozen=True, kw_only=True)
class RndConfig(DistillationConfig):
    """Settings of RND; the defaults suit an agent that learns from replay."""

    compat: bool = False
    """Mix time and environments in the normaliser, as CleanRL and the SASR authors' code do."""
    rollout: int = 2048
    """Steps of a rollout; used by compat only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "rollout")
        if self.compat and self.normaliser == "replay":
            raise ValueError("compat=True is about normaliser='return'; drop one of them")


RELEASED = RndConfig(
    weight=1.0,
    hidden=(64, 64),
    outputs=1,
    activation="tanh",
    bias=0.0,
    clip=float("inf"),
    separate_stream=True,
    compat=True,
)
"""What the SASR authors' library runs on vectors: a random network with one output, and no clipping."""


class RND(Distillation):
    """Adds the error of a predictor that learns a frozen random network: large where it has learned little.

    >>> RND(weight=1.0).config.trained_share
    0.25
    """

    config: RndConfig

    def __init__(self, *, config: RndConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(RndConfig, config, options)
        self.separate_stream = self.config.separate_stream

    def make(self, host: Host) -> None:
        """Draw both networks."""
        self.make_networks(host, "rnd")
        self.mask_streams = MemberStreams(host.seeds, "rnd/mask", host.device)

    def make_scale(self, host: Host) -> RecentSum | ReturnSpread | TransposedSpread:
        """What errors are divided by."""
        if not self.config.compat:
            return super().make_scale(host)
        discount, rollout = self.config.horizon_discount, self.config.rollout
        return TransposedSpread(host.members, host.envs, discount=discount, rollout=rollout, device=host.device)

    def raw_novelty(self, states: Tensor) -> Tensor:
        """Mean squared error (P, B) of the predictor on states (P, B, width)."""
        x = self.standardise(states)
        error: Tensor = (self.predictor(x) - self.target(x)).square().mean(-1)
        return error

    def loss(self, obs: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Mean error in the states to learn from, by numbers (P, B) in [0, 1), summed over P; all errors (P, B)."""
        keep = (drawn < self.config.trained_share).float()
        error = self.raw_novelty(self.states(obs))
        return ((error * keep).sum(1) / keep.sum(1).clamp(min=1.0)).sum(), error.detach()

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One step of the predictor; how wrong it is, how much that differs, and what it is divided by, each (P,)."""
        self.check_batch(batch)
        loss, error = self.loss(batch.next_obs, self.mask_streams.uniform(batch.reward))
        self.adam.minimise(loss)
        return self.update_scale(error)

    def update_scale(self, error: Tensor) -> dict[str, Tensor]:
        """Take errors (P, B) into the scale; figures (P,)."""
        self.scale.update(error)
        return {"prediction_error": error.mean(1), "novelty_spread": spread(error), "bonus_scale": self.scale()[:, 0]}
