"""#Explo: counts of hashed states (Tang et al., 2017), static SimHash codes in a count-min sketch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from sasr.experience.types import Batch, Host, Transition
from sasr.randomness import MemberStreams
from sasr.shaping.base import CPU, Shaper
from sasr.shaping.rivals.ranges import check_positive, check_weight
from sasr.shaping.rivals.state_vectors import StateVectors
from sasr.shaping.settings import settings_from

PRIMES = (999_931, 999_953, 999_959, 999_961, 999_979, 999_983)
"""Lengths of the sketch's arrays, as released: 24 MB for each seed."""


@dataclass(frozen=True, kw_only=True)
class ExploConfig:
    """Settings of #Explo."""

    weight: float | None = None
    """Weight β of the bonus 1/√n; 0 is the plain agent. None is 0.1, and 0.01 · 256/bits for images."""
    bits: int | None = None
    """Bits of a code: more bits distinguish more states. None is 64, and 256 for images."""
    standardise: bool = True
    """Standardise vectors, and centre images, by the first states; raw states hash by direction only."""
    first_states: int = 1_000
    """Number of each seed's first states that fix the standardisation; they are counted afterwards."""
    offset: float = 4.0
    """A constant that is hashed with each state, so that its size counts and not only its direction; in units of the
    typical length of a standardised state. Larger ones spend more bits on what is far from the first states."""
    primes: tuple[int, ...] = PRIMES
    """Lengths of the sketch's arrays; several times the number of codes, or counts come out too high."""

    def __post_init__(self) -> None:
        check_weight(self.weight)
        check_positive(self, "first_states")
        if self.bits is not None and self.bits < 1:
            raise ValueError(f"bits={self.bits} must be at least 1; 64 is the default for vectors")
        if not self.primes or min(self.primes) < 2:
            raise ValueError(f"primes={self.primes} must be lengths of at least one array, each 2 or more")
        if len(set(self.primes)) < len(self.primes):
            raise ValueError(f"primes={self.primes} has a duplicate; arrays of one length make the same errors")


class Explo(Shaper):
    """Adds 1/√n for reaching a state whose code was reached n times.

    >>> Explo(bits=16).config.weight is None
    True
    """

    projection: Tensor  # (P, width + 1, bits) float64
    centre: Tensor  # (P, width)
    scale: Tensor  # (P, width)
    table: Tensor  # (P, arrays, longest) int32
    codes: Tensor  # (P,) int64, different codes so far
    held: Tensor  # (P, room, width) the first states, until there are enough of them
    held_valid: Tensor  # (P, room) bool
    capturable = True
    compilable = ("absorb", "shape", "update")
    checked = ("next_obs",)

    def __init__(self, *, config: ExploConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = settings_from(ExploConfig, config, options)

    def make(self, host: Host) -> None:
        """Draw the projection and clear the table."""
        config, device = self.config, host.device
        P = host.members
        self.vectors = StateVectors(host.observation_space, device)
        if self.vectors.picture:
            height, width = self.vectors.picture
            self.width = (height // 2) * (width // 2)
            bits = config.bits or 256
            self.weight = 2.56 / bits
        else:
            self.width = self.vectors.width
            bits = config.bits or 64
            self.weight = 0.1
        if config.weight is not None:
            self.weight = config.weight
        init = MemberStreams(host.seeds, "explo", CPU).generators
        drawn = [torch.randn(self.width + 1, bits, generator=g, dtype=torch.float64) for g in init]
        # In float64: a state must have the same code alone and in a batch, whose products round otherwise.
        self.register_buffer("projection", torch.stack(drawn).to(device))
        # Powers of two modulo each prime: sums of them are whole numbers below 2⁵³, which float64 holds exactly.
        powers = [[pow(2, bit, prime) for prime in config.primes] for bit in range(bits)]
        self.register_buffer("powers", torch.tensor(powers, dtype=torch.float64, device=device), persistent=False)
        self.register_buffer("primes", torch.tensor(config.primes, device=device)[:, None], persistent=False)
        shape = (P, len(config.primes), max(config.primes))
        self.register_buffer("table", torch.zeros(shape, dtype=torch.int32, device=device))
        self.register_buffer("codes", torch.zeros(P, dtype=torch.int64, device=device))
        self.register_buffer("centre", torch.zeros((P, self.width), device=device))
        self.register_buffer("scale", torch.ones((P, self.width), device=device))
        self.register_growing("held", torch.zeros((P, 0, self.width)), axis=1)
        self.register_growing("held_valid", torch.zeros((P, 0), dtype=torch.bool), axis=1)
        # Counters are plain ints, decided where steps come from. They travel as extra state.
        self.frozen, self.holds = not config.standardise, 0

    # ------------------------------------------------------- from steps to counts

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Count one step of every environment, or keep it until there are enough to standardise by."""
        self.check(step)
        valid = step.valid_mask()
        if self.frozen:
            self.absorb(step.next_obs, valid)
            return
        valid = valid.to(CPU)
        end = self.holds + self.bound.envs
        states = torch.where(valid[..., None], self.states(step.next_obs).to(CPU), 0.0)  # a dead step may hold NaN
        for name, entry in (("held", states), ("held_valid", valid)):
            self.grow(name, end)
            getattr(self, name)[:, self.holds : end] = entry
        self.holds = end
        if self.holds >= self.config.first_states:
            self._freeze()

    def _freeze(self) -> None:
        """Standardise by the states held, for good, and count them: a code that moved would lose its count."""
        states, valid = self.held[:, : self.holds], self.held_valid[:, : self.holds]
        rows = valid[..., None]
        seen = rows.sum(1, keepdim=True).clamp(min=1)
        mean = torch.where(rows, states, 0.0).sum(1, keepdim=True) / seen
        off = torch.where(rows, states - mean, 0.0)
        self.centre.copy_(mean[:, 0])
        if not self.vectors.picture:  # a pixel that hardly ever changes would outweigh all others
            self.scale.copy_((off.square().sum(1) / seen[:, 0] + 1e-8).sqrt())
        for row in range(self.holds):
            device = self.bound.device
            self.count(states[:, row : row + 1].to(device), valid[:, row : row + 1].to(device))
        self.frozen, self.holds = True, 0
        self.held, self.held_valid = self.held[:, :0].clone(), self.held_valid[:, :0].clone()

    def absorb(self, next_obs: Tensor, valid: Tensor) -> None:
        """Count the codes of one step."""
        self.count(self.states(next_obs), valid.to(self.bound.device))

    def count(self, states: Tensor, valid: Tensor) -> None:
        """Add one to the codes of states (P, E, width) that are valid (P, E)."""
        keys = self.keys(states)
        for env, env_valid in enumerate(valid.unbind(1)):
            key = keys[..., env : env + 1]
            # One by one, so that a code that is new and comes from two environments is new once.
            self.codes.add_((self._read(key) == 0)[:, 0] & env_valid)
            self.table.scatter_add_(2, key, env_valid[:, None, None].expand_as(key).to(self.table.dtype))

    # ------------------------------------------------------- from counts to bonus

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """Weight · novelty of every sampled next state, (P, B), as it is now: old novelty is not paid for again."""
        self.check_batch(batch)
        return self.weight * self.novelty(self.states(batch.next_obs))

    def states(self, obs: Tensor) -> Tensor:
        """Observations as float vectors: of a picture the newest frame, at half its size and scaled to [−1, 1]."""
        vectors = self.vectors(obs)
        if not self.vectors.picture:
            return vectors
        small = avg_pool2d(vectors.view(*vectors.shape[:2], *self.vectors.picture), 2)
        return small.flatten(2) / 127.5 - 1.0

    def bits(self, states: Tensor) -> Tensor:
        """Codes (P, n, bits) of 0 and 1 of states (P, n, width)."""
        x = states
        if self.config.standardise:
            x = (states - self.centre[:, None]) / self.scale[:, None]  # not clipped: far states would share a code
        constant = self.config.offset * self.width**0.5
        x = torch.cat([x, torch.full_like(x[..., :1], constant)], dim=-1).double()
        if x.device.type != "cpu":
            return torch.bmm(x, self.projection) >= 0.0
        # One by one, so that a seed's bits do not depend on how many others there are.
        return torch.stack([rows @ projection for rows, projection in zip(x, self.projection, strict=True)]) >= 0.0

    def keys(self, states: Tensor) -> Tensor:
        """Places (P, arrays, n) in the sketch's arrays of states (P, n, width)."""
        sums = self.bits(states).double() @ self.get_buffer("powers")
        return sums.long().transpose(1, 2) % self.get_buffer("primes")

    def counts(self, states: Tensor) -> Tensor:
        """How often the codes of states (P, n, width) were reached, (P, n); never too few, now and then too many."""
        return self._read(self.keys(states))

    def _read(self, keys: Tensor) -> Tensor:
        return self.table.gather(2, keys).amin(1)

    def novelty(self, states: Tensor) -> Tensor:
        """1/√n, (P, B); 0 while there are too few states to standardise by."""
        n = self.counts(states)
        # A state that was never counted gets the bonus of one that was reached once, as when counting comes first.
        return torch.where(self.codes[:, None] > 0, n.clamp(min=1).float().rsqrt(), 0.0)

    @torch.no_grad()
    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """Nothing to train; how many codes there are, and how often those of the batch were reached, each (P,)."""
        self.check_batch(batch)
        n = self.counts(self.states(batch.next_obs)).float()
        return {
            "codes": self.codes.float(),
            "count_mean": n.mean(1),
            "new_states": (n <= 1.0).float().mean(1),
        }

    # ----------------------------------------------------------- checkpoints

    def get_extra_state(self) -> Tensor:
        """Whether the standardisation is settled, and the number of states held for it; a checkpoint has no pickle."""
        return torch.tensor([int(self.frozen), self.holds])

    def set_extra_state(self, state: Any) -> None:
        """Go on where the saved one stood."""
        frozen, self.holds = state.tolist()
        self.frozen = bool(frozen)
