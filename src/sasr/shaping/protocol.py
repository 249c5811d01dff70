"""The one small protocol every reward-shaping method fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from sasr.experience.transition import Batch, Host, Transition


@runtime_checkable
class RewardShaper(Protocol):
    """Adds to the reward of sampled transitions; what the environment said stays in storage.

    P members, E environments each, batches of B. Anything learned or counted is in `state_dict`. A shaper whose `shape`
    and `update` are nothing but tensor work of fixed shapes says so by an attribute `capturable = True`; then they run
    inside the agent's captured update. If `observe` does such work too, in a method `absorb(*tensors)` that takes its
    tensors from any device, that is captured as well. `separate_stream = True` asks an agent with two value heads to
    keep the bonus apart from the reward. Two more methods are for shapers that need them when a run is resumed:
    `drop_episodes(broken)` forgets the episodes (P, E) under way that had to restart (without it, their last step comes
    as truncated), and `lose_replay()` forgets what was marked in a replay buffer that was not saved.
    """

    def bind(self, host: Host) -> None:
        """Take on the spaces, seeds and device of a host; called once, before anything else."""
        ...

    def observe(self, step: Transition) -> None:
        """Learn what happened; called exactly once per environment step."""
        ...

    def release(self, slots: Tensor) -> None:
        """Forget replay slots (P, E) that the host is about to overwrite; most shapers have nothing to forget."""
        ...

    def shape(self, batch: Batch) -> Tensor:
        """What to add to the batch's rewards, (P, B), its weight included.

        Trains nothing, changes no state but the position of the shaper's own generator, carries no gradient.
        """
        ...

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """Train on a batch after the agent did, and return figures to log, each (P,), of now: no views of the state."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Everything learned or counted."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Continue from a saved state; raises before it changes anything if the state does not fit."""
        ...
