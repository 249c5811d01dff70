"""Made-up experience for agents that learn from rollouts: what a member sees depends on nothing but its own number."""

from __future__ import annotations

import gymnasium as gym
import torch
from torch import Tensor

from sasr import Batch, Host, RewardShaper, Shaper, Transition
from sasr.agents import Ppo, PpoConfig
from sasr.settings import Mode
from sasr.training import OnPolicy
from sasr.training.fast import speed_up
from tests.conftest import box

K = 3
DISCRETE = gym.spaces.Discrete(4, start=2)
CONTINUOUS = gym.spaces.Box(-0.3, 0.5, (2,))
SMALL = PpoConfig(hidden=(16, 16), rollout=16, minibatches=4, epochs=2, entropy_weight=0.01, standardise=False)


def make_learner(
    seeds: tuple[int, ...] = (0,),
    config: PpoConfig = SMALL,
    *,
    actions: gym.Space = DISCRETE,
    envs: int = 2,
    shaper: RewardShaper | None = None,
    accelerate: Mode = "eager",
) -> OnPolicy:
    host = Host(observation_space=box(K), action_space=actions, seeds=seeds, envs=envs)
    learner = OnPolicy(host, Ppo(host, config), shaper=shaper)
    speed_up(learner, accelerate)
    return learner


class Walk:
    """Random walks of P × E environments that end now and then, by themselves or by a limit."""

    def __init__(self, members: int, envs: int, *, offset: int = 0) -> None:
        self.generators = [torch.Generator().manual_seed(offset + p) for p in range(members)]
        self.envs = envs
        self.obs = self._draw(K)

    def _draw(self, *shape: int, uniform: bool = False) -> Tensor:
        kind = torch.rand if uniform else torch.randn
        return torch.stack([kind(self.envs, *shape, generator=g) for g in self.generators])

    def step(self, action: Tensor) -> Transition:
        obs, next_obs = self.obs, self.obs + 0.5 * self._draw(K)
        chance = self._draw(uniform=True)
        terminated, truncated = chance < 0.15, (chance >= 0.1) & (chance < 0.3)  # both, now and then
        ended = (terminated | truncated)[..., None]
        self.obs = torch.where(ended, self._draw(K), next_obs)
        return Transition(obs, action, self._draw(), next_obs, terminated, truncated)


def go_on(learner: OnPolicy, walk: Walk, steps: int) -> None:
    """Turn the crank as the loop does."""
    for _ in range(steps):
        action = learner.act(walk.obs)
        learner.learn(walk.envs)
        learner.store(walk.step(action))


class Novelty(Shaper):
    """A shaper whose bonus is easily computed, and which remembers what it was shown."""

    separate_stream = True

    def __init__(self) -> None:
        super().__init__()
        self.observed: list[Transition] = []
        self.shaped: list[tuple[int, Batch]] = []
        self.updated: list[Batch] = []

    def make(self, host: Host) -> None: ...

    def observe(self, step: Transition) -> None:
        self.observed.append(step)

    def shape(self, batch: Batch) -> Tensor:
        self.shaped.append((len(self.observed), Batch(*(part.clone() for part in batch if part is not None))))
        return self.bonus(batch.next_obs)

    @staticmethod
    def bonus(next_obs: Tensor) -> Tensor:
        return next_obs.sum(-1).sin()

    def update(self, batch: Batch) -> dict[str, Tensor]:
        self.updated.append(batch)
        return {}
