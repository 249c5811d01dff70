"""What a reward-shaping method is: the protocol that a learner needs, and the base class that ours derive from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from sasr.experience.checked_module import GrowingModule
from sasr.experience.flatten import flatten_actions, state_width
from sasr.experience.types import Batch, Host, PolicyView, Transition

CPU = torch.device("cpu")


@runtime_checkable
class RewardShaper(Protocol):
    """Adds to the reward of sampled transitions; stored rewards are the environment's.

    P seeds, E environments each, batches of B. Anything learned or counted is in `state_dict`. These methods are all
    that a learner needs; `Shaper` has the optional ones too.
    """

    def bind(self, host: Host) -> None:
        """Take on the spaces, seeds and device of a host; called once, before anything else."""

    @abstractmethod
    def observe(self, step: Transition) -> None:
        """Learn what happened; called exactly once per environment step."""

    def release(self, slots: Tensor) -> None:
        """Forget replay slots (P, E) that the host is about to overwrite; most shapers have nothing to forget."""

    @abstractmethod
    def shape(self, batch: Batch) -> Tensor:
        """What to add to the batch's rewards, (P, B), its weight included.

        Trains nothing, changes no state but the position of the shaper's own generator, carries no gradient.
        """

    @abstractmethod
    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """Train on a batch after the agent did, and return figures to log, each (P,), of now: no views of the state."""

    def state_dict(self) -> Mapping[str, Any]:
        """Everything learned or counted."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Continue from a saved state; raises before it changes anything if the state does not fit."""


class Shaper(GrowingModule, RewardShaper, ABC):
    """Base class of reward shapers: binds to a host, checks what comes in, and has defaults for the optional methods.

    A method defines `make`, `observe`, `shape` and `update`.
    """

    capturable: bool = False
    """Whether `shape` and `update` are tensor work of fixed shapes, which a CUDA graph can capture."""
    compilable: ClassVar[tuple[str, ...]] = ()
    """Names of methods that torch.compile may replace."""
    separate_stream: bool = False
    """Whether the bonus is a return of its own, which goes on over the ends of episodes. Agents that can (sac, ppo)
    keep critics for it; the others add it to the reward. `host.separate_stream` says which."""
    truncation_is_terminal: bool = False
    """Whether the agent should stop bootstrapping at time limits."""
    checked: ClassVar[tuple[str, ...]] = ("obs", "next_obs", "reward")
    """Entries of a step that the shaper reads: `check` compares their shapes and refuses NaN in them."""

    def __init__(self) -> None:
        super().__init__()
        self.host: Host | None = None

    # ---------------------------------------------------------------- set-up

    def bind(self, host: Host) -> None:
        """Take on a host's spaces, seeds and device; a shaper serves one host."""
        if self.host is not None:
            name = type(self).__name__
            raise RuntimeError(f"this shaper is bound to a host already; make a new {name} for another one")
        self.obs_width = state_width(host.observation_space)
        actions = math.prod(host.action_space.shape or ())
        self.widths = {"obs": self.obs_width, "next_obs": self.obs_width, "action": actions, "reward": 1}
        self.make(host)
        self.host = host  # last: a host that was refused above leaves the shaper free for another

    @abstractmethod
    def make(self, host: Host) -> None:
        """Make networks and counts for a host."""

    @property
    def bound(self) -> Host:
        """The host, or an error that says to bind one."""
        if self.host is None:
            raise RuntimeError("this shaper is not bound to a host yet; call shaper.bind(Host(...)) first")
        return self.host

    def policy_of(self, host: Host) -> PolicyView:
        """The policy of a host's agent, or an error that says which agents have one."""
        if host.policy is None:
            raise ValueError(
                f"{type(self).__name__} samples actions of the agent, but this host has no policy to ask; train "
                "it with an agent that has `propose` and `likelihood`, such as sac"
            )
        return host.policy

    # ------------------------------------------------------- from steps to rewards

    def absorb(self, *args: Any, **kwargs: Any) -> None:
        """The part of `observe` that is tensor work of fixed shapes; a learner may replace it by a CUDA graph of it.

        Takes tensors from any device.
        """

    def inspect(self, batch: Batch) -> Mapping[str, Tensor]:
        """Figures about a batch, each (P,), that are only computed when they are logged; draws nothing."""
        return {}

    # ------------------------------------------------------- replay and interruptions

    def release(self, slots: Tensor) -> None:
        """Forget replay slots (P, E) that the host is about to overwrite."""

    def lose_replay(self) -> None:
        """Forget all replay slots: a run was resumed without its replay buffer."""

    def interrupt(self, interrupted: Tensor, step: Transition | None) -> Transition | None:
        """Close episodes under way where `interrupted` (P, E): their environments were reset when a run was resumed.

        Args:
            interrupted: Which episodes.
            step: Their last step, if it was not observed yet.

        Returns:
            That step as it will be observed; by default, one that a time limit ended.
        """
        return None if step is None else step._replace(truncated=step.truncated | interrupted)

    # ------------------------------------------------------- checks of what comes in

    def check(self, step: Transition) -> None:
        """Raise a ValueError that names the entry if a step can't be learned from; changes nothing."""
        host = self.bound
        expected = (len(host.seeds), host.envs)
        for name in self.checked:
            entry: Tensor = getattr(step, name)
            leading = tuple(entry.shape[:2])
            if leading != expected:
                raise ValueError(f"{name} has leading axes {leading}, expected (seeds, environments) = {expected}")
            check_width(name, entry.numel() // math.prod(expected), self.widths[name])
            check_finite(name, entry, seeds=host.seeds, valid=step.valid)

    def check_batch(self, batch: Batch) -> None:
        """Raise a ValueError if a batch is of another host; looks at shapes and devices alone."""
        host, device = self.bound, batch.next_obs.device
        numbered = host.device.type != "cpu" and host.device.index is not None  # torch calls cpu:0 "cpu"
        if device.type != host.device.type or (numbered and device.index != host.device.index):
            bound_to = str(host.device)
            raise ValueError(
                f"batch is on {device}, but this shaper was bound to {bound_to}; move it with .to({bound_to!r})"
            )
        expected = (len(host.seeds), self.obs_width)
        for entry in (batch.obs, batch.next_obs):
            seeds, width = entry.shape[0], math.prod(entry.shape[2:])
            if (seeds, width) != expected:
                raise ValueError(
                    f"batch has {seeds} seeds of {width} features, but this shaper was bound to {expected[0]} of "
                    f"{expected[1]}"
                )

    def flat_actions(self, action: Tensor) -> Tensor:
        """Actions (P, B, …) as float vectors (P, B, A); discrete ones one-hot, those of another host refused."""
        space = self.bound.action_space
        entries, expected = math.prod(action.shape[2:]), math.prod(space.shape or ())
        if entries != expected:
            raise ValueError(f"actions have {entries} entries, but this shaper was bound to {expected}")
        return flatten_actions(space, action, 2)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Continue from a saved state; one that does not fit is refused before anything changes."""
        _ = self.bound
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


class AdaptedShaper(Shaper):
    """Somebody's `RewardShaper`, with the defaults of `Shaper` for what it lacks."""

    def __init__(self, shaper: RewardShaper) -> None:
        super().__init__()
        self.shaper = shaper

    def make(self, host: Host) -> None:
        """Bind the shaper."""
        self.shaper.bind(host)

    def observe(self, step: Transition) -> None:
        """Pass the step on."""
        self.shaper.observe(step)

    def release(self, slots: Tensor) -> None:
        """Pass the slots on."""
        self.shaper.release(slots)

    def shape(self, batch: Batch) -> Tensor:
        """The shaper's bonus."""
        return self.shaper.shape(batch)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """The shaper's figures."""
        return self.shaper.update(batch)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The shaper's state."""
        return self.shaper.state_dict()

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        """Nothing: only the shaper knows which states fit."""

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load the shaper's state."""
        return self.shaper.load_state_dict(state_dict)


def adapt(shaper: RewardShaper) -> Shaper:
    """The same shaper where it derives from `Shaper`, else one that stands in for it."""
    return shaper if isinstance(shaper, Shaper) else AdaptedShaper(shaper)


def check_bonus(batch: Batch, bonus: Tensor) -> None:
    """Raise unless rewards and bonus are (P, B): (P, B, 1) + (P, B) would broadcast, and learn a batch mean."""
    expected = tuple(batch.obs.shape[:2])
    for name, values in (("reward", batch.reward), ("bonus", bonus), ("terminated", batch.terminated)):
        if tuple(values.shape) != expected:
            raise ValueError(f"{name} has shape {tuple(values.shape)}, expected (seeds, batch) = {expected}")


def check_width(name: str, width: int, expected: int) -> None:
    """Raise a ValueError unless rows have as many features as they should."""
    if width != expected:
        raise ValueError(f"{name} has {width} features, but this shaper was bound to {expected}")


def check_finite(
    name: str, entry: Tensor, *, seeds: Sequence[int], valid: Tensor | None = None, axis: str = "environment"
) -> None:
    """Raise a ValueError that names the first NaN or infinity in entries (P, E, …), but for those not valid (P, E)."""
    if not entry.dtype.is_floating_point or np.isfinite(entry.numpy(force=True)).all():
        return
    rows = entry.reshape(*entry.shape[:2], -1)
    bad = ~torch.isfinite(rows)
    if valid is not None:
        bad &= valid[..., None]
    if bad.any():
        p, e, d = bad.nonzero()[0].tolist()
        value = rows[p, e, d].item()
        raise ValueError(
            f"{name} of seed {seeds[p]}, {axis} {e} is {value} in dimension {d}; the step is refused and nothing "
            "was learned: fix the environment"
        )


def check_trajectory(states: Tensor, width: int, seeds: Sequence[int], member: int) -> None:
    """Raise a ValueError unless states (T, k) can be counted as a trajectory of this member."""
    if not 0 <= member < len(seeds):
        raise ValueError(f"member={member} is not in this population of {len(seeds)} seeds")
    if len(states) == 0:
        raise ValueError("a trajectory of 0 states can't be counted; give at least one state, shape (T, k)")
    check_width("trajectory", states.shape[-1], width)
    check_finite("trajectory", states[None], seeds=(seeds[member],), axis="row")
