"""What the shapers that pay for novelty share: the state that was reached, how it is looked at, and their borders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sasr.experience.growing import GrowingModule
from sasr.experience.spaces import state_width
from sasr.experience.transition import Batch, Host, Transition
from sasr.networks.perception import picture_axes


class NoveltyShaper(GrowingModule):
    """Pays weight · novelty(s′): for having reached a state, not for having left one.

    A method defines `make` (its parts, for a host), `absorb` (take a step in), `novelty` and `update`. Everything
    after the border checks is tensor work of fixed shapes, so that it can be captured.
    """

    capturable = True
    pays: float
    """Weight of the bonus, once bound."""

    def __init__(self) -> None:
        super().__init__()
        self.host: Host | None = None

    # ---------------------------------------------------------------- set-up

    def bind(self, host: Host) -> None:
        """Take on a host's spaces, seeds and device; a shaper serves one host."""
        name = type(self).__name__
        if self.host is not None:
            raise RuntimeError(f"this shaper is bound to a host already; make a new {name} for another one")
        if self.separate_stream and host.replay is not None:
            raise ValueError(
                "separate_stream=True keeps the bonus apart for an agent with two value heads (ppo); one that learns "
                "from replay adds it to the reward: drop separate_stream, or take agent='ppo'"
            )
        self.obs_width = state_width(host.observation_space)
        self.axes = picture_axes(host.observation_space)
        shape = host.observation_space.shape or ()
        self.picture = (shape[self.axes[1]], shape[self.axes[2]]) if self.axes else None
        self.width = math.prod(self.picture) if self.picture else self.obs_width
        self.make(host)
        self.host = host  # last: a host that was refused above leaves the shaper free for another

    def make(self, host: Host) -> None:
        """Make networks and counts for a host; `width` and `picture` are known."""
        raise NotImplementedError

    @property
    def separate_stream(self) -> bool:
        """Whether an agent with two value heads is to keep the bonus apart from the reward."""
        return bool(getattr(getattr(self, "config", None), "separate_stream", False))

    # ------------------------------------------------------- from steps to bonus

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Take in one step of every environment; a step with a NaN or a wrong width is refused and nothing changes."""
        self.check(step)
        valid = step.valid if step.valid is not None else torch.ones_like(step.terminated)
        self.absorb(step.next_obs, valid)

    def absorb(self, next_obs: Tensor, valid: Tensor) -> None:
        """The tensor work of `observe`, for next_obs (P, E, …) and valid (P, E) of any device."""
        raise NotImplementedError

    def release(self, slots: Tensor) -> None:
        """Nothing: what was seen stays seen when replay forgets it."""

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """Weight · novelty of every sampled next state, (P, B), as it is now: old novelty is not paid for again."""
        states = self.batch_states(batch)
        return self.pays * self.novelty(states)

    def novelty(self, states: Tensor) -> Tensor:
        """Novelty (P, B) of states (P, B, width)."""
        raise NotImplementedError

    # -------------------------------------------------------------- borders

    def states(self, obs: Tensor) -> Tensor:
        """Observations (P, n, …) as float vectors (P, n, width); of a picture the newest frame, in grey."""
        device = self.bound.device
        channels = self.axes[0] if self.axes else -1
        if channels == 0:
            obs = obs[:, :, -1]  # one frame and not the stack: the published networks see one
        elif channels == 2:
            obs = obs.float().mean(-1)  # colours become grey
        return obs.to(device).flatten(2).float()

    def batch_states(self, batch: Batch) -> Tensor:
        """The states that a batch reached, (P, B, width); a batch of another host is refused."""
        host, obs = self.bound, batch.next_obs
        home, here = host.device, obs.device
        if here.type != home.type or (home.index is not None and here.index != home.index):
            raise ValueError(
                f"batch is on {here}, but this shaper was bound to {home}; move it with .to({str(home)!r})"
            )
        width = math.prod(obs.shape[2:])
        if obs.shape[0] != host.members or width != self.obs_width:
            raise ValueError(
                f"batch has {obs.shape[0]} members of {width} features, but this shaper was bound to {host.members} of "
                f"{self.obs_width}"
            )
        return self.states(obs)

    def check(self, step: Transition) -> None:
        """Raise a ValueError that names the member and dimension if `step` can't be counted; changes nothing."""
        host = self.bound
        shape, found = (host.members, host.envs), tuple(step.next_obs.shape[:2])
        if found != shape:
            raise ValueError(f"next_obs has leading axes {found}, expected (members, envs) = {shape}")
        states = step.next_obs.flatten(2)
        if states.shape[-1] != self.obs_width:
            raise ValueError(f"next_obs has {states.shape[-1]} features, but this shaper was bound to {self.obs_width}")
        if not states.dtype.is_floating_point or np.isfinite(states.cpu().numpy()).all():
            return
        bad = ~torch.isfinite(states)
        if step.valid is not None:
            bad &= step.valid[..., None]
        if bad.any():
            p, e, d = bad.nonzero()[0].tolist()
            what = f"next_obs of member {p}, environment {e} is {states[p, e, d].item()} in dimension {d}"
            raise ValueError(f"{what}; the step is refused and nothing was counted: mend the environment")

    @property
    def bound(self) -> Host:
        """The host, or an error that says to bind one."""
        if self.host is None:
            raise RuntimeError("this shaper is not bound to a host yet; call shaper.bind(Host(...)) first")
        return self.host

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Continue from a saved state; one that does not fit is refused before anything changes."""
        _ = self.bound
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


def spread(values: Tensor) -> Tensor:
    """Standard deviation over mean, (P,), of values (P, B): near 0 they no longer tell states apart."""
    return values.std(1, correction=0) / values.mean(1).clamp(min=1e-12)


def check_positive(config: object, *names: str) -> None:
    """Raise unless the named settings are above 0."""
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            raise ValueError(f"{name}={value} must be above 0")


def check_weight(weight: float) -> None:
    """Raise unless a weight is finite; a weight of 0 is the plain agent."""
    if not math.isfinite(weight):
        raise ValueError(f"weight={weight} must be a finite number; 0 is the plain agent")
