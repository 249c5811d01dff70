"""ExploRS: a learned reward that makes the next policy better, and a bonus for what is new (Devidze et al., 2022).

The learned part R(s, a) rises where an action was better than expected by the environment's return, and is worth
nothing to a policy on average. The bonus lets learning start before any reward was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from sasr.experience.flatten import action_width, state_dtype
from sasr.experience.types import Batch, Host, Transition
from sasr.networks.adam import Adam
from sasr.networks.layers import PopulationMLP
from sasr.randomness import MemberStreams
from sasr.shaping.base import CPU, Shaper
from sasr.shaping.rivals.encoder import EncodedNetwork, ObservationEncoder
from sasr.shaping.rivals.explo import Explo
from sasr.shaping.rivals.ranges import check_at_least_one, check_not_negative, check_weight
from sasr.shaping.rivals.rnd import RND
from sasr.shaping.settings import check_choices, settings_from


@dataclass(frozen=True, kw_only=True)
class ExplorsConfig:
    """Settings of ExploRS beside an agent that learns from replay."""

    weight: float = 1.0
    """Weight of the learned reward and the bonus together; 0 is the plain agent."""
    learned_weight: float = 0.1
    """ε: the learned reward is in [−ε, ε]."""
    bonus_weight: float = 0.3
    """The bonus is in [0, this · bonus_max]."""
    bonus: Literal["counts", "network"] = "counts"
    """Novelty by the counts of a state's code (counts), or by the error of RND (network)."""
    bonus_scale: float = 1.0
    """λ: counts n give λ/√((λ/bonus_max)² + n)."""
    bonus_max: float = 1.0
    """The bonus of a state that was never counted."""
    bits: int = 32
    """Bits of a state's code, under bonus=counts."""
    first_states: int = 1_000
    """States of each seed that codes are standardised by, for good, under bonus=counts; 0: not at all."""
    delay: int = 50_000
    """Steps of each seed before the learned reward is added; it learns from the first step."""
    window: int = 5_000
    """Newest steps of each seed that it learns from, once their episodes have ended."""
    hidden: tuple[int, ...] = (256,)
    """Widths of the hidden layers of the learned reward and of its value function."""
    reward_lr: float = 3e-4
    """Adam's step size for the learned reward."""
    value_lr: float = 1e-3
    """Adam's step size for the value."""
    batch_size: int = 64
    """Steps of the window in an update."""
    actions: int = 16
    """Sampled actions that approximate an expectation over the policy."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_weight(self.weight)
        check_not_negative(self, "learned_weight", "bonus_weight", "bonus_scale", "bonus_max", "reward_lr", "value_lr")
        check_at_least_one(self, "bits", "window", "batch_size", "actions")
        if not (self.bonus_scale > 0.0 and self.bonus_max > 0.0):
            raise ValueError(
                f"bonus_scale={self.bonus_scale} and bonus_max={self.bonus_max} must be above 0; for no bonus take "
                "bonus_weight=0"
            )
        if self.delay < 0 or self.first_states < 0:
            raise ValueError(f"delay={self.delay} and first_states={self.first_states} must not be negative")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden} has a layer without units; the default is (256,)")


class Window(nn.Module):
    """The newest steps of every environment, each with the return that followed it once its episode has ended.

    Returns grow with every reward, by γ^age for all steps of the episode that is under way: tensor work of one shape.
    """

    obs: Tensor  # (P, R, E, *obs_shape)
    action: Tensor  # (P, R, E, A)
    ret: Tensor  # (P, R, E) the environment's discounted return from this step on
    under_way: Tensor  # (P, R, E) bool, its episode has not ended yet
    ready: Tensor  # (P, R, E) bool, it has
    cursor: Tensor  # (1,) int64, the row of the next step
    filled: Tensor  # (1,) int64, rows that hold a step
    row: Tensor  # (R,) int64, their numbers
    compilable = ("sample",)

    def __init__(self, host: Host, rows: int, action_width: int) -> None:
        super().__init__()
        shape, device = (host.members, rows, host.envs), host.device
        self.rows, self.discount = rows, host.discount
        space = host.observation_space
        self.register_buffer(
            "obs", torch.zeros((*shape, *(space.shape or ())), dtype=state_dtype(space), device=device)
        )
        self.register_buffer("action", torch.zeros((*shape, action_width), device=device))
        self.register_buffer("ret", torch.zeros(shape, device=device))
        self.register_buffer("under_way", torch.zeros(shape, dtype=torch.bool, device=device))
        self.register_buffer("ready", torch.zeros(shape, dtype=torch.bool, device=device))
        self.register_buffer("cursor", torch.zeros(1, dtype=torch.int64, device=device))
        self.register_buffer("filled", torch.zeros(1, dtype=torch.int64, device=device))
        self.register_buffer("row", torch.arange(rows, device=device), persistent=False)

    def add(self, obs: Tensor, action: Tensor, reward: Tensor, ends: Tensor, tail: Tensor) -> None:
        """One step (P, E, …); `tail` (P, E) is what would have followed where only a time limit ended the episode."""
        now = self.row.eq(self.cursor).unsqueeze(1)
        self.obs.index_copy_(1, self.cursor, obs.unsqueeze(1).to(self.obs.dtype))
        self.action.index_copy_(1, self.cursor, action.unsqueeze(1))
        self.ret.masked_fill_(now, 0.0)
        self.ready.masked_fill_(now, False)
        self.under_way.masked_fill_(now, True)
        age = (self.cursor - self.row) % self.rows
        faded = (self.discount**age)[:, None] * (reward + self.discount * tail).unsqueeze(1)
        self.ret.add_(torch.where(self.under_way, faded, 0.0))
        self.ready.logical_or_(self.under_way & ends.unsqueeze(1))
        self.under_way.logical_and_(~ends.unsqueeze(1))
        self.cursor.copy_((self.cursor + 1) % self.rows)
        self.filled.copy_((self.filled + 1).clamp(max=self.rows))

    def drop(self, interrupted: Tensor) -> None:
        """The returns of interrupted episodes (P, E) stay unknown."""
        self.under_way.logical_and_(~interrupted.to(self.under_way.device).unsqueeze(1))

    def sample(self, uniform: Tensor, member: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Observations, actions, returns and which returns are known, where numbers (P, B) in [0, 1) point to."""
        places = self.filled * self.ret.shape[2]
        place = torch.minimum((uniform * places).long(), (places - 1).clamp(min=0))
        obs, action, ret, ready = (part.flatten(1, 2) for part in (self.obs, self.action, self.ret, self.ready))
        return obs[member, place], action[member, place], ret[member, place], ready[member, place]


class ExploRS(Shaper):
    """Adds R(s, a) + B(s′): what helps the policy to the environment's reward, and what is new.

    >>> ExploRS(delay=1000).config.bonus
    'counts'
    """

    seen: Tensor  # () int64, steps of each seed so far
    member: Tensor  # (P, 1) int64, 0 … P − 1, to index by seed and place
    capturable = True
    compilable = ("absorb", "shape", "value_loss", "gain", "figures")
    checked = ("obs", "action", "next_obs", "reward")

    def __init__(self, *, config: ExplorsConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(ExplorsConfig, config, options)

    def make(self, host: Host) -> None:
        """Draw both networks, and make the window and what knows new states."""
        config, device = self.config, host.device
        self.policy_of(host)
        if config.window < host.envs:
            raise ValueError(f"window={config.window} must hold a step of each of the {host.envs} environments")
        init = MemberStreams(host.seeds, "explors", CPU).generators

        def network(beside: int) -> EncodedNetwork:
            encoder = ObservationEncoder(host.observation_space, generators=init, device=device)
            widths = (encoder.width + beside, *config.hidden, 1)
            return EncodedNetwork(encoder, PopulationMLP(widths, generators=init, device=device))

        actions = action_width(host.action_space)
        self.reward = network(beside=actions)
        self.value = network(beside=0)
        # A value of exactly 0 until there is a reward: Adam would learn from the smallest surprise as from a large one.
        for parameter in self.value.body.layers[-1].parameters():
            nn.init.zeros_(parameter)
        self.reward_adam = Adam(list(self.reward.parameters()), lr=config.reward_lr)
        self.value_adam = Adam(list(self.value.parameters()), lr=config.value_lr)
        self.window = Window(host, rows=config.window // host.envs, action_width=actions)
        self.counts: Explo | None = None
        self.network: RND | None = None
        if config.bonus == "counts":
            standardise = config.first_states > 0
            self.counts = Explo(bits=config.bits, standardise=standardise, first_states=max(1, config.first_states))
            self.counts.bind(host)
        else:
            self.network = RND(normaliser="replay", horizon_discount=0.0)
            self.network.bind(host)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("member", torch.arange(host.members, device=device)[:, None], persistent=False)
        self.streams = MemberStreams(host.seeds, "explors/update", device)

    # ------------------------------------------------------------------- steps

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Take in a step; one with a NaN or a wrong width is refused and nothing changes."""
        self.check(step)
        counted = torch.ones_like(step.terminated)
        if self.counts is not None and not self.counts.frozen:  # it holds the first states itself
            self.counts.observe(step._replace(next_obs=step.obs))
            counted = torch.zeros_like(counted)
        self.absorb(step.obs, step.action, step.reward, step.next_obs, step.terminated, step.truncated, counted)

    def absorb(
        self,
        obs: Tensor,
        action: Tensor,
        reward: Tensor,
        next_obs: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        counted: Tensor,
    ) -> None:
        """Put a step (P, E, …) into the window and count the states (P, E) that are to be counted."""
        parts = (obs, action, reward, next_obs, terminated, truncated, counted)
        on_device = (part.to(self.bound.device) for part in parts)
        obs, action, reward, next_obs, terminated, truncated, counted = on_device
        # What followed is not known where only a time limit ended the episode; the value stands in for it.
        tail = torch.where(truncated & ~terminated, self.value(next_obs).squeeze(-1), 0.0)
        self.window.add(obs, self.flat_actions(action), reward, terminated | truncated, tail)
        self.seen.add_(self.bound.envs)
        if self.counts is not None:
            # The state that was left is counted, the one that was reached gets the bonus.
            self.counts.absorb(obs, counted)
        if self.network is not None:
            self.network.absorb(next_obs, torch.ones_like(terminated))

    def interrupt(self, interrupted: Tensor, step: Transition | None) -> Transition | None:
        """Close interrupted episodes (P, E): with their last step as at a time limit, or without a return."""
        if step is None:
            self.window.drop(interrupted)
        return super().interrupt(interrupted, step)

    # ------------------------------------------------------------------- bonus

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """Weight · (ε·R(s, a) + bonus_weight · B(s′)) of every sampled step, (P, B); B is 0 behind a termination."""
        self.check_batch(batch)
        learned = self.learned(batch.obs, self.flat_actions(batch.action))
        learned = learned.masked_fill(self.seen < self.config.delay, 0.0)
        bonus = self.bonus(batch.next_obs).masked_fill(batch.terminated.bool(), 0.0)
        return self.config.weight * (self.config.learned_weight * learned + self.config.bonus_weight * bonus)

    def learned(self, obs: Tensor, beside: Tensor) -> Tensor:
        """R(s, a) in [−1, 1], (P, B)."""
        learned: Tensor = self.reward(obs, beside)
        return learned.squeeze(-1).tanh()

    def bonus(self, obs: Tensor) -> Tensor:
        """B(s) in [0, bonus_max], (P, B)."""
        config = self.config
        if self.counts is not None:
            n = self.counts.counts(self.counts.states(obs)).float()
            return config.bonus_scale * ((config.bonus_scale / config.bonus_max) ** 2 + n).rsqrt()
        assert self.network is not None
        return config.bonus_max * self.network.novelty(self.network.states(obs)).clamp(max=1.0)

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One step of the value and of the learned reward on the window; their outputs, and what is new."""
        self.check_batch(batch)
        like = torch.empty((self.bound.members, self.config.batch_size), device=self.bound.device)
        obs, beside, ret, known = self.window.sample(self.streams.uniform(like), self.member)
        others = self.policy_of(self.bound).propose(_each(obs, self.config.actions), self.streams)
        value_loss, of_value, advantage = self.value_loss(obs, ret, known)
        gain, learned = self.gain(obs, beside, advantage, self.flat_actions(others))
        self.value_adam.minimise(value_loss)
        self.reward_adam.minimise(-gain.sum())
        if self.network is not None:
            self.network.update(batch)
        return self.figures(batch, learned, advantage, of_value, known)

    @torch.no_grad()
    def figures(
        self, batch: Batch, learned: Tensor, advantage: Tensor, value_loss: Tensor, known: Tensor
    ) -> dict[str, Tensor]:
        """Figures (P,)."""
        return {
            "learned_mean": learned.mean(1),
            "learned_spread": learned.std(1, correction=0),
            "learned_paid": (self.seen >= self.config.delay).float().expand(self.bound.members).clone(),
            "advantage_size": advantage.abs().mean(1),
            "value_loss": value_loss,
            "novelty": self.bonus(batch.next_obs).mean(1),
            "window_ready": known.float().mean(1),
        }

    def value_loss(self, obs: Tensor, ret: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The value's loss, summed over P and for each (P,), and by how much known returns were better, (P, B)."""
        value = self.value(obs).squeeze(-1)
        error = smooth_l1_loss(value, ret, reduction="none") * known
        advantage = torch.where(known, ret - value.detach(), 0.0)
        loss = error.sum(1) / known.sum(1).clamp(min=1)
        return loss.sum(), loss.detach(), advantage

    def gain(self, obs: Tensor, beside: Tensor, advantage: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """How much better the next policy gets by R, (P,): π(a|s)·A(s, a)·(R(s, a) − Σ_b π(b|s)·R(s, b)); and R.

        `others` (P, B·n, A) are n draws b for each of the states.
        """
        n = self.config.actions
        with torch.no_grad():
            likelihood = self.policy_of(self.bound).likelihood(obs, self._stored(beside))
        vectors = self.reward.encoder(obs)
        learned = self.reward.outputs(vectors, beside).squeeze(-1).tanh()
        every = self.reward.outputs(_each(vectors, n), others).squeeze(-1).tanh()
        usual = every.view(*advantage.shape, n).mean(2)
        return (likelihood * advantage * (learned - usual)).mean(1), learned.detach()

    def _stored(self, beside: Tensor) -> Tensor:
        """Actions (P, B, *action_shape) again from the vectors that the window keeps."""
        space = self.bound.action_space
        if isinstance(space, gym.spaces.Discrete):
            return beside.argmax(-1) + int(space.start)
        return beside.view(*beside.shape[:2], *(space.shape or ()))


def _each(x: Tensor, n: int) -> Tensor:
    """Rows (P, B, …) n times each, (P, B·n, …)."""
    return x.unsqueeze(2).expand(-1, -1, n, *x.shape[2:]).flatten(1, 2)
