"""A shaper that is shown each step once, a little after it was stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sasr.experience.types import Transition
from sasr.shaping.base import Shaper


class Onlooker:
    """Holds the newest step back until the learner has time: showing it fits in while the environments step."""

    def __init__(self, shaper: Shaper | None) -> None:
        self.shaper = shaper
        self.unseen: Transition | None = None

    def hold(self, step: Transition) -> None:
        """Keep a step that was just stored."""
        self.unseen = step if self.shaper is not None else None

    def show(self) -> None:
        """Let the shaper see what is held back."""
        if self.shaper is not None and self.unseen is not None:
            self.shaper.observe(self.unseen)
            self.unseen = None

    def cut(self, broken: Tensor) -> None:
        """Episodes (P, E) were interrupted: the shaper must not take what follows for more of the same."""
        # The step held back stays so: observed now, it would come before updates that it should follow.
        if self.shaper is not None and broken.any():
            self.unseen = self.shaper.interrupt(broken, self.unseen)

    def lose_replay(self) -> None:
        """The replay buffer is empty again; a shaper that marks slots has marks on steps that are gone."""
        if self.shaper is not None:
            self.show()  # the slot of that step is gone too
            self.shaper.lose_replay()

    def save(self) -> dict[str, dict[str, Tensor]]:
        """State of the shaper, and what it has not seen yet."""
        if self.shaper is None:
            return {}
        step = self.unseen._asdict() if self.unseen else {}
        return {
            "shaper": dict(self.shaper.state_dict()),
            "unobserved": {name: value for name, value in step.items() if value is not None},
        }

    def load(self, saved: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a saved state."""
        if self.shaper is not None:
            self.shaper.load_state_dict(saved["shaper"])
            self.unseen = Transition(**saved["unobserved"]) if saved["unobserved"] else None
