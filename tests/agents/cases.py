"""The agents that learn from replay, made small, with data to learn from; what every one of them must promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from sasr import Batch, Host
from sasr.agents import Sac, SacConfig, SacDiscrete, SacDiscreteConfig, Td3, Td3Config
from tests.conftest import box

BOX = gym.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32))
CHOICE = gym.spaces.Discrete(4, start=-1)


class Case(NamedTuple):
    make: type[Any]
    config: Any
    observations: gym.spaces.Box
    actions: gym.Space[Any]
    rows: int = 32  # of a batch


CASES = {
    "sac": Case(Sac, SacConfig(hidden=(16, 16)), box(5), BOX),
    "td3": Case(Td3, Td3Config(hidden=(16, 16)), box(5), BOX),
    "sac_discrete": Case(SacDiscrete, SacDiscreteConfig(hidden=(16, 16)), box(5), CHOICE),
    "sac_discrete on pictures": Case(
        SacDiscrete, SacDiscreteConfig(features=8), gym.spaces.Box(0, 255, (1, 36, 36), np.uint8), CHOICE, rows=4
    ),
}


def make_agent(name: str, seeds: tuple[int, ...] = (0,), **settings: Any) -> Any:
    case = CASES[name]
    host = Host(observation_space=case.observations, action_space=case.actions, seeds=seeds)
    return case.make(host, replace(case.config, **settings))


def make_data(name: str, P: int, seed: int) -> tuple[Batch, Tensor]:
    """A batch of P members and a bonus; the rows of member p do not depend on P."""
    case, rows = CASES[name], []
    B, shape = case.rows, case.observations.shape
    for p in range(P):
        g = torch.Generator().manual_seed(1000 * seed + p)
        if case.observations.dtype == np.uint8:
            obs, next_obs = torch.randint(0, 256, (2, B, *shape), generator=g, dtype=torch.uint8)
        else:
            obs, next_obs = torch.randn(2, B, *shape, generator=g)
        if case.actions is CHOICE:
            action = torch.randint(-1, 3, (B,), generator=g)
        else:
            action = torch.rand(B, 2, generator=g) * torch.tensor([4.0, 0.5]) + torch.tensor([-1.0, 0.0])
        reward, bonus = torch.randn(2, B, generator=g)
        rows.append((obs, action, reward, next_obs, torch.rand(B, generator=g) < 0.3, bonus))
    *fields, bonus = (torch.stack(column) for column in zip(*rows, strict=True))
    return Batch(*fields), bonus


def learn(name: str, agent: Any, times: int) -> None:
    for t in range(times):
        batch, bonus = make_data(name, agent.members, t)
        agent.update(batch, bonus, agent.draw_noise(CASES[name].rows))


def member_state(agent: Any, p: int) -> dict[str, Tensor]:
    """Everything learned that belongs to member p, networks p and P + p of critics, and its random streams."""
    P = agent.members
    state = {key: value for key, value in agent.state_dict().items() if value.dim() > 0}
    return {
        key: value.unflatten(0, (2, P))[:, p] if len(value) == 2 * P else value[p]
        for key, value in state.items()
        if len(value) in (P, 2 * P) and "scale" not in key and "middle" not in key
    }
