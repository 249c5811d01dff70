"""Random network distillation: what RND and DRND share. A bonus from the error of learning random networks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sasr.experience.types import Batch, Host, Transition
from sasr.networks.adam import Adam
from sasr.randomness import MemberStreams
from sasr.shaping.base import CPU, Shaper
from sasr.shaping.rivals.moments import RecentSum, ReturnSpread, RunningMoments, TransposedSpread
from sasr.shaping.rivals.random_network import RandomNetwork
from sasr.shaping.rivals.ranges import check_discount, check_positive, check_share, check_weight
from sasr.shaping.rivals.state_vectors import StateVectors
from sasr.shaping.settings import check_choices


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
        check_choices(self)
        check_weight(self.weight)
        check_positive(self, "learning_rate", "clip")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden} has a layer without units; the default is (256, 256)")
        if self.outputs is not None and self.outputs < 1:
            raise ValueError(f"outputs={self.outputs} must be at least 1; with 64 errors seldom vanish by chance")
        if not self.bias >= 0.0:
            raise ValueError(f"bias={self.bias} must not be negative; 0 starts without biases, as published")
        check_share(self, "trained_share")
        check_discount(self, "horizon_discount")

    def weight_on(self, host: Host) -> float:
        """The weight; where none is given, one that suits what the host learns from."""
        if self.weight is not None:
            return self.weight
        if host.replay is None:
            return 1.0 if host.separate_stream else 0.5
        return 0.5 if self.normaliser == "replay" else 10.0


class Distillation(Shaper):
    """Adds a novelty of the next state, divided by what novelties add up to."""

    config: DistillationConfig
    moments: RunningMoments
    scale: RecentSum | ReturnSpread | TransposedSpread
    capturable = True
    compilable = ("absorb", "shape", "loss", "update_scale")
    checked = ("next_obs",)

    def make_networks(self, host: Host, stream: str, *, targets: int = 1, deeper: bool = False) -> None:
        """Draw the random networks and the predictor from the random stream of this name.

        Args:
            host: Gives spaces, seeds and the device.
            stream: Name of the stream of random numbers.
            targets: Random networks of each seed.
            deeper: On vectors, repeat the predictor's last hidden layer.
        """
        config, device = self.config, host.device
        self.weight = config.weight_on(host)
        self.states = StateVectors(host.observation_space, device)
        width, picture = self.states.width, self.states.picture
        self.output_count = config.outputs or (512 if picture else 64)
        init = MemberStreams(host.seeds, stream, CPU).generators
        parts: dict[str, Any] = {"picture": picture, "activation": config.activation, "bias": config.bias}
        # From pictures the target is linear in what its convolutions see; learning it takes two layers more.
        of_target = () if picture else config.hidden
        of_predictor = (*config.hidden, *config.hidden[-1:]) if deeper and not picture else config.hidden
        # Network i·P + p is seed p's i-th, so that an accelerator evaluates all of them at once.
        many = init * targets
        self.target = RandomNetwork(width, of_target, self.output_count, **parts, generators=many, device=device)
        self.target.requires_grad_(False)
        self.predictor = RandomNetwork(width, of_predictor, self.output_count, **parts, generators=init, device=device)
        self.adam = Adam(list(self.predictor.parameters()), lr=config.learning_rate)
        self.moments = RunningMoments(host.members, width, device)
        self.scale = self.make_scale(host)

    def make_scale(self, host: Host) -> RecentSum | ReturnSpread | TransposedSpread:
        """What a bonus is divided by."""
        discount, device = self.config.horizon_discount, host.device
        if self.config.normaliser == "replay":
            return RecentSum(host.members, discount=discount, device=device)
        # Rollouts are learned from without thousands of random steps before the first.
        learning = host.replay is None
        return ReturnSpread(host.members, host.envs, discount=discount, device=device, learning=learning)

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Take in one step of every environment; a step with a NaN or a wrong width is refused and nothing changes."""
        self.check(step)
        self.absorb(step.next_obs, step.valid_mask())

    def absorb(self, next_obs: Tensor, valid: Tensor) -> None:
        """Update the statistics of states and of bonuses by one step."""
        states, valid = self.states(next_obs), valid.to(self.bound.device)
        self.moments.merge(states, valid)
        if not isinstance(self.scale, RecentSum):
            self.scale.advance(self.raw_novelty(states), valid)

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """Weight · novelty of every sampled next state, (P, B), as it is now: old novelty is not paid for again."""
        self.check_batch(batch)
        return self.weight * self.novelty(self.states(batch.next_obs))

    @abstractmethod
    def raw_novelty(self, states: Tensor) -> Tensor:
        """Novelty (P, B) of states (P, B, width), before it is divided."""

    def novelty(self, states: Tensor) -> Tensor:
        """Novelty over what novelties add up to, (P, B)."""
        novelty: Tensor = self.raw_novelty(states) / self.scale()
        return novelty

    def standardise(self, states: Tensor) -> Tensor:
        """What the networks see of states (P, B, width)."""
        return self.moments.standardise(states, self.config.clip)
