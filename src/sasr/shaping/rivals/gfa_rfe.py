"""GFA-RFE: a bonus for what an ensemble of value functions does not agree on (Zhang et al., 2024).

The ensemble learns the value of its own disagreement, one network at a time, and weighs a sample by how certain its
target is. Here it stands beside the agent, whose critics learn the environment's reward and the bonus together; so
the bonus gets a scale, which the published form does not need: there the bonus is the only reward.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from sasr.experience.flatten import action_width
from sasr.experience.types import Batch, Host, Transition
from sasr.networks.adam import Adam
from sasr.networks.layers import PopulationLinear, linear
from sasr.randomness import MemberStreams
from sasr.shaping.base import CPU, Shaper
from sasr.shaping.rivals.encoder import ObservationEncoder
from sasr.shaping.rivals.moments import RecentSum, ReturnSpread, spread
from sasr.shaping.rivals.ranges import (
    check_at_least_one,
    check_discount,
    check_not_negative,
    check_share,
    check_weight,
)
from sasr.shaping.settings import check_choices, settings_from

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, kw_only=True)
class GfaRfeConfig:
    """Settings of GFA-RFE beside an agent that learns from replay; `RELEASED` are those of the released code."""

    weight: float | None = None
    """Weight of the bonus; 0 is the plain agent. None is 5 for a bonus that fades, and else 0.5."""
    normaliser: Literal["return", "replay", "none"] = "return"
    """What the bonus is divided by before it is paid: the spread of its discounted sums since learning began, so that
    it fades (return), its recent mean over sampled steps, as a sum over the horizon (replay), or nothing, as published.
    The ensemble learns the value of the bonus as it is, but the deviations that samples are weighed by are in units of
    their mean over the batch, unless nothing is divided."""
    horizon_discount: float = 0.99
    """The discount γ of that sum, in [0, 1)."""
    networks: int = 10
    """Value functions K in the ensemble, at least 2."""
    width: int = 256
    """Width of the hidden layers; the released code has 1024."""
    learning_rate: float = 1e-3
    """Adam's step size; the released 1e-4 is for half a million updates on batches of 1024."""
    confidence: float = 2.0
    """c: the bonus is c times the ensemble's standard deviation."""
    bonus_max: float = 10.0
    """The largest bonus before it is divided and weighted."""
    value_max: float = 500.0
    """The largest target value of the ensemble."""
    deviation_min: float = 0.1
    """Samples are weighed by one over the square of their target's deviation, which is taken to be at least this."""
    deviation_max: float = 10.0
    """And at most this."""
    tau: float = 0.05
    """Share of the ensemble that moves into its targets in K updates, in (0, 1]; with 10 networks 0.05 is the pace of
    SAC's own targets, and the released code has 0.01."""
    explore_steps: int = 0
    """Steps of each seed in which the bonus is the only reward, with no bonus afterwards; 0 adds it to the reward."""
    compat: bool = False
    """As in the released code: initial weights scaled by the number of outputs, and one Adam for all networks."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_weight(self.weight)
        check_at_least_one(self, "width")
        check_share(self, "tau")
        check_not_negative(self, "learning_rate", "confidence", "bonus_max", "value_max")
        check_discount(self, "horizon_discount")
        if self.networks < 2:
            raise ValueError(f"networks={self.networks} can't disagree; take at least 2, the released code has 10")
        if not 0.0 < self.deviation_min <= self.deviation_max:
            raise ValueError(
                f"deviation_min={self.deviation_min} must be above 0 and not above deviation_max={self.deviation_max}"
            )
        if self.explore_steps < 0:
            raise ValueError(f"explore_steps={self.explore_steps} must not be negative; 0 pays reward and bonus")

    @property
    def chosen_weight(self) -> float:
        """The weight, where none is given that which suits the normaliser."""
        if self.weight is not None:
            return self.weight
        return 5.0 if self.normaliser == "return" else 0.5


RELEASED = GfaRfeConfig(weight=1.0, normaliser="none", width=1024, learning_rate=1e-4, tau=0.01, compat=True)
"""What the released code runs, as far as one step at a time can be that: it has three-step returns."""


class Ensemble(nn.Module):
    """K value functions for each of P seeds: network i·P + p is seed p's i-th.

    Linear, layer norm, tanh, linear, ReLU, linear. Each has a layer norm of its own, so that none moves with another.
    """

    def __init__(
        self, inputs: int, config: GfaRfeConfig, generators: Sequence[torch.Generator], device: torch.device
    ) -> None:
        super().__init__()
        self.networks, self.members = config.networks, len(generators)
        all_generators = [*generators] * config.networks
        width = config.width
        sizes = ((inputs, width), (width, width), (width, 1))
        self.layers = nn.ModuleList(PopulationLinear(*size, generators=all_generators, device=device) for size in sizes)
        if config.compat:
            with torch.no_grad():
                for (fan_in, fan_out), layer in zip(sizes, self.layers, strict=True):
                    layer.weight.mul_((fan_in / fan_out) ** 0.5)  # type: ignore[operator]
        self.gain = nn.Parameter(torch.ones((len(all_generators), width), device=device))
        self.shift = nn.Parameter(torch.zeros((len(all_generators), width), device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Values (K, P, B) of inputs (P, B, k)."""
        values = self.values(x.repeat(self.networks, 1, 1), list(self.parameters()))
        return values.view(self.networks, *x.shape[:2])

    def values(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Values (N, B) of inputs (N, B, k) by N networks with these parameters, in the order of `parameters`."""
        gain, shift, *layers = parameters
        (w1, b1), (w2, b2), (w3, b3) = zip(layers[::2], layers[1::2], strict=True)
        x = linear(x, w1, b1)
        x = layer_norm(x, x.shape[-1:]) * gain.unsqueeze(1) + shift.unsqueeze(1)
        return linear(linear(x.tanh(), w2, b2).relu(), w3, b3).squeeze(-1)

    def by_network(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The same tensors as (K, P, …)."""
        return [tensor.view(self.networks, self.members, *tensor.shape[1:]) for tensor in tensors]


class TurnAdam(nn.Module):
    """Adam for one of K networks at a time, so that those whose turn it is not stay as they are."""

    steps: Tensor  # (K,)
    compilable = ("step",)

    def __init__(self, ensemble: Ensemble, *, lr: float, together: bool) -> None:
        super().__init__()
        self.lr, self.together = lr, together
        self.ensemble = [ensemble]  # in a list: its owner registers it
        device = ensemble.gain.device
        self.register_buffer("steps", torch.zeros(ensemble.networks, device=device))
        for index, parameter in enumerate(ensemble.by_network(list(ensemble.parameters()))):
            self.register_buffer(f"mean_{index}", torch.zeros_like(parameter))
            self.register_buffer(f"square_{index}", torch.zeros_like(parameter))

    @torch.no_grad()
    def step(self, turn: Tensor, gradients: Sequence[Tensor]) -> None:
        """Move the networks of number `turn` (1,) of all seeds against their gradients, each (P, …)."""
        (ensemble,) = self.ensemble
        all_networks = torch.arange(ensemble.networks, device=turn.device)
        # The released code's one Adam gives the others a gradient of 0, and their momentum goes on moving them.
        moved = all_networks if self.together else turn
        self.steps.index_add_(0, moved, torch.ones_like(moved, dtype=self.steps.dtype))
        parameters = ensemble.by_network(list(ensemble.parameters()))
        for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            if self.together:
                gradient = torch.zeros_like(parameter).index_copy_(0, turn, gradient.unsqueeze(0))
            else:
                gradient = gradient.unsqueeze(0)
            mean, square = self.get_buffer(f"mean_{index}"), self.get_buffer(f"square_{index}")
            first = mean.index_select(0, moved).lerp(gradient, 1.0 - _BETA_1)
            second = square.index_select(0, moved).lerp(gradient.square(), 1.0 - _BETA_2)
            steps = self.steps.index_select(0, moved).view(-1, *(1,) * (gradient.dim() - 1))
            size = self.lr / (1.0 - _BETA_1**steps)
            change = size * first / ((second / (1.0 - _BETA_2**steps)).sqrt() + _EPSILON)
            mean.index_copy_(0, moved, first)
            square.index_copy_(0, moved, second)
            parameter.index_add_(0, moved, change, alpha=-1)


class GfaRfe(Shaper):
    """Adds c times the standard deviation of K value functions at a state and action.

    >>> GfaRfe(networks=5).config.confidence
    2.0
    """

    turn: Tensor  # (1,) int64, the network that learns next
    seen: Tensor  # () int64, steps of each seed so far
    capturable = True
    compilable = ("absorb", "shape", "target", "select", "loss", "update_scale", "update_targets")
    checked = ("obs", "action", "next_obs", "reward")

    def __init__(self, *, config: GfaRfeConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(GfaRfeConfig, config, options)

    def make(self, host: Host) -> None:
        """Draw the ensemble."""
        config, device = self.config, host.device
        self.policy_of(host)
        self.discount = host.discount
        init = MemberStreams(host.seeds, "gfa_rfe", CPU).generators
        self.encoder = ObservationEncoder(host.observation_space, generators=init, device=device)
        self.target_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.ensemble = Ensemble(self.encoder.width + action_width(host.action_space), config, init, device)
        self.targets = copy.deepcopy(self.ensemble).requires_grad_(False)
        self.adam = TurnAdam(self.ensemble, lr=config.learning_rate, together=config.compat)
        # All value functions of a seed share one encoder of pictures, which every update trains.
        encoder_parameters = list(self.encoder.parameters())  # none, but for pictures
        self.encoder_adam = Adam(encoder_parameters, lr=config.learning_rate) if encoder_parameters else None
        discount = config.horizon_discount
        self.scale: RecentSum | ReturnSpread = RecentSum(host.members, discount=discount, device=device)
        if config.normaliser == "return":
            self.scale = ReturnSpread(host.members, host.envs, discount=discount, device=device, learning=False)
        self.register_buffer("turn", torch.zeros(1, dtype=torch.int64, device=device))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64, device=device))
        self.streams = MemberStreams(host.seeds, "gfa_rfe/update", device)

    # ------------------------------------------------------------------- bonus

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Count a step and take in its bonus; the ensemble learns from what is sampled.

        A step with a NaN or a wrong width is refused.
        """
        self.check(step)
        self.absorb(step.obs, step.action, step.valid_mask())

    def absorb(self, obs: Tensor, action: Tensor, valid: Tensor) -> None:
        """Count a step (P, E, …) and take in its bonus where it is valid (P, E)."""
        self.seen.add_(self.bound.envs)
        if isinstance(self.scale, ReturnSpread):
            device = self.bound.device
            bonus = self.bonus(self._encoded(self.target_encoder, obs.to(device), action.to(device)))
            self.scale.advance(bonus, valid.to(device))

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """Weight · c · the ensemble's deviation for every sampled state and action, over its scale, (P, B)."""
        self.check_batch(batch)
        bonus = self.config.chosen_weight * self.bonus(self._encoded(self.target_encoder, batch.obs, batch.action))
        if self.config.normaliser != "none":
            bonus = bonus / self.scale()
        if not self.config.explore_steps:
            return bonus
        exploring = self.seen <= self.config.explore_steps
        return torch.where(exploring, bonus - batch.reward, 0.0)

    def bonus(self, x: Tensor) -> Tensor:
        """min(c·std, bonus_max) of the target ensemble at inputs (P, B, k), (P, B)."""
        bonus: Tensor = self.config.confidence * self.targets(x).std(0)
        return bonus.clamp(max=self.config.bonus_max)

    def _encoded(self, encoder: ObservationEncoder, obs: Tensor, action: Tensor) -> Tensor:
        return torch.cat([encoder(obs), self.flat_actions(action)], dim=-1)

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One network's step towards the value of the bonus; the ensemble's deviations and what it learns."""
        self.check_batch(batch)
        action = self.policy_of(self.bound).propose(batch.next_obs, self.streams)
        target, deviation, bonus = self.target(batch, action)
        weight = deviation.square().reciprocal()
        loss = self.fit(self._encoded(self.encoder, batch.obs, batch.action), target, weight=weight)
        return self.update_scale(bonus, target, loss, weight)

    def update_scale(self, bonus: Tensor, target: Tensor, loss: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Take bonuses (P, B) into the scale; figures (P,)."""
        self.scale.update(bonus)
        return {
            "deviation": bonus.mean(1) / max(self.config.confidence, 1e-12),
            "novelty_spread": spread(bonus),
            "bonus_scale": self.scale()[:, 0],
            "bonus_at_limit": (bonus >= self.config.bonus_max).float().mean(1),
            "intrinsic_value": target.mean(1),
            "ensemble_loss": loss,
            "sample_weight": weight.mean(1),
        }

    @torch.no_grad()
    def target(self, batch: Batch, next_action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the ensemble is taught, its deviation at s′ and a′ = `next_action`, and the bonus in it, each (P, B).

        Bootstraps at the ends of episodes too: an end does not make a state's value known.
        """
        bonus = self.bonus(self._encoded(self.target_encoder, batch.obs, batch.action))
        next_values = self.targets(self._encoded(self.target_encoder, batch.next_obs, next_action))
        value = (bonus + self.discount * next_values.mean(0)).clamp(0.0, self.config.value_max)
        deviation: Tensor = next_values.std(0)
        if self.config.normaliser != "none":
            # In the ensemble's own units all would soon be below the least one, and every sample would weigh the same.
            deviation = deviation / deviation.mean(1, keepdim=True).clamp(min=1e-12)
        return value, deviation.clamp(self.config.deviation_min, self.config.deviation_max), bonus

    def fit(self, x: Tensor, target: Tensor, *, weight: Tensor) -> Tensor:
        """One step of the network whose turn it is towards targets (P, B); its weighted squared error (P,)."""
        chosen = [parameter.requires_grad_() for parameter in self.select()]
        encoder = list(self.encoder.parameters())
        total, loss = self.loss(x, target, weight, chosen)
        gradients = torch.autograd.grad(total, [*chosen, *encoder])
        self.adam.step(self.turn, gradients[: len(chosen)])
        if self.encoder_adam is not None:
            self.encoder_adam.step(list(gradients[len(chosen) :]))
        self.update_targets()
        return loss

    @torch.no_grad()
    def select(self) -> list[Tensor]:
        """The parameters (P, …) of the network whose turn it is."""
        everyone = self.ensemble.by_network(list(self.ensemble.parameters()))
        return [parameter.index_select(0, self.turn).squeeze(0) for parameter in everyone]

    def loss(self, x: Tensor, target: Tensor, weight: Tensor, chosen: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Weighted squared errors of the networks with parameters `chosen`: summed over P, and each (P,)."""
        loss = (weight * (self.ensemble.values(x, chosen) - target).square()).mean(1)
        return loss.sum(), loss.detach()

    @torch.no_grad()
    def update_targets(self) -> None:
        """Soft update of the targets; the next network takes its turn."""
        self.turn.copy_((self.turn + 1) % self.config.networks)
        share = self.config.tau / self.config.networks  # all of them, though only one has moved
        targets: list[Tensor] = [*self.targets.parameters(), *self.target_encoder.parameters()]
        torch._foreach_lerp_(targets, [*self.ensemble.parameters(), *self.encoder.parameters()], share)
