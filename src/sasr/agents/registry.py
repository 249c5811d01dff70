"""The agents by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from sasr.agents.bonus_critic import make_sac, make_sac_discrete
from sasr.agents.ppo import Ppo, PpoConfig
from sasr.agents.sac_config import SacConfig
from sasr.agents.sac_discrete import SacDiscreteConfig
from sasr.agents.td3 import Td3, Td3Config
from sasr.errors import unknown_name


class AgentKind(NamedTuple):
    """How an agent is made, and from which settings."""

    make: Callable[..., Any]
    """Called with a host and settings."""
    config: type[Any]
    on_policy: bool = False
    """Learns from its newest steps alone, and needs no replay buffer."""
    separates: bool = False
    """Can keep a bonus apart from the reward, as a return of its own; else it is part of the reward."""
    preset: Callable[..., Any] | None = None
    """Makes its settings where they are not those of `config`."""

    def settings(self, **changes: Any) -> Any:
        """The settings that it has under this name, with some of them replaced."""
        return (self.preset or self.config)(**changes)


AGENTS: dict[str, AgentKind] = {
    "sac": AgentKind(make_sac, SacConfig, separates=True),
    "sac-paper": AgentKind(make_sac, SacConfig, separates=True, preset=SacConfig.paper),
    "td3": AgentKind(Td3, Td3Config),
    "sac_discrete": AgentKind(make_sac_discrete, SacDiscreteConfig, separates=True),
    "ppo": AgentKind(Ppo, PpoConfig, on_policy=True, separates=True),
}


def agent_named(name: str, action_space: gym.Space[Any] | None = None) -> tuple[str, AgentKind]:
    """An agent's name and kind; "auto" is SAC for continuous actions and discrete SAC for discrete ones."""
    if name == "auto" and action_space is not None:
        name = "sac" if isinstance(action_space, gym.spaces.Box) else "sac_discrete"
    if name not in AGENTS:
        raise unknown_name("agent", name, AGENTS)
    return name, AGENTS[name]
