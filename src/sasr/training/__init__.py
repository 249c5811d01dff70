"""The one loop that turns environments, agent and shaper together."""

from sasr.training.loop import Loop

__all__ = ["Loop"]
