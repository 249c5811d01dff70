"""Agents that learn as a population: P independent runs of one configuration, on a leading axis."""

from sasr.agents.ppo import Ppo, PpoConfig
from sasr.agents.sac import Sac
from sasr.agents.sac_config import SacConfig
from sasr.agents.sac_discrete import SacDiscrete, SacDiscreteConfig
from sasr.agents.td3 import Td3, Td3Config

__all__ = ["Ppo", "PpoConfig", "Sac", "SacConfig", "SacDiscrete", "SacDiscreteConfig", "Td3", "Td3Config"]
