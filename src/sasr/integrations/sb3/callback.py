"""Logs what the shaper of a buffer does."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from sasr.integrations.sb3.shaped import ShapedBuffer
from sasr.shaping.base import adapt


class ShapingCallback(BaseCallback):
    """Logs `shaping/…` figures and changes nothing; `rollout/ep_rew_mean` stays the environment's."""

    def _on_training_start(self) -> None:
        self.buffer = self._find_buffer()

    def _on_step(self) -> bool:
        if hasattr(self.model, "replay_buffer") and np.any(self.locals["dones"]):
            # Stable-Baselines3 writes its log when an episode ends, right after this.
            self._log()
        return True

    def _on_rollout_end(self) -> None:
        if not hasattr(self.model, "replay_buffer"):
            self._log()

    def _log(self) -> None:
        buffer = self.buffer
        if buffer.last_batch is None or buffer.last_bonus is None:
            return
        figures = {
            "bonus_mean": buffer.last_bonus.mean(),
            "bonus_std": buffer.last_bonus.std(correction=0),
            **(buffer.last_figures or {}),
            **adapt(buffer.shaper).inspect(buffer.last_batch),
        }
        for name, figure in figures.items():
            self.logger.record(f"shaping/{name}", float(figure.float().mean()))

    def _find_buffer(self) -> Any:
        for name in ("replay_buffer", "rollout_buffer"):
            buffer = getattr(self.model, name, None)
            if isinstance(buffer, ShapedBuffer):
                return buffer
        raise TypeError(
            f"{type(self.model).__name__} has no shaped buffer; pass replay_buffer_class=ShapedReplayBuffer "
            "(or rollout_buffer_class=ShapedRolloutBuffer for PPO and A2C)"
        )
