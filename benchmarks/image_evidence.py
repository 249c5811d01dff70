"""Do counts on images follow the visits of what the agent controls? Three ways to count, against the console's memory.

python -m benchmarks.image_evidence --game Freeway        writes benchmarks/results/image_evidence-Freeway.json

A random and an upward policy act for 20,000 steps each; φ = 0.25 of the states are retained, each with its outcome.
True visits are those of the agent's place, which the game's memory tells. New states are of 3,000 more steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.machine import machine, save
from sasr import SASR, Batch, Host, Transition
from sasr.evidence.features import StateNormaliser
from sasr.experience.retained import FAILURE, SUCCESS
from sasr.experience.retention import RETENTION
from sasr.experience.segments import Segmenter
from sasr.shaping.diagnosis import rank_correlation
from sasr.tasks import make

POLICIES = ("random", "upward")
STEPS, NEW, RETAINED, QUERIES = 20_000, 3_000, 0.25, 1_000
COINS, BATCH = 20, 64


class Walk(NamedTuple):
    """What a policy saw; n steps."""

    frames: NDArray[np.uint8]  # (n, 84, 84)
    next_frames: NDArray[np.uint8]
    actions: NDArray[np.int64]
    places: NDArray[np.int64]  # (n,) of the agent when it acts
    outcomes: dict[int, NDArray[np.int64]]  # retained steps by outcome
    space: gym.spaces.Discrete

    def visits(self, steps: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of `steps` were in the places of the steps `at`."""
        return np.bincount(self.places[steps], minlength=int(self.places.max()) + 1)[self.places[at]]


def gather(game: str, policy: str, seed: int) -> Walk:
    env: Any = make(game)
    up = env.unwrapped.screen.unwrapped.get_action_meanings().index("UP")
    rng, total = np.random.default_rng(seed), STEPS + NEW
    frames, next_frames = np.zeros((2, total, 84, 84), np.uint8)
    actions, places = np.zeros((2, total), np.int64)
    segmenter = Segmenter("paper", members=1, envs=1, item_shape=(), dtype=torch.int64)
    generator = torch.Generator().manual_seed(seed)
    retained: dict[int, list[Tensor]] = {SUCCESS: [], FAILURE: []}
    frame, info = env.reset(seed=seed)
    for t in range(total):
        action = rng.integers(env.action_space.n)
        if policy == "upward" and rng.random() < 0.5:
            action = up
        frames[t], actions[t], places[t] = frame, action, info["place"]
        frame, reward, terminated, truncated, info = env.step(action)
        next_frames[t] = frame
        nothing = torch.zeros(1, 1)
        step = Transition(
            obs=nothing,
            action=nothing,
            reward=torch.tensor([[float(reward)]]),
            next_obs=nothing,
            terminated=torch.tensor([[terminated]]),
            truncated=torch.tensor([[truncated]]),
        )
        for segment in segmenter.add(step, torch.tensor([[t]])):
            kept = segment.steps[RETENTION["random"](len(segment.steps), RETAINED, generator)]
            if len(kept) and int(segment.steps[-1]) < STEPS:
                retained[SUCCESS if segment.success else FAILURE].append(kept)
        if terminated or truncated:
            frame, info = env.reset()
    outcomes = {x: torch.cat([torch.zeros(0, dtype=torch.int64), *kept]).numpy() for x, kept in retained.items()}
    return Walk(frames, next_frames, actions, places, outcomes, env.action_space)


def counts_of_sasr(walk: Walk, at: NDArray[np.int64], images: str, updates: int, seed: int) -> Tensor:
    """SASR's own counts (n, 2) of the steps `at`."""
    shaper = SASR(images=images, retention=1.0, background=0.0)
    shaper.bind(Host(observation_space=gym.spaces.Box(0, 255, (84, 84), np.uint8), action_space=walk.space))
    for outcome, steps in walk.outcomes.items():
        for part in np.array_split(steps, 10):
            if len(part):
                shaper.add_trajectory(torch.from_numpy(walk.frames[part]), success=outcome == SUCCESS)
    shaper.evidence.rebuild(0)
    rng = np.random.default_rng(seed)
    for _ in range(updates):
        step = rng.integers(STEPS, size=BATCH)
        seen = (walk.frames, walk.actions, walk.next_frames)
        obs, action, next_obs = (torch.from_numpy(part[step])[None] for part in seen)
        nothing = torch.zeros(1, BATCH)
        shaper.update(Batch(obs, action, nothing, next_obs, nothing.bool()))
    shaper.evidence.rebuild(0)
    queries = torch.from_numpy(walk.frames[at]).flatten(1)
    return torch.cat([shaper.evidence.counts(part[None])[0] for part in torch.split(queries, 250)])


class CoinFlips(nn.Module):
    """Lobel et al. (2023): f(s) learns a random ±1 vector for each retained state; mean f² estimates 1/N(s)."""

    def __init__(self) -> None:
        super().__init__()
        self.learned, self.prior = self._network(), self._network().requires_grad_(False)
        self.shift, self.scale = torch.zeros(COINS), torch.ones(COINS)

    @staticmethod
    def _network() -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(1, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 81, 128), nn.ReLU(), nn.Linear(128, COINS),
        )  # fmt: skip

    def start_from(self, frames: Tensor) -> None:
        """Scale the random prior, so that a state that was never counted has a count of about one."""
        with torch.no_grad():
            prior = self.prior(frames)
        self.shift, self.scale = prior.mean(0), prior.std(0)

    def forward(self, frames: Tensor) -> Tensor:
        coins: Tensor = self.learned(frames) + (self.prior(frames) - self.shift) / self.scale
        return coins


def counts_of_coins(walk: Walk, at: NDArray[np.int64], updates: int, seed: int) -> Tensor:
    """Counts (n, 2) by a network for successes and one for failures."""
    torch.manual_seed(seed)
    normaliser = StateNormaliser(1, 84 * 84, enabled=True, clip=5.0)
    for part in np.array_split(np.concatenate(list(walk.outcomes.values())), 10):
        normaliser.observe(torch.from_numpy(walk.frames[part]).flatten(1)[None])
    normaliser.freeze(0)

    def frames(steps: NDArray[np.int64]) -> Tensor:
        return normaliser.of_member(0, torch.from_numpy(walk.frames[steps]).flatten(1)).view(-1, 1, 84, 84)

    counts, rng = torch.zeros(len(at), 2), np.random.default_rng(seed)
    for outcome, steps in walk.outcomes.items():
        if len(steps) == 0:
            continue
        network = CoinFlips()
        network.start_from(frames(steps[:1000]))
        coins = torch.randint(2, (len(steps), COINS)).float() * 2.0 - 1.0
        adam = torch.optim.Adam(network.learned.parameters(), 1e-3)
        for _ in range(updates):
            index = rng.integers(len(steps), size=BATCH)
            loss = (network(frames(steps[index])) - coins[index]).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        with torch.no_grad():
            estimate = torch.cat([network(frames(part)).square().mean(1) for part in np.array_split(at, 10)])
        counts[:, outcome] = 1.0 / estimate
    return counts


def main(game: str = "Freeway", updates: int = 800, seed: int = 0) -> None:
    torch.set_num_threads(1)
    where, rows = machine(), []
    for policy in POLICIES:
        walk = gather(game, policy, seed)
        new = np.random.default_rng(seed).choice(np.arange(STEPS, STEPS + NEW), QUERIES, replace=False)
        retained = np.concatenate(list(walk.outcomes.values()))
        row: dict[str, Any] = {
            "game": game,
            "policy": policy,
            "successes": len(walk.outcomes[SUCCESS]),
            "failures": len(walk.outcomes[FAILURE]),
        }
        for method, counts in (
            ("pixels", counts_of_sasr(walk, new, "pixels", 0, seed)),
            ("coin flips", counts_of_coins(walk, new, updates, seed)),
            ("places", counts_of_sasr(walk, new, "places", updates, seed)),
        ):
            row[method] = rank_correlation(counts.sum(1).numpy(), walk.visits(retained, new))
            for name, outcome in (("successes", SUCCESS), ("failures", FAILURE)):
                true = walk.visits(walk.outcomes[outcome], new)
                row[f"{method}, {name}"] = rank_correlation(counts[:, outcome].numpy(), true)
        print(row, flush=True)
        rows.append(row)
    print(f"wrote {save(f'image_evidence-{game}', {'updates': updates, 'seed': seed, 'rows': rows}, where)}")


if __name__ == "__main__":
    tyro.cli(main)
