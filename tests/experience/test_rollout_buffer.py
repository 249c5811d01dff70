from __future__ import annotations

from typing import Any

import pytest
import torch

from sasr import Host, Transition
from sasr.experience import rollout_buffer as module
from sasr.experience.rollout_buffer import Rollouts
from tests.agents.walks import CONTINUOUS, DISCRETE, Walk
from tests.conftest import box

P, E, N = 2, 3, 5


def host(**options: Any) -> Host:
    plain: dict[str, Any] = {"observation_space": box(3), "action_space": CONTINUOUS, "seeds": (0, 1), "envs": E}
    return Host(**(plain | options))


def filled(rows: int = N) -> tuple[Rollouts, list[Transition], Walk]:
    rollouts, walk, steps = Rollouts(host(), rows=N), Walk(P, E), []
    for t in range(rows):
        step = walk.step(torch.full((P, E, 2), float(t)))
        steps.append(step._replace(success=step.reward > 0.5))
        rollouts.add(steps[-1], log_prob=torch.full((P, E), -float(t)))
    return rollouts, steps, walk


def test_steps_come_back_as_they_were_and_in_order() -> None:
    rollouts, steps, _ = filled()
    assert rollouts.full
    assert len(rollouts) == N * E
    batch = rollouts.batch()
    index = torch.tensor([[0, 7, 14], [3, 3, 1]])  # step n·E + e
    for name in ("obs", "action", "reward", "next_obs", "terminated", "success"):
        whole = torch.stack([getattr(step, name) for step in steps], dim=1).flatten(1, 2)
        assert torch.equal(getattr(batch, name), whole)
        assert torch.equal(rollouts.take(name, index), torch.stack([whole[p, index[p]] for p in range(P)]))
    assert rollouts.take("log_prob", index).tolist() == [[0, -2, -4], [-1, -1, 0]]


def test_a_step_is_cut_where_its_episode_ended_or_its_environment_was_restarted() -> None:
    rollouts, steps, walk = filled()
    ended = torch.stack([step.terminated | step.truncated for step in steps], dim=1)
    assert ended.any()
    assert not ended.all()
    assert torch.equal(rollouts.cut(walk.obs), ended)
    elsewhere = walk.obs.clone()
    elsewhere[1, 2] += 1.0
    rollouts.obs[0, 3, 1] += 1.0
    expected = ended.clone()
    expected[1, -1, 2] = expected[0, 2, 1] = True
    assert torch.equal(rollouts.cut(elsewhere), expected)


def test_a_cleared_rollout_is_filled_anew_and_a_full_one_takes_no_more() -> None:
    rollouts, steps, walk = filled()
    with pytest.raises(RuntimeError, match="all 5 rows are taken"):
        rollouts.add(steps[0], log_prob=torch.zeros(P, E))
    rollouts.clear()
    assert len(rollouts) == 0
    step = walk.step(torch.zeros(P, E, 2))
    rollouts.add(step, log_prob=torch.zeros(P, E))
    assert torch.equal(rollouts.obs[:, 0], step.obs)
    assert torch.equal(rollouts.obs[:, 1], steps[1].obs)


def test_a_saved_rollout_goes_on_where_it_stood() -> None:
    saved, _, walk = filled(3)
    other = Rollouts(host(), rows=N)
    other.load_state_dict(saved.state_dict())
    for _ in range(2):
        step = walk.step(torch.zeros(P, E, 2))
        for own in (saved, other):
            own.add(step, log_prob=torch.zeros(P, E))
    ours, theirs = saved.state_dict(), other.state_dict()
    assert other.full
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    with pytest.raises(ValueError, match="expected"):
        Rollouts(host(), rows=N + 1).load_state_dict(saved.state_dict())


def test_wrong_steps_are_refused_by_name() -> None:
    rollouts, steps, _ = filled(1)
    zeros = torch.zeros(P, E)
    with pytest.raises(ValueError, match=r"action has shape \(2, 3\), expected .* \(2, 3, 2\)"):
        rollouts.add(steps[0]._replace(action=zeros), log_prob=zeros)
    with pytest.raises(ValueError, match=r"log_prob has shape \(2, 3, 1\)"):
        rollouts.add(steps[0], log_prob=zeros[..., None])
    valid = torch.ones(P, E, dtype=torch.bool)
    valid[1, 0] = False
    with pytest.raises(ValueError, match="seed number 1, environment 0 is not valid"):
        rollouts.add(steps[0]._replace(valid=valid), log_prob=zeros)
    assert len(rollouts) == E


def test_rollouts_that_do_not_fit_in_memory_are_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    # An observation twice 12 bytes, an action 8, reward and log-probability 4 each, three flags.
    row = (24 + 8 + 4 + 4 + 3) * P * E
    monkeypatch.setattr(module, "free_bytes", lambda device: 10 * row)
    Rollouts(host(), rows=9)
    with pytest.raises(ValueError, match=r"rollouts of 10 steps of 3 environments of 2 seeds.*9 steps would fit"):
        Rollouts(host(), rows=10)
    with pytest.raises(ValueError, match="rows=0 must be at least 1"):
        Rollouts(host(action_space=DISCRETE), rows=0)
