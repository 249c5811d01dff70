"""What an agent that learns from a replay buffer offers the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from sasr.experience.types import Batch


class AgentConfig(Protocol):
    """What the loop asks of an agent's settings."""

    @property
    def batch_size(self) -> int:
        """Transitions of each member in an update."""
        ...

    @property
    def burn_in(self) -> int:
        """Steps of each member with random actions before the first update."""
        ...

    @property
    def n_step(self) -> int:
        """Steps whose rewards a target adds up."""
        ...


class Agent(Protocol):
    """P independent learners, one for each seed of the host; everything learned is in `state_dict`."""

    @property
    def config(self) -> AgentConfig:
        """The agent's settings."""
        ...

    def act(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """Actions (P, E, *action_shape) for obs (P, E, *obs_shape): exploring, or the best ones known."""
        ...

    def act_randomly(self, envs: int = 1) -> Tensor:
        """Actions (P, E, *action_shape) uniform over the space."""
        ...

    def draw_noise(self, batch_size: int) -> Any:
        """The random numbers that one update uses; passed in, so that an update is a function of its arguments."""
        ...

    def count_update(self) -> bool:
        """Count an update; whether the actor learns in it, which it may do less often than the critics."""
        ...

    def bootstrap(self, batch: Batch, noise: Any) -> Tensor:
        """The next state's value, discounted, and 0 behind a true termination, (P, B).

        Nothing but tensor work that needs no bonus, so that it can run while a shaper works out bonuses.
        """
        ...

    def learn(
        self, batch: Batch, bonus: Tensor, bootstrap: Tensor, noise: Any, update_actor: bool
    ) -> dict[str, Tensor]:
        """One update towards reward + bonus + bootstrap, nothing but tensor work; figures to log, each (P,)."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Everything learned, and the positions of the agent's generators."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Continue from a saved state, whole or not at all."""
        ...


def check_batch(batch: Batch, bonus: Tensor) -> None:
    """Raise unless rewards and bonus are (P, B): (P, B, 1) + (P, B) would broadcast, and learn a batch mean."""
    shape = tuple(batch.obs.shape[:2])
    for name, values in (("reward", batch.reward), ("bonus", bonus), ("terminated", batch.terminated)):
        if tuple(values.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(values.shape)}, expected (seeds, batch) = {shape}")
