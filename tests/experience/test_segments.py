from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sasr.experience.segments import Segment, Segmenter
from tests.conftest import make_step


def make(rule: Any, *, members: int = 1, envs: int = 1, **options: Any) -> Segmenter:
    return Segmenter(rule, members=members, envs=envs, item_shape=(1,), dtype=torch.float32, **options)


def play(
    segmenter: Segmenter, rewards: Sequence[float], *, ends: dict[int, str] | None = None
) -> list[tuple[bool, list[int]]]:
    """Steps numbered from 0; `ends` says which of them terminate or truncate the episode."""
    closed: list[Segment] = []
    for number, reward in enumerate(rewards):
        items = torch.full((1, 1, 1), float(number))
        end = (ends or {}).get(number, "")
        step = make_step(items, reward=reward, terminated=end == "terminated", truncated=end == "truncated")
        closed += segmenter.add(step, items)
    return [(segment.success, segment.steps.flatten().int().tolist()) for segment in closed]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_whole_episodes_succeed_if_ever_rewarded(end: str) -> None:
    found = play(make("episode"), [0, 0, 1, 0, 0, 0, 0], ends={4: end, 6: end})
    assert found == [(True, [0, 1, 2, 3, 4]), (False, [5, 6])]


def test_a_reward_closes_a_success_and_the_longest_length_a_failure() -> None:
    found = play(make("segments", max_steps=3), [0, 0, 1, 0, 0, 0, 0, 1, 0], ends={8: "truncated"})
    assert found == [(True, [0, 1, 2]), (False, [3, 4, 5]), (True, [6, 7]), (False, [8])]


def test_a_reward_on_the_last_allowed_step_is_a_success() -> None:
    assert play(make("segments", max_steps=2), [0, 1]) == [(True, [0, 1])]


def test_the_papers_rule_takes_whole_episodes_while_rewards_only_come_at_their_end() -> None:
    ends = {2: "terminated", 5: "truncated", 8: "terminated"}
    rewards = [0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert play(make("paper", max_steps=2), rewards, ends=ends) == play(make("episode"), rewards, ends=ends)


def test_the_papers_rule_cuts_at_rewards_once_an_episode_went_on_after_one() -> None:
    rewards, ends = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0], {2: "terminated", 8: "truncated"}
    found = play(make("paper", max_steps=3), rewards, ends=ends)
    assert found == [(True, [0, 1, 2]), (True, [3, 4, 5]), (False, [6, 7, 8])]


def test_the_papers_rule_is_each_seeds_own_and_survives_save_and_load() -> None:
    segmenter = make("paper", members=2)
    step = make_step(torch.zeros(2, 1, 1))
    segmenter.add(step._replace(reward=torch.tensor([[1.0], [0.0]])), torch.zeros(2, 1, 1))
    restored = make("paper", members=2)
    restored.load_state_dict(segmenter.state_dict())
    closed = restored.add(step._replace(reward=torch.ones(2, 1), truncated=torch.tensor([[False], [True]])), step.obs)
    assert [(segment.member, len(segment.steps)) for segment in closed] == [(0, 1), (1, 2)]
    closed = restored.add(step._replace(reward=torch.tensor([[1.0], [0.0]])), step.obs)
    assert [segment.member for segment in closed] == [0]


def test_the_released_codes_rule() -> None:
    """A success ends with the first zero after positives, that step included; costs do not end it."""
    found = play(make("authors"), [0, 1, 1, 0, 0, 0], ends={5: "truncated"})
    assert found == [(True, [0, 1, 2, 3]), (False, [4, 5])]
    found = play(make("authors"), [-0.1, 1, -0.1, -0.1], ends={3: "terminated"})
    assert found == [(True, [0, 1, 2, 3])]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([-0.1, 0.0, 1.0]), st.sampled_from(["", "", "", "end"])), max_size=40))
def test_the_authors_rule_equals_a_plain_rewriting_of_their_loop(steps: list[tuple[float, str]]) -> None:
    expected, trajectory, positive = [], [], False
    for number, (reward, end) in enumerate(steps):
        trajectory.append(number)
        if reward > 0:
            positive = True
        elif reward == 0 and positive:
            expected.append((True, trajectory))
            trajectory, positive = [], False
        if end:
            if trajectory:
                expected.append((positive, trajectory))
            trajectory, positive = [], False
    ends = {number: "truncated" for number, (_, end) in enumerate(steps) if end}
    assert play(make("authors"), [reward for reward, _ in steps], ends=ends) == expected


def test_open_segments_survive_save_and_load() -> None:
    original = make("episode")
    play(original, [0.0] * 100)
    restored = make("episode")
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    step, items = make_step(torch.zeros(1, 1, 1), terminated=True), torch.zeros(1, 1, 1)
    assert torch.equal(original.add(step, items)[0].steps, restored.add(step, items)[0].steps)


def test_a_step_that_is_not_real_leaves_no_trace() -> None:
    """Environments that were reset in a step of their own have nothing to record in it."""
    segmenter = make("segments", members=2)
    closed: list[Segment] = []
    for number, valid in enumerate([(True, True), (True, False), (False, True), (True, True)]):
        items = torch.full((2, 1, 1), float(number))
        real = torch.tensor(valid)[:, None]
        step = make_step(items, reward=0.0, terminated=number == 3)
        # Where it is not real it looks like a rewarded end.
        step = step._replace(valid=real, reward=(~real).float(), terminated=step.terminated | ~real)
        closed += segmenter.add(step, items)
    found = [(s.member, s.success, s.steps.flatten().int().tolist()) for s in closed]
    assert found == [(0, False, [0, 1, 3]), (1, False, [0, 2, 3])]
