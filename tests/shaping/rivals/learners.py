"""Hosts, steps and batches for the shapers that learn: what their tests share."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from sasr import Batch, Host, Transition
from sasr.experience.replay import Replay
from sasr.randomness import MemberStreams
from sasr.shaping.registry import SHAPERS
from tests.conftest import box

K, A, B = 4, 2, 16
NAMES = ("explors", "gfa_rfe", "relara")
SMALL: dict[str, dict[str, Any]] = {
    "explors": {"hidden": (16,), "first_states": 10, "delay": 0, "window": 100, "batch_size": 16, "actions": 4},
    "gfa_rfe": {"width": 16, "networks": 4},
    "relara": {"width": 16, "blocks": 1},
}
"""Settings that make a shaper small, and let all of it work from the first update on."""


class Leaning:
    """A policy that leans the way its state does, over vectors, or draws any of n discrete actions."""

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.space = action_space

    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        like = obs.new_empty((*obs.shape[:2], A), dtype=torch.float32)
        noise = streams.draw(lambda own, g: torch.rand(own.shape, generator=g), like)
        if isinstance(self.space, gym.spaces.Discrete):
            return (noise[..., 0] * int(self.space.n)).long()
        return (obs.flatten(2)[..., :A].float() + noise).tanh()

    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        if isinstance(self.space, gym.spaces.Discrete):
            return torch.full(obs.shape[:2], 0.5)
        return (-(action - obs.flatten(2)[..., :A].tanh()).square().sum(-1)).exp()


def host_of(
    seeds: tuple[int, ...] = (1, 2, 3),
    *,
    envs: int = 1,
    capacity: int = 200,
    observation: gym.Space[Any] | None = None,
    action: gym.Space[Any] | None = None,
) -> Host:
    space = action or gym.spaces.Box(-1.0, 1.0, (A,))
    host = Host(observation_space=observation or box(K), action_space=space, seeds=seeds, envs=envs)
    return dataclasses.replace(host, replay=Replay(host, capacity=capacity), policy=Leaning(space))


def make(name: str, host: Host | None = None, **options: Any) -> Any:
    shaper = SHAPERS[name].make(**(SMALL[name] | options))
    shaper.bind(host or host_of())
    return shaper


def make_steps(host: Host, count: int, *, length: int = 10, seed: int = 0) -> list[Transition]:
    """Episodes of `length` steps with slots in order; the even ones succeed. Member p's rows do not depend on P."""
    steps = []
    space = host.observation_space
    for t in range(count):
        rows = []
        for p in range(host.members):
            g = torch.Generator().manual_seed(100_000 * seed + 100 * t + p)
            if isinstance(host.action_space, gym.spaces.Discrete):
                action = torch.randint(int(host.action_space.n), (host.envs,), generator=g)
            else:
                action = torch.rand(host.envs, A, generator=g) * 2 - 1
            rows.append((_observations(space, host.envs, g), action, _observations(space, host.envs, g)))
        obs, action, after = (torch.stack(column) for column in zip(*rows, strict=True))
        ends = torch.full((host.members, host.envs), t % length == length - 1)
        won = ends & ((t // length) % 2 == 0)
        assert host.replay is not None
        slot = (t * host.envs + torch.arange(host.envs)).repeat(host.members, 1) % host.replay.capacity
        steps.append(Transition(obs, action, won.float(), after, ends & won, ends & ~won, slot=slot))
    return steps


def batch_of(steps: list[Transition], size: int = B, *, seed: int = 0) -> Batch:
    """A batch drawn from steps of one environment each, as a replay buffer would give it."""
    index = torch.randint(len(steps), (size,), generator=torch.Generator().manual_seed(seed)).tolist()
    columns = {
        name: torch.cat([getattr(steps[i], name)[:, :1] for i in index], dim=1)
        for name in ("obs", "action", "reward", "next_obs", "terminated", "slot")
    }
    return Batch(**columns)


def trained(name: str, host: Host | None = None, *, updates: int = 5, **options: Any) -> Any:
    """A shaper that has seen forty steps and learned from them."""
    host = host or host_of()
    shaper, steps = make(name, host, **options), make_steps(host, 40)
    for step in steps:
        shaper.observe(step)
    for t in range(updates):
        shaper.update(batch_of(steps, seed=t))
    return shaper


def _observations(space: gym.Space[Any], n: int, g: torch.Generator) -> Tensor:
    if space.dtype == "uint8":
        return torch.randint(256, (n, *(space.shape or ())), generator=g, dtype=torch.uint8)
    return torch.randn(n, *(space.shape or ()), generator=g)
