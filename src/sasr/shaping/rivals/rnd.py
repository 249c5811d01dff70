"""RND: random network distillation (Burda et al., 2019), the error of learning a random network as a bonus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sasr.errors import unknown_name
from sasr.experience.types import Batch, Host, Transition
from sasr.networks.adam import Adam
from sasr.networks.layers import ACTIVATIONS
from sasr.randomness import MemberStreams
from sasr.shaping.base import Shaper
from sasr.shaping.rivals.moments import RecentSum, ReturnSpread, RunningMoments, TransposedSpread, spread
from sasr.shaping.rivals.random_network import RandomNetwork
from sasr.shaping.rivals.ranges import check_positive, check_share, check_weight
from sasr.shaping.rivals.state_vectors import StateVectors
from sasr.shaping.settings import settings_from

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """Settings of random networks and of a predictor that learns them; the defaults suit learning from replay."""

    weight: float | None = None
    """Weight of the bonus; 0 is the plain agent. None is 10 with replay where the bonus fades, and 0.5 where it does
    not. On rollouts it is 1, as published, with a value head of its own, and else 0.5."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers; DRND's predictor repeats the last one. Images pass through convolutions first."""
    outputs: int | None = None
    """Outputs of a random network; None is 64, and 512 for images."""
    activation: Literal["relu", "tanh"] = "relu"
    """Activation function: relu or tanh."""
    bias: float = 1.0
    """Scale of the hidden layers' initial biases relative to their inputs; 0, as published, sees directions only."""
    learning_rate: float = 3e-4
    """Adam's step size for the predictor."""
    trained_share: float = 0.25
    """Share of each batch that the predictor learns from, in (0, 1]."""
    clip: float = 10.0
    """Standardised states are clipped to ± this many standard deviations; with the published 5, states far beyond
    what was seen so far would look alike."""
    normaliser: Literal["return", "replay"] = "return"
    """What bonuses are divided by: the spread of their discounted sums since learning began, as published, so that
    they fade (return), or their recent mean over the sampled states, as a sum over the horizon (replay)."""
    horizon_discount: float = 0.99
    """The discount γ of those sums."""
    separate_stream: bool = True
    """As published, the bonus is a separate return that continues across episodes, in agents that have critics for it
    (sac, ppo). All others, and separate_stream=false, add it to the reward."""

    def __post_init__(self) -> None:
        if self.weight is not None:
            check_weight(self.weight)
        check_positive(self, "learning_rate", "clip")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden} has a layer without units; the default is (256, 256)")
        if self.outputs is not None and self.outputs < 1:
            raise ValueError(f"outputs={self.outputs} must be at least 1; with 64 errors seldom vanish by chance")
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        if not self.bias >= 0.0:
            raise ValueError(f"bias={self.bias} must not be negative; 0 starts without biases, as published")
        check_share(self, "trained_share")
        if not 0.0 <= self.horizon_discount < 1.0:
            raise ValueError(f"horizon_discount={self.horizon_discount} must be in [0, 1); 0.99 is the published one")
        if self.normaliser not in ("return", "replay"):
            raise unknown_name("normaliser", self.normaliser, ("return", "replay"))

    def weight_on(self, host: Host) -> float:
        """The weight; where none is given, one that suits what the host learns from."""
        if self.weight is not None:
            return self.weight
        if host.replay is None:
            return 1.0 if host.separate_stream else 0.5
        return 0.5 if self.normaliser == "replay" else 10.0


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


class RND(Shaper):
    """Adds the error of a predictor that learns a frozen random network: large where it has learned little.

    >>> RND(weight=1.0).config.trained_share
    0.25
    """

    moments: RunningMoments
    scale: RecentSum | ReturnSpread | TransposedSpread
    capturable = True
    compilable = ("absorb", "shape", "loss", "account")
    checked = ("next_obs",)

    def __init__(self, *, config: RndConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(RndConfig, config, options)
        self.separate_stream = self.config.separate_stream

    def make(self, host: Host) -> None:
        """Draw both networks."""
        config, device = self.config, host.device
        self.weight = config.weight_on(host)
        self.states = StateVectors(host.observation_space, device)
        width, picture = self.states.width, self.states.picture
        outputs = config.outputs or (512 if picture else 64)
        init = MemberStreams(host.seeds, "rnd", CPU).generators
        parts: dict[str, Any] = {"picture": picture, "activation": config.activation, "bias": config.bias}
        # From pictures the target is linear in what its convolutions see; learning it takes two layers more.
        of_target = () if picture else config.hidden
        self.target = RandomNetwork(width, of_target, outputs, **parts, generators=init, device=device)
        self.target.requires_grad_(False)
        self.predictor = RandomNetwork(width, config.hidden, outputs, **parts, generators=init, device=device)
        self.adam = Adam(list(self.predictor.parameters()), lr=config.learning_rate)
        self.moments = RunningMoments(host.members, width, device)
        self.scale = make_scale(config, host)
        self.mask_streams = MemberStreams(host.seeds, "rnd/mask", device)

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Take in one step of every environment; a step with a NaN or a wrong width is refused and nothing changes."""
        self.check(step)
        self.absorb(step.next_obs, step.valid if step.valid is not None else torch.ones_like(step.terminated))

    def absorb(self, next_obs: Tensor, valid: Tensor) -> None:
        """Update the statistics of states and of errors by one step."""
        states, valid = self.states(next_obs), valid.to(self.bound.device)
        self.moments.merge(states, valid)
        if not isinstance(self.scale, RecentSum):
            self.scale.advance(self.error(states), valid)

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """Weight · novelty of every sampled next state, (P, B), as it is now: old novelty is not paid for again."""
        self.check_batch(batch)
        return self.weight * self.novelty(self.states(batch.next_obs))

    def error(self, states: Tensor) -> Tensor:
        """Mean squared error (P, B) of the predictor on states (P, B, width)."""
        x = self.moments.standardise(states, self.config.clip)
        error: Tensor = (self.predictor(x) - self.target(x)).square().mean(-1)
        return error

    def novelty(self, states: Tensor) -> Tensor:
        """The error over what errors add up to, (P, B)."""
        bonus: Tensor = self.error(states) / self.scale()
        return bonus

    def loss(self, obs: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Mean error in the states to learn from, by numbers (P, B) in [0, 1), summed over P; all errors (P, B)."""
        keep = (drawn < self.config.trained_share).float()
        error = self.error(self.states(obs))
        return ((error * keep).sum(1) / keep.sum(1).clamp(min=1.0)).sum(), error.detach()

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One step of the predictor; how wrong it is, how much that differs, and what it is divided by, each (P,)."""
        self.check_batch(batch)
        loss, error = self.loss(batch.next_obs, self.mask_streams.uniform(batch.reward))
        self.adam.minimise(loss)
        return self.account(error)

    def account(self, error: Tensor) -> dict[str, Tensor]:
        """Take errors (P, B) into the scale; figures (P,)."""
        self.scale.update(error)
        return {"prediction_error": error.mean(1), "novelty_spread": spread(error), "bonus_scale": self.scale()[:, 0]}


def make_scale(config: Any, host: Host) -> RecentSum | ReturnSpread | TransposedSpread:
    """What a bonus is divided by."""
    common: dict[str, Any] = {"discount": config.horizon_discount, "device": host.device}
    if config.normaliser == "replay":
        return RecentSum(host.members, **common)
    if config.compat and isinstance(config, RndConfig):
        return TransposedSpread(host.members, host.envs, rollout=config.rollout, **common)
    # Rollouts are learned from without thousands of random steps before the first.
    return ReturnSpread(host.members, host.envs, learning=host.replay is None, **common)
