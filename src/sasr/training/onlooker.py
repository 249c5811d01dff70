"""A shaper that is shown each step once, a little after it was stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sasr.experience.transition import Transition
from sasr.shaping.protocol import RewardShaper


class Onlooker:
    """Holds the newest step back until the learner has time: showing it fits in while the environments step."""

    def __init__(self, shaper: RewardShaper | None) -> None:
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
        """Episodes (P, E) ended without an end: the shaper must not take what follows for more of the same."""
        if self.unseen is None or not broken.any():
            return
        # Told by the step that it has not seen yet: seen now, it would come before updates that it should follow.
        step, drop = self.unseen, getattr(self.shaper, "drop_episodes", None)
        if drop is not None:
            drop(broken)
            valid = torch.ones_like(broken) if step.valid is None else step.valid
            self.unseen = step._replace(valid=valid & ~broken)
        else:
            self.unseen = step._replace(truncated=step.truncated | broken)

    def lose_replay(self) -> None:
        """The replay buffer is empty again; a shaper that marks slots has marks on steps that are gone."""
        lose = getattr(self.shaper, "lose_replay", None)
        if lose is not None:
            self.show()  # the slot of that step is gone too
            lose()

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
