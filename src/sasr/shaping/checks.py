"""`check_shaper`: does a reward shaper fulfil its contract? What Gymnasium's `check_env` is for environments."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Mapping

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from sasr.experience.replay import Replay
from sasr.experience.types import Batch, Host, Transition
from sasr.randomness import MemberStreams
from sasr.shaping.base import RewardShaper, adapt

MEMBERS, ENVS, BATCH, STEPS = 3, 2, 8, 40
OBSERVATION = gym.spaces.Box(-5.0, 5.0, (4,), np.float32)
ACTION = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def check_shaper(shaper: RewardShaper, observation_space: gym.spaces.Box = OBSERVATION) -> None:
    """Run a copy of an unbound shaper through a small made-up task; raise an AssertionError for a broken promise.

    >>> from sasr import SASR
    >>> check_shaper(SASR())

    Args:
        shaper: The one to check.
        observation_space: What the task's observations are like: vectors, unless an image is given.
    """
    methods = ("bind", "observe", "release", "shape", "update", "state_dict", "load_state_dict")
    lacking = [method for method in methods if not callable(getattr(shaper, method, None))]
    assert not lacking, f"{type(shaper).__name__} lacks {', '.join(lacking)} of the RewardShaper protocol"
    before = _global_randomness()
    task = _MadeUp(observation_space)
    trained = _trained(shaper, task, task.steps())
    batch = task.batch()
    _check_shape(trained, batch)
    _check_purity(trained, batch)
    _check_update(trained, batch)
    _check_round_trip(shaper, trained, task)
    _check_members(shaper, task)
    assert before == _global_randomness(), "the shaper drew from a global generator; give it a generator of its own"


def _check_shape(shaper: RewardShaper, batch: Batch) -> None:
    bonus = shaper.shape(batch)
    expected = (MEMBERS, BATCH)
    assert isinstance(bonus, Tensor), f"shape must return a tensor, it returned {type(bonus).__name__}"
    assert tuple(bonus.shape) == expected, f"shape must return (P, B) = {expected}, it returned {tuple(bonus.shape)}"
    assert bonus.dtype == torch.float32, f"shape must return float32, it returned {bonus.dtype}"
    assert not bonus.requires_grad, "shape must carry no gradient; wrap it in torch.no_grad()"
    assert torch.isfinite(bonus).all(), "shape returned NaN or inf for ordinary states"


def _check_purity(shaper: RewardShaper, batch: Batch) -> None:
    kept_batch, kept_state = copy.deepcopy(batch), _state(shaper)
    shaper.shape(batch)
    assert _same(kept_batch, batch), "shape changed the batch it was given; stored rewards are the environment's"
    _assert_equal(kept_state, _state(shaper), "shape changed")


def _check_update(shaper: RewardShaper, batch: Batch) -> None:
    kept = copy.deepcopy(batch)
    figures = shaper.update(batch)
    assert isinstance(figures, Mapping), (
        f"update must return a mapping of figures, it returned {type(figures).__name__}"
    )
    assert _same(kept, batch), "update changed the batch it was given"
    held = {entry.untyped_storage().data_ptr() for entry in shaper.state_dict().values() if isinstance(entry, Tensor)}
    for name, figure in figures.items():
        assert tuple(figure.shape) == (MEMBERS,), (
            f"figure {name!r} must be (P,) = ({MEMBERS},), not {tuple(figure.shape)}"
        )
        assert figure.untyped_storage().data_ptr() not in held, (
            f"figure {name!r} is a view of the shaper's state, which moves on before it is logged; return a clone"
        )


def _check_round_trip(unbound: RewardShaper, trained: RewardShaper, task: _MadeUp) -> None:
    saved = copy.deepcopy(dict(trained.state_dict()))
    for name, entry in saved.items():
        assert isinstance(entry, Tensor), f"state_dict entry {name!r} must be a tensor: a checkpoint has no pickles"
    restored = _bound(unbound, task)
    restored.load_state_dict(saved)
    # All entries, generators included: they are compared before either copy draws again.
    _assert_equal(saved, dict(restored.state_dict()), "a state_dict round trip changed")
    for step in task.steps(seed=7):
        trained.observe(step)
        restored.observe(step)
    batch = task.batch()
    ours, theirs = trained.shape(batch), restored.shape(batch)
    assert torch.equal(ours, theirs), "a restored shaper goes on differently: something counted is not in state_dict"


def _check_members(unbound: RewardShaper, task: _MadeUp) -> None:
    """Whatever happens to the last seed, the first ones' bonuses stay the same bit for bit."""
    batch = task.batch()
    plain = _trained(unbound, task, task.steps()).shape(batch)
    disturbed_steps = []
    for step in task.steps():
        obs, reward = step.obs.clone(), step.reward.clone()
        obs[-1] += 1
        reward[-1] = 1.0 - reward[-1]
        disturbed_steps.append(step._replace(obs=obs, reward=reward))
    disturbed = _trained(unbound, task, disturbed_steps).shape(batch)
    assert torch.equal(plain[:-1], disturbed[:-1]), "seeds of the population influence each other"


class _Policy:
    """A policy whose actions follow the state's first features."""

    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        means = _first_two(obs)
        noise = streams.draw(lambda like, g: torch.randn(like.shape, generator=g), means)
        return (means + noise).tanh()

    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        return (-(action - _first_two(obs).tanh()).square().sum(-1)).exp()


def _first_two(obs: Tensor) -> Tensor:
    return obs.flatten(2)[..., :2].float()


def _bound(unbound: RewardShaper, task: _MadeUp) -> RewardShaper:
    shaper = adapt(copy.deepcopy(unbound))
    host = Host(observation_space=task.space, action_space=ACTION, seeds=(1, 2, 3), envs=ENVS, policy=_Policy())
    shaper.bind(dataclasses.replace(host, replay=Replay(host, capacity=2 * STEPS * ENVS)))
    return shaper


def _trained(unbound: RewardShaper, task: _MadeUp, steps: list[Transition]) -> RewardShaper:
    shaper = _bound(unbound, task)
    for step in steps:
        shaper.observe(step)
    return shaper


class _MadeUp:
    """A task without rules: observations of a space that are nothing but noise."""

    def __init__(self, space: gym.spaces.Box) -> None:
        self.space = space

    def steps(self, seed: int = 0) -> list[Transition]:
        """Episodes of ten steps in every environment; the first environment of each seed succeeds."""
        generator = torch.Generator().manual_seed(seed)
        steps = []
        for t in range(STEPS):
            obs, after = self._observations(2, MEMBERS, ENVS, generator=generator)
            ends = torch.full((MEMBERS, ENVS), t % 10 == 9)
            reward = torch.zeros(MEMBERS, ENVS)
            reward[:, 0] = float(t % 10 == 9)
            action = torch.rand(MEMBERS, ENVS, 2, generator=generator) * 2.0 - 1.0
            succeeded = reward > 0
            slot = (t * ENVS + torch.arange(ENVS)).repeat(MEMBERS, 1)
            steps.append(Transition(obs, action, reward, after, ends & succeeded, ends & ~succeeded, slot=slot))
        return steps

    def batch(self) -> Batch:
        """A batch whose first step of each seed ended its task."""
        generator = torch.Generator().manual_seed(1)
        obs, after = self._observations(2, MEMBERS, BATCH, generator=generator)
        action = torch.rand(MEMBERS, BATCH, 2, generator=generator) * 2.0 - 1.0
        terminated = torch.zeros(MEMBERS, BATCH, dtype=torch.bool)
        terminated[:, 0] = True
        slot = torch.randint(STEPS * ENVS, (MEMBERS, BATCH), generator=generator)
        return Batch(obs, action, torch.zeros(MEMBERS, BATCH), after, terminated, slot)

    def _observations(self, *leading: int, generator: torch.Generator) -> Tensor:
        shape = (*leading, *self.space.shape)
        if self.space.dtype == np.uint8:
            return torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        return torch.randn(shape, generator=generator)


def _same(one: Batch, other: Batch) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, b) for a, b in pairs if a is not None and b is not None)


def _state(shaper: RewardShaper) -> dict[str, Tensor]:
    """Everything but the generators' positions, which `shape` may move."""
    return {k: v.clone() for k, v in shaper.state_dict().items() if not k.endswith("_extra_state")}


def _assert_equal(before: Mapping[str, Tensor], after: Mapping[str, Tensor], what: str) -> None:
    for name, entry in before.items():
        assert torch.equal(entry, after[name]), f"{what} the entry {name!r} of state_dict"


def _global_randomness() -> tuple[str, ...]:
    return (repr(torch.get_rng_state().tolist()), repr(np.random.get_state()), repr(random.getstate()))
