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
        self._before = (0.0, 0)  # seconds and steps without learning
        self._learning = (0.0, 0)  # the same since learning began
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
            self._before = (self._before[0] + seconds, self._before[1] + steps)
            return ""
        if self._warm_up > 0:
            self._warm_up -= steps
            return ""
        learning_seconds, learning_steps = self._learning[0] + seconds, self._learning[1] + steps
        self._learning = (learning_seconds, learning_steps)
        # Whole cycles alone: a rollout's updates all come in its last step.
        if learning_seconds < ENOUGH_SECONDS or learning_steps < self.cycle or learning_steps % self.cycle >= steps:
            return ""
        self.is_known = True
        return self._text(at)

    def _text(self, at: int) -> str:
        rate = self._learning[1] / self._learning[0]
        left = timedelta(seconds=round((self.steps - at) / rate))
        text = (
            f"{rate:,.3g} steps/s while it learns: {self.steps - at:,} more steps take about {left}, evaluations apart"
        )
        if self.device.type != "cpu":
            return text
        slower = "learning from images is slow on a CPU"
        if self._before[1]:
            alone = self._before[1] / self._before[0]
            slower += f", here {alone / rate:,.0f} times slower than the games alone ({alone:,.0f} steps/s)"
        return f"{slower}. {text}. A GPU (--device cuda) is what this is for; on a CPU, take fewer --steps"
