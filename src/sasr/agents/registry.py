"""The agents by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym

from sasr.agents.bonus_critic import make_sac, make_sac_discrete
from sasr.agents.ppo import Ppo, PpoConfig
from sasr.agents.sac_config import SacConfig
from sasr.agents.sac_discrete import SacDiscreteConfig
from sasr.agents.td3 import Td3, Td3Config
from sasr.errors import unknown_name
from sasr.experience.frames import picture_axes


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
    on_images: Mapping[str, Any] = MappingProxyType({})
    """Settings that differ where observations are images."""
    environments_on_images: int = 1
    """Usual number of environments there."""

    def settings(self, **changes: Any) -> Any:
        """The settings that it has under this name, with some of them replaced."""
        return (self.preset or self.config)(**changes)

    def settings_for(self, observation_space: gym.Space[Any], **changes: Any) -> Any:
        """Its settings on a task, with some of them replaced."""
        if picture_axes(observation_space) is None:
            return self.settings(**changes)
        return self.settings(**{**self.on_images, **changes})

    def environments_for(self, observation_space: gym.Space[Any]) -> int:
        """The usual number of environments of each seed on a task."""
        return 1 if picture_axes(observation_space) is None else self.environments_on_images


GAMES_SAC = MappingProxyType({"batch_size": 64, "update_every": 4})
"""What is usual for value learning on Atari games, one update in four steps, as convolutions cost most of the time."""
GAMES_PPO = MappingProxyType(
    {
        "rollout": 8 * 128,
        "epochs": 4,
        "minibatches": 4,
        "lr": 2.5e-4,
        "clip": 0.1,
        "value_clip": 0.1,
        "entropy_weight": 0.01,
    }
)
"""The Atari settings of Schulman et al. (2017), but that the step size stays."""

AGENTS: dict[str, AgentKind] = {
    "sac": AgentKind(make_sac, SacConfig, separates=True),
    "sac-paper": AgentKind(make_sac, SacConfig, separates=True, preset=SacConfig.paper),
    "td3": AgentKind(Td3, Td3Config),
    "sac_discrete": AgentKind(make_sac_discrete, SacDiscreteConfig, separates=True, on_images=GAMES_SAC),
    "ppo": AgentKind(Ppo, PpoConfig, on_policy=True, separates=True, on_images=GAMES_PPO, environments_on_images=8),
}


def agent_named(name: str, action_space: gym.Space[Any] | None = None) -> tuple[str, AgentKind]:
    """An agent's name and kind; "auto" is SAC for continuous actions and discrete SAC for discrete ones."""
    if name == "auto" and action_space is not None:
        name = "sac" if isinstance(action_space, gym.spaces.Box) else "sac_discrete"
    if name not in AGENTS:
        raise unknown_name("agent", name, AGENTS)
    return name, AGENTS[name]
