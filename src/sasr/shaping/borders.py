"""What the shapers that learn from states and actions share: their host, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sasr.experience.growing import GrowingModule
from sasr.experience.spaces import action_width, flatten_actions, state_width
from sasr.experience.transition import Batch, Host, PolicyView, Transition


class BoundShaper(GrowingModule):
    """A shaper of one host. A method defines `make` (its parts), `observe`, `shape` and `update`."""

    capturable = True
    member: Tensor  # (P, 1) int64, the members' numbers, to look a column up by member and slot

    def __init__(self) -> None:
        super().__init__()
        self.host: Host | None = None

    # ---------------------------------------------------------------- set-up

    def bind(self, host: Host) -> None:
        """Take on a host's spaces, seeds and device; a shaper serves one host."""
        if self.host is not None:
            name = type(self).__name__
            raise RuntimeError(f"this shaper is bound to a host already; make a new {name} for another one")
        self.obs_width, self.action_width = state_width(host.observation_space), action_width(host.action_space)
        self.register_buffer("member", torch.arange(host.members, device=host.device)[:, None], persistent=False)
        self.make(host)
        self.host = host  # last: a host that was refused above leaves the shaper free for another

    def make(self, host: Host) -> None:
        """Make networks and counts for a host."""
        raise NotImplementedError

    @property
    def policy(self) -> PolicyView:
        """The host's policy as it is now."""
        return self.policy_of(self.bound)

    def policy_of(self, host: Host) -> PolicyView:
        """A host's policy, or an error that says who has one."""
        if host.policy is None:
            raise ValueError(
                f"{type(self).__name__} asks the agent what it would do, but this host does not show its policy; train "
                "it with an agent that has `propose` and `likelihood`, such as sac"
            )
        return host.policy

    @property
    def bound(self) -> Host:
        """The host, or an error that says to bind one."""
        if self.host is None:
            raise RuntimeError("this shaper is not bound to a host yet; call shaper.bind(Host(...)) first")
        return self.host

    # ----------------------------------------------------------------- steps

    def release(self, slots: Tensor) -> None:
        """Forget replay slots (P, E) that the host is about to overwrite; nothing is kept by slot here."""

    def pair(self, action: Tensor) -> Tensor:
        """Actions (P, B, …) as the float vectors (P, B, A) that networks take beside a state; discrete ones one-hot."""
        return flatten_actions(self.bound.action_space, action, 2)

    # --------------------------------------------------------------- borders

    def check(self, step: Transition) -> None:
        """Raise a ValueError that names the member and dimension if `step` can't be learned from; changes nothing."""
        host = self.bound
        shape = (host.members, host.envs)
        for name, width in (("obs", self.obs_width), ("action", self._entries()), ("next_obs", self.obs_width)):
            part: Tensor = getattr(step, name)
            _check_leading(name, part, shape)
            rows = part.reshape(*shape, -1)
            if rows.shape[-1] != width:
                raise ValueError(f"{name} has {rows.shape[-1]} features, but this shaper was bound to {width}")
            _check_finite(name, rows, step.valid)
        _check_leading("reward", step.reward, shape)
        _check_finite("reward", step.reward[..., None], step.valid)

    def check_batch(self, batch: Batch) -> None:
        """Raise a ValueError if a batch is of another host; looks at shapes alone."""
        host, home, here = self.bound, self.bound.device, batch.obs.device
        if here.type != home.type or (home.index is not None and here.index != home.index):
            raise ValueError(
                f"batch is on {here}, but this shaper was bound to {home}; move it with .to({str(home)!r})"
            )
        width = math.prod(batch.obs.shape[2:])
        if batch.obs.shape[0] != host.members or width != self.obs_width:
            raise ValueError(
                f"batch has {batch.obs.shape[0]} members of {width} features, but this shaper was bound to "
                f"{host.members} of {self.obs_width}"
            )
        entries = math.prod(batch.action.shape[2:])
        if entries != self._entries():
            raise ValueError(f"batch has actions of {entries} entries, but this shaper was bound to {self._entries()}")

    def _entries(self) -> int:
        """Entries of an action as a host stores it."""
        return math.prod(self.bound.action_space.shape or ())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Continue from a saved state; one that does not fit is refused before anything changes."""
        _ = self.bound
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of a tensor's shape, for `MemberStreams.draw`."""
    return torch.randn(like.shape, generator=generator, device=like.device)


def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1) of a tensor's shape, for `MemberStreams.draw`."""
    return torch.rand(like.shape, generator=generator, device=like.device)


def check_rates(config: object, *names: str) -> None:
    """Raise unless the named settings are not negative and finite."""
    for name in names:
        value = getattr(config, name)
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{name}={value} must be a number that is not negative")


def check_sizes(config: object, *names: str) -> None:
    """Raise unless the named settings are at least 1."""
    for name in names:
        value = getattr(config, name)
        if not value >= 1:
            raise ValueError(f"{name}={value} must be at least 1")


def check_share(config: object, *names: str) -> None:
    """Raise unless the named settings are in (0, 1]."""
    for name in names:
        value = getattr(config, name)
        if not 0.0 < value <= 1.0:
            raise ValueError(f"{name}={value} must be in (0, 1]")


def _check_leading(name: str, part: Tensor, shape: tuple[int, int]) -> None:
    if tuple(part.shape[:2]) != shape:
        raise ValueError(f"{name} has leading axes {tuple(part.shape[:2])}, expected (members, envs) = {shape}")


def _check_finite(name: str, rows: Tensor, valid: Tensor | None) -> None:
    if not rows.dtype.is_floating_point or np.isfinite(rows.cpu().numpy()).all():
        return
    bad = ~torch.isfinite(rows)
    if valid is not None:
        bad &= valid[..., None]
    if bad.any():
        p, e, d = bad.nonzero()[0].tolist()
        what = f"{name} of member {p}, environment {e} is {rows[p, e, d].item()} in dimension {d}"
        raise ValueError(f"{what}; the step is refused and nothing was learned: mend the environment")
