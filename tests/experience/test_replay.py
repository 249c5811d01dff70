from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from sasr import SASR, Batch, Host, Transition
from sasr.experience import replay as replay_module
from sasr.experience.memory import free_bytes
from sasr.experience.replay import Replay
from tests.conftest import box, make_step

PIXELS = gym.spaces.Box(0, 255, (2, 3), np.uint8)


def make_replay(
    capacity: int = 10,
    *,
    seeds: tuple[int, ...] = (0,),
    envs: int = 1,
    space: gym.spaces.Box | None = None,
    action_space: gym.Space | None = None,
) -> Replay:
    host = Host(observation_space=space or box(2), action_space=action_space or box(1), seeds=seeds, envs=envs)
    return Replay(host, capacity=capacity)


class Life(NamedTuple):
    """Consecutive steps; the reward of a step is a number that no other step has."""

    steps: list[Transition]

    @classmethod
    def made_up(cls, length: int, P: int, E: int, space: gym.spaces.Box, seed: int) -> Life:
        """Few different observations, so that a new episode sometimes starts where the old one ended."""
        g = torch.Generator().manual_seed(seed)

        def draw(*shape: int, high: int = 3) -> Tensor:
            return torch.randint(0, high, shape, generator=g)

        dtype = torch.uint8 if space.dtype == np.uint8 else torch.float32
        steps, obs = [], draw(P, E, *space.shape).to(dtype)
        for t in range(length):
            next_obs = draw(P, E, *space.shape).to(dtype)
            kind = draw(P, E, high=6)  # 0 terminates, 1 is truncated, 2 starts elsewhere without an end
            serial = torch.arange(t * P * E, (t + 1) * P * E).view(P, E).float()
            action = draw(P, E, 1).float()
            steps.append(Transition(obs, action, serial, next_obs, kind == 0, kind == 1))
            elsewhere = (kind <= 2).view(P, E, *(1,) * len(space.shape))
            obs = torch.where(elsewhere, draw(P, E, *space.shape).to(dtype), next_obs)
        return cls(steps)

    def remembered(self, rows: int, p: int) -> dict[float, tuple[Tensor, ...]]:
        """What a list of the last `rows` steps holds of member p, by serial number."""
        return {
            float(step.reward[p, e]): (step.obs[p, e], step.action[p, e], step.next_obs[p, e], step.terminated[p, e])
            for step in self.steps[-rows:]
            for e in range(step.reward.shape[1])
        }


def assert_batch_is_from(batch: Batch, memory: list[dict[float, tuple[Tensor, ...]]]) -> None:
    for p, own in enumerate(memory):
        for b, serial in enumerate(batch.reward[p].tolist()):
            obs, action, next_obs, terminated = own[serial]
            assert torch.equal(batch.obs[p, b], obs)
            assert torch.equal(batch.action[p, b], action)
            assert torch.equal(batch.next_obs[p, b], next_obs)
            assert batch.terminated[p, b] == terminated


# ------------------------------------------------------------------ it is a list of the last steps


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 6),
    P=st.integers(1, 3),
    E=st.integers(1, 3),
    length=st.integers(1, 30),
    space=st.sampled_from([box(2), PIXELS]),
    seed=st.integers(0, 2**31),
)
def test_samples_are_those_of_a_list_also_when_it_wraps(
    rows: int, P: int, E: int, length: int, space: gym.spaces.Box, seed: int
) -> None:
    replay = make_replay(rows * E, seeds=tuple(range(P)), envs=E, space=space)
    life = Life([])
    for step in Life.made_up(length, P, E, space, seed).steps:
        replay.add(step)
        life.steps.append(step)
        memory = [life.remembered(rows, p) for p in range(P)]
        assert len(replay) == len(memory[0])
        assert_batch_is_from(replay.sample(len(replay)), memory)
    seen = [replay.sample(len(replay)).reward for _ in range(40)]
    for p in range(P):
        assert {serial for rewards in seen for serial in rewards[p].tolist()} == set(memory[p])


@pytest.mark.parametrize("seed", range(3))
def test_many_short_episodes_are_kept_whole_and_finals_stay_few(seed: int) -> None:
    """Observations aside are reused: after 1,000 episodes there are no more of them than the ring's rows ask for."""
    space, rows = box(2), 50
    replay = make_replay(rows * 2, seeds=(0, 1), envs=2, space=space)
    life = Life.made_up(1000, 2, 2, space, seed)
    for step in life.steps:
        replay.add(step)
    assert replay.kept > 1000
    assert len(replay.finals) <= 4 * 2 * 2 * (rows + 2)
    memory = [life.remembered(rows, p) for p in range(2)]
    for _ in range(20):
        assert_batch_is_from(replay.sample(100), memory)


def test_finals_grow_whole_after_some_were_forgotten() -> None:
    """Long episodes first, so that serial numbers are past the ring's length when short ones make it grow."""
    rows = 200
    replay, life = make_replay(rows), Life([])
    for t in range(1800):
        ends = t % 10 == 9 or t >= 1500
        obs = torch.full((1, 1, 2), float(t))
        step = make_step(obs, reward=float(t), truncated=ends)._replace(next_obs=obs + (0.5 if ends else 1.0))
        replay.add(step)
        life.steps.append(step)
        if t % 20 == 0 and t >= 1500:
            assert_batch_is_from(replay.sample(rows), [life.remembered(rows, 0)])
    assert len(replay.finals) > 200


def test_sampling_is_uniform() -> None:
    replay = make_replay(4)
    for step in Life.made_up(7, 1, 1, box(2), 0).steps:
        replay.add(step)
    drawn = torch.cat([replay.sample(4).reward[0] for _ in range(5000)])
    share = torch.stack([(drawn == serial).float().mean() for serial in (3, 4, 5, 6)])
    torch.testing.assert_close(share, torch.full((4,), 0.25), rtol=0, atol=0.015)  # 5 standard deviations


def test_terminated_and_truncated_are_stored_apart() -> None:
    replay = make_replay(4)
    for terminated, truncated in ((True, False), (False, True), (False, False)):
        replay.add(make_step(torch.zeros(1, 1, 2), terminated=terminated, truncated=truncated))
    assert replay.terminated[0, :3, 0].tolist() == [True, False, False]
    assert replay.truncated[0, :3, 0].tolist() == [False, True, False]


def test_bytes_stay_bytes_and_discrete_actions_stay_whole() -> None:
    host = Host(observation_space=PIXELS, action_space=gym.spaces.Discrete(4))
    replay = Replay(host, capacity=4)
    obs, no = torch.full((1, 1, 2, 3), 255, dtype=torch.uint8), torch.zeros(1, 1, dtype=torch.bool)
    replay.add(Transition(obs, torch.tensor([[3]]), torch.zeros(1, 1), obs - 1, no, no))
    batch = replay.sample(1)
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert (int(batch.obs.min()), int(batch.next_obs.max())) == (255, 254)
    assert batch.action.tolist() == [[3]]
    assert batch.action.dtype == torch.int64


def test_what_was_added_can_change_afterwards() -> None:
    replay = make_replay()
    step = make_step(torch.zeros(1, 1, 2))
    replay.add(step)
    step.obs.fill_(9.0)
    assert replay.sample(1).obs.tolist() == [[[0.0, 0.0]]]


# ------------------------------------------------------------------ members, checkpoints


def test_a_seed_alone_and_in_a_population_samples_the_same() -> None:
    crowd, alone = make_replay(20, seeds=(4, 5, 6)), make_replay(20, seeds=(5,))
    for step in Life.made_up(30, 3, 1, box(2), 0).steps:
        crowd.add(step)
        alone.add(Transition(*(field[1:2] for field in step[:6])))
    for _ in range(5):
        ours, theirs = crowd.sample(16), alone.sample(16)
        pairs: Any = zip(ours[:6], theirs[:6], strict=True)
        assert all(torch.equal(a[1], b[0]) for a, b in pairs)
        assert not torch.equal(ours.reward[0] // 3, ours.reward[1] // 3)  # the same steps would be the same stream


@pytest.mark.parametrize("stop", [1, 9, 25, 150])
def test_a_saved_replay_continues_bit_for_bit(tmp_path: Path, stop: int) -> None:
    life = Life.made_up(200, 2, 2, box(2), 1)  # long enough for the observations aside to grow
    replay, resumed = make_replay(60, seeds=(0, 1), envs=2), make_replay(60, seeds=(2, 3), envs=2)
    for step in life.steps[:stop]:
        replay.add(step)
    replay.sample(2)
    save_file({key: value.contiguous() for key, value in replay.state_dict().items()}, tmp_path / "replay.safetensors")
    resumed.load_state_dict(load_file(tmp_path / "replay.safetensors"))
    for step in life.steps[stop:]:
        replay.add(step)
        resumed.add(step)
        pairs: Any = zip(replay.sample(2)[:6], resumed.sample(2)[:6], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_a_state_that_does_not_fit_is_refused_whole() -> None:
    replay, other = make_replay(60, seeds=(0, 1), envs=2), make_replay(40, seeds=(0, 1), envs=2)
    for step in Life.made_up(5, 2, 2, box(2), 1).steps:
        replay.add(step)
    before = {key: value.clone() for key, value in replay.state_dict().items()}
    with pytest.raises(ValueError, match="make this Replay with the same spaces, seeds and settings"):
        replay.load_state_dict(other.state_dict())
    assert all(torch.equal(value, replay.state_dict()[key]) for key, value in before.items())


# ------------------------------------------------------------------ a shaper marks states in it


def test_slots_read_back_what_was_stored_there() -> None:
    replay = make_replay(6, seeds=(0, 1), envs=2)
    for step in Life.made_up(20, 2, 2, box(2), 3).steps:
        stored = replay.add(step)
        assert stored.slot is not None
        assert int(stored.slot.max()) < replay.capacity
        for p in range(2):
            obs, action = replay.read(p, stored.slot[p])
            assert torch.equal(obs, step.obs[p])
            assert torch.equal(action, step.action[p])


def test_released_slots_are_exactly_those_that_change() -> None:
    """All slots but the row being written and the released ones keep their observation through an `add`."""
    replay = make_replay(6, envs=2)
    for step in Life.made_up(20, 1, 2, box(2), 5).steps:
        released = replay.next_released()
        before = replay.obs.flatten(0, 2).clone()
        stored = replay.add(step)
        assert stored.slot is not None
        gone = {*released[0].tolist(), *stored.slot[0].tolist()}
        others = [slot for slot in range(replay.capacity) if slot not in gone]
        assert torch.equal(replay.obs.flatten(0, 2)[others], before[others])
    assert stored.slot is not None
    assert not set(released[0].tolist()) & set(stored.slot[0].tolist())


def test_sasr_with_flags_counts_what_the_replay_still_holds() -> None:
    replay = make_replay(12, seeds=(0, 1), envs=2)
    shaper = SASR("paper", storage="flags", retention=1.0)
    shaper.bind(Host(observation_space=box(2), action_space=box(1), seeds=(0, 1), envs=2, replay=replay))
    g = torch.Generator().manual_seed(0)
    episodes = 9
    for t in range(3 * episodes):
        shaper.release(replay.next_released())
        obs = torch.randn(2, 2, 2, generator=g)
        shaper.observe(replay.add(make_step(obs, truncated=t % 3 == 2)))
    for p in range(2):
        kept = shaper.evidence.store.select(p, 1)
        slots = [(replay.cursor * 2 - age) % replay.capacity for age in range(1, len(replay) + 1)]
        stored, _ = replay.read(p, torch.tensor(sorted(slots)))
        assert torch.equal(kept, stored)


# ------------------------------------------------------------------ bad input


def test_a_batch_larger_than_what_is_stored_is_refused() -> None:
    replay = make_replay(10, envs=2)
    with pytest.raises(ValueError, match="batch_size=1 must be between 1 and the 0 steps stored"):
        replay.sample(1)
    replay.add(make_step(torch.zeros(1, 2, 2)))
    with pytest.raises(ValueError, match=r"batch_size=3 .* the 2 steps stored for each seed; take more steps"):
        replay.sample(3)
    with pytest.raises(ValueError, match="batch_size=0"):
        replay.sample(0)


def test_a_capacity_below_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity=2 must be at least one step of each of the 3 environments"):
        make_replay(2, envs=3)


def test_a_replay_that_does_not_fit_names_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"needs [\d,.]+ GiB of replay, but cpu has [\d,.]+ GiB free; capacity="):
        make_replay(10**13)
    monkeypatch.setattr(replay_module, "free_bytes", lambda device: 10_000)
    with pytest.raises(ValueError, match=r"capacity=500 for 2 seeds") as error:
        make_replay(500, seeds=(0, 1))
    fits = int(str(error.value).split("free; capacity=")[1].split()[0])
    replay = make_replay(fits, seeds=(0, 1))
    stored = sum(buffer.nbytes for name, buffer in replay.named_buffers() if name not in ("finals", "offset"))
    assert 8_800 < stored <= 9_000
    with pytest.raises(ValueError, match="capacity="):
        make_replay(fits + 2, seeds=(0, 1))
    monkeypatch.setattr(replay_module, "free_bytes", lambda device: 10)
    with pytest.raises(ValueError, match="no capacity would fit: train fewer seeds"):
        make_replay(1)


def test_free_memory_is_some_but_not_more_than_there_is() -> None:
    assert 2**20 < free_bytes(torch.device("cpu")) < 2**50


@pytest.mark.parametrize("field", ["obs", "action", "reward", "next_obs", "terminated", "truncated"])
def test_a_field_of_the_wrong_shape_is_refused_and_nothing_is_stored(field: str) -> None:
    replay = make_replay()
    step = make_step(torch.ones(1, 1, 2))
    wrong = step._replace(**{field: torch.stack([getattr(step, field)[0]] * 2)})
    with pytest.raises(ValueError, match=rf"{field} has shape \(2, 1"):
        replay.add(wrong)
    assert len(replay) == 0
    assert not replay.obs.any()


def test_a_dead_step_is_refused() -> None:
    replay = make_replay(envs=2)
    step = make_step(torch.zeros(1, 2, 2), valid=torch.tensor([[True, False]]))
    with pytest.raises(ValueError, match="seed number 0, environment 1 is not valid"):
        replay.add(step)
    replay.add(step._replace(valid=torch.ones(1, 2, dtype=torch.bool)))
    assert len(replay) == 2
