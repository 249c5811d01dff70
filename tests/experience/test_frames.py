from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from sasr import Host, Transition
from sasr.experience.flatten import state_dtype
from sasr.experience.frames import FrameHistory, StackLayout, stack_depth
from sasr.experience.replay import Replay

SHAPES = {"grey": (36, 37), "channels first": (2, 36, 37), "colour": (36, 37, 3)}
layouts = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def images(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


class Noise(gym.Env[NDArray[Any], np.int64]):
    """Images of noise, in episodes that end or are cut after a random number of steps."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = images(*shape)

    def _frame(self) -> NDArray[Any]:
        return self.np_random.integers(256, size=self.observation_space.shape, dtype=np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed)
        return self._frame(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        kind = self.np_random.integers(8)
        return self._frame(), 0.0, bool(kind == 0), bool(kind == 1), {}


def in_layout(stack: NDArray[Any], channels_last: bool) -> Tensor:
    """Gymnasium's stack (depth, *image shape) as networks take it."""
    if stack.ndim == 3:
        return torch.from_numpy(stack)
    if channels_last:
        return torch.from_numpy(np.concatenate(list(stack), axis=-1))
    return torch.from_numpy(np.concatenate(list(stack), axis=0))


class Lived(NamedTuple):
    """Steps of P × E environments, and what Gymnasium's wrapper showed before and after each, by serial number."""

    steps: list[Transition]
    before: dict[float, Tensor]
    after: dict[float, Tensor]


def live(shape: tuple[int, ...], depth: int, P: int, E: int, length: int, restart_at: int = -1) -> Lived:
    channels_last = len(shape) == 3 and shape[-1] < shape[0]
    envs = [FrameStackObservation(Noise(shape), depth, padding_type="reset") for _ in range(P * E)]
    stacks = [env.reset(seed=number)[0] for number, env in enumerate(envs)]
    lived = Lived([], {}, {})
    for t in range(length):
        if t == restart_at:  # without an end, as where a run was resumed
            stacks[0] = envs[0].reset()[0]
        rows: list[tuple[Any, ...]] = []
        for number, env in enumerate(envs):
            before, serial = stacks[number], float(t * P * E + number)
            after, _, terminated, truncated, _ = env.step(np.int64(0))
            lived.before[serial], lived.after[serial] = (
                in_layout(stack.copy(), channels_last) for stack in (before, after)
            )
            rows.append((before[-1], serial, after[-1], terminated, truncated))
            stacks[number] = env.reset()[0] if terminated or truncated else after
        obs, serials, next_obs, terminated, truncated = (
            torch.from_numpy(np.stack([np.asarray(row[k]) for row in rows])).unflatten(0, (P, E)) for k in range(5)
        )
        action = torch.zeros((P, E), dtype=torch.int64)
        lived.steps.append(Transition(obs, action, serials.float(), next_obs, terminated, truncated))
    return lived


# ------------------------------------------------------------------ the same as Gymnasium's wrapper


@layouts
def test_what_the_policy_sees_is_what_gymnasium_stacks(shape: tuple[int, ...]) -> None:
    P, E, depth = 2, 2, 4
    lived = live(shape, depth, P, E, 60, restart_at=30)
    history = FrameHistory(StackLayout(images(*shape), depth), P, E, torch.uint8)
    for t, step in enumerate(lived.steps):
        if t == 30:
            history.restart(torch.tensor([[True, False], [False, False]]))
        seen = history.seen(step.obs)
        for p in range(P):
            for e in range(E):
                assert torch.equal(seen[p, e], lived.before[float(step.reward[p, e])])
        history.add(step.obs, step.terminated | step.truncated)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12),
    depth=st.integers(2, 5),
    n=st.integers(1, 4),
    P=st.integers(1, 2),
    E=st.integers(1, 3),
    length=st.integers(1, 40),
    shape=st.sampled_from(list(SHAPES.values())),
)
def test_sampled_stacks_are_those_that_gymnasium_showed(
    rows: int, depth: int, n: int, P: int, E: int, length: int, shape: tuple[int, ...]
) -> None:
    lived = live(shape, depth, P, E, length, restart_at=length // 2)
    host = Host(
        observation_space=images(*shape),
        action_space=Noise.action_space,
        seeds=tuple(range(P)),
        envs=E,
        frame_stack=depth,
        separate_stream=True,
    )
    replay = Replay(host, capacity=rows * E)
    for t, step in enumerate(lived.steps):
        replay.add(step)
        assert len(replay) == min(t + 1, rows) * E
        window = replay.sample_windows(16, n)
        batch, last = window.batch(0.9), window.steps.reward[:, -16:]
        for p in range(P):
            for b in range(16):
                first = float(window.first().reward[p, b])
                assert torch.equal(batch.obs[p, b], lived.before[first])
                assert torch.equal(batch.next_obs[p, b], lived.after[float(last[p, b])])
                if (next_step := float(last[p, b]) + P * E) < (t + 1) * P * E:  # else nobody knows yet where it begins
                    assert batch.following is not None
                    assert torch.equal(batch.following[p, b], lived.before[next_step])
        newest = host.stack_layout
        assert newest is not None
        assert torch.equal(window.first().obs, newest.newest(batch.obs))  # what a shaper sees
        assert torch.equal(window.steps.next_obs[:, -16:], newest.newest(batch.next_obs))


def test_each_frame_is_stored_once() -> None:
    """A million grey frames of 84 × 84 pixels and all that belongs to them, in less than 8 GiB."""
    sizes = []
    for capacity in (1_000, 2_000):
        replay = Replay(
            Host(observation_space=images(84, 84), action_space=Noise.action_space, frame_stack=4), capacity=capacity
        )
        sizes.append(sum(buffer.nbytes for buffer in replay.buffers()))
    assert (sizes[1] - sizes[0]) * 1_000 < 8 * 2**30


def test_a_saved_replay_goes_on_with_the_same_stacks() -> None:
    lived = live((36, 37), 4, 1, 2, 30)
    host = Host(observation_space=images(36, 37), action_space=Noise.action_space, envs=2, frame_stack=4)
    replay, other = Replay(host, capacity=16), Replay(host, capacity=16)
    for step in lived.steps[:20]:
        replay.add(step)
    other.load_state_dict(replay.state_dict())
    for step in lived.steps[20:]:
        ours, theirs = (own.sample_windows(8, 2).batch(0.9) for own in (replay, other))
        assert torch.equal(ours.obs, theirs.obs)
        assert torch.equal(ours.next_obs, theirs.next_obs)
        replay.add(step)
        other.add(step)


# ------------------------------------------------------------------ how many frames


@pytest.mark.parametrize(
    ("space", "limit", "depth"),
    [
        (images(84, 84), 2000, 4),
        (images(96, 96, 3), None, 4),
        (images(4, 84, 84), None, 1),  # stacked already
        (images(84, 84), 2, 3),  # no episode has a fourth frame
        (images(7, 7, 3), None, 1),  # a small grid is a vector
        (gym.spaces.Box(-1.0, 1.0, (84,)), None, 1),
    ],
)
def test_the_usual_stack_is_chosen_by_the_observations(space: gym.spaces.Box, limit: int | None, depth: int) -> None:
    assert stack_depth(space, time_limit=limit) == depth


@pytest.mark.parametrize(
    ("space", "asked", "limit", "message"),
    [
        (gym.spaces.Box(-1.0, 1.0, (8,)), 4, None, r"frame_stack=4 is for images, \(height, width\)"),
        (images(84, 84), 4, 2, "longer than an episode: 2 steps show 3 frames"),
        (images(84, 3, 84), None, None, r"\(84, 3, 84\).*an image is \(height, width\), \(channels, height, width\)"),
        (images(12, 84, 84), 4, None, "48 channels.*at most frame_stack=2"),
        (images(84, 84), 0, None, "at least 1"),
    ],
)
def test_what_can_not_be_stacked_is_refused(
    space: gym.spaces.Box, asked: int | None, limit: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        stack_depth(space, asked, time_limit=limit)


@layouts
def test_the_stacked_space_has_the_bounds_and_the_type_of_its_images(shape: tuple[int, ...]) -> None:
    space = StackLayout(images(*shape), 3).space
    assert space.dtype == np.uint8
    assert state_dtype(space) == torch.uint8
    assert (space.low.min(), space.high.max()) == (0, 255)
    assert np.prod(space.shape) == 3 * np.prod(shape)
