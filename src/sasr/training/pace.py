"""How long a run on images will take, measured while it learns for the first time."""

from __future__ import annotations

from datetime import timedelta

import torch

ENOUGH_SECONDS = 10.0
"""A measurement lasts at least so long."""
_WARM_UP = 10
"""Rounds of learning on an accelerator before it: compiling and capturing come once."""


class ImagePace:
    """Measures turns of the loop without and with learning; evaluations are not among them."""

    def __init__(self, *, steps: int, cycle: int, device: torch.device, burn_in: int = 0) -> None:
        """Begin.

        Args:
            steps: Of each seed in the whole run.
            cycle: Steps of each seed from one round of learning to the next.
            device: Where it learns.
            burn_in: Steps of each seed before the first update.
        """
        self.steps, self.cycle = steps, cycle
        self.device, self.burn_in = device, burn_in
        self.is_known = False
        self.seconds_before = self.steps_before = 0.0  # without learning
        self.seconds_learning = self.steps_learning = 0.0
        self._warm_up = 0 if device.type == "cpu" else _WARM_UP * cycle

    @property
    def start(self) -> str:
        """What to say before anything is known."""
        if self.device.type != "cpu":
            return ""
        return (
            "learning from images is slow on a CPU; how slow is measured once it begins, after "
            f"{max(self.burn_in, self.cycle):,} steps"
        )

    def turned(self, seconds: float, steps: int, *, at: int, learning: bool) -> str:
        """Count a turn of the loop; a text, once there is something to say.

        Args:
            seconds: The turn's.
            steps: The turn's, of each seed.
            at: Steps of each seed so far.
            learning: Whether any update was made before this turn ended.
        """
        if self.is_known:
            return ""
        if not learning:
            self.seconds_before += seconds
            self.steps_before += steps
            return ""
        if self._warm_up > 0:
            self._warm_up -= steps
            return ""
        self.seconds_learning += seconds
        self.steps_learning += steps
        # Whole cycles alone: a rollout's updates all come in its last step.
        whole_cycles = self.steps_learning >= self.cycle and self.steps_learning % self.cycle < steps
        if self.seconds_learning < ENOUGH_SECONDS or not whole_cycles:
            return ""
        self.is_known = True
        return self._text(at)

    def _text(self, at: int) -> str:
        rate = self.steps_learning / self.seconds_learning
        left = timedelta(seconds=round((self.steps - at) / rate))
        text = (
            f"{rate:,.3g} steps/s while it learns: {self.steps - at:,} more steps take about {left}, evaluations apart"
        )
        if self.device.type != "cpu":
            return text
        slower = "learning from images is slow on a CPU"
        if self.steps_before:
            alone = self.steps_before / self.seconds_before
            slower += f", here {alone / rate:,.0f} times slower than the games alone ({alone:,.0f} steps/s)"
        return f"{slower}. {text}. A GPU (--device cuda) is what this is for; on a CPU, take fewer --steps"
