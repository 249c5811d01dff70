"""The training loop of environments, agent and shaper, and the run around it."""

from sasr.settings import TrainConfig
from sasr.training.loop import Loop
from sasr.training.off_policy import OffPolicy
from sasr.training.on_policy import OnPolicy
from sasr.training.trainer import Trainer

__all__ = ["Loop", "OffPolicy", "OnPolicy", "TrainConfig", "Trainer"]
