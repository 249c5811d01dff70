"""Agents that learn as a population: P independent runs of one configuration, on a leading axis."""

from sasr.agents.ppo import Ppo, PpoConfig
from sasr.agents.sac import Sac, SacConfig

__all__ = ["Ppo", "PpoConfig", "Sac", "SacConfig"]
