from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from sasr.lanes import halves, side_by_side, two_lanes


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def where() -> str:
    return threading.current_thread().name


def test_results_come_in_order_and_every_other_task_has_another_thread() -> None:
    with two_lanes():
        told = side_by_side([lambda i=i: (i, where(), torch.get_num_threads()) for i in range(5)])  # type: ignore[misc]
    names = [name for _, name, _ in told]
    assert [i for i, *_ in told] == list(range(5))
    assert set(names[::2]) == {where()}
    assert len(set(names[1::2]) - {where()}) == 1
    assert {threads for *_, threads in told} == {1}


def test_without_two_lanes_or_two_threads_everything_runs_here() -> None:
    assert set(side_by_side([where] * 4)) == {where()}
    with two_lanes(False):
        assert set(side_by_side([where] * 4)) == {where()}
        assert halves(8) == [slice(0, 8)]
    torch.set_num_threads(1)
    with two_lanes():
        assert set(side_by_side([where] * 4)) == {where()}
        assert halves(8) == [slice(0, 8)]


def test_halves_cover_all_rows_once() -> None:
    with two_lanes():
        for count in (1, 2, 7, 256):
            assert [row for half in halves(count) for row in range(count)[half]] == list(range(count))


def test_a_task_may_have_tasks_of_its_own_in_either_lane() -> None:
    def inner() -> int:
        return sum(side_by_side([lambda: len(halves(8))] * 2))

    with two_lanes():
        assert side_by_side([inner] * 2) == [2, 2]


@pytest.mark.parametrize("at", [0, 1])
def test_an_error_in_either_lane_is_raised_here_and_the_lanes_go_on(at: int) -> None:
    def fail() -> int:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"), two_lanes():
        side_by_side([fail if i == at else (lambda: 1) for i in range(2)])
    assert torch.get_num_threads() == 2
    with two_lanes():
        assert side_by_side([lambda: 1, lambda: 2]) == [1, 2]
