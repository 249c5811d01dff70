from __future__ import annotations

from typing import Any

import pytest
import torch

from sasr.experience.retained import StatePool
from sasr.experience.retention import keep_as_authors, keep_random


def test_random_retention_keeps_an_exact_share_on_average() -> None:
    generator = torch.Generator().manual_seed(0)
    for length, share in ((7, 0.1), (200, 0.1), (33, 0.5), (10, 1.0)):
        kept = [len(keep_random(length, share, generator)) for _ in range(4000)]
        assert sum(kept) / 4000 == pytest.approx(share * length, abs=0.03)
        assert max(kept) - min(kept) <= 1


def test_random_retention_is_uniform_over_positions_without_repeats() -> None:
    generator, hits = torch.Generator().manual_seed(0), torch.zeros(20)
    for _ in range(5000):
        kept = keep_random(20, 0.25, generator)
        assert len(kept.unique()) == len(kept) == 5
        assert kept.tolist() == sorted(kept.tolist())
        hits[kept] += 1
    assert (hits / 5000 - 0.25).abs().max() < 0.03


@pytest.mark.parametrize(("share", "stride"), [(1.0, 2), (0.1, 11), (0.01, 101)])
def test_the_released_codes_strides(share: float, stride: int) -> None:
    assert keep_as_authors(500, share, torch.Generator()).tolist() == list(range(0, 500, stride))
    assert len(keep_as_authors(stride, share, torch.Generator())) == 0
    assert len(keep_as_authors(stride + 1, share, torch.Generator())) == 2


def test_pool_gives_back_what_each_member_kept_in_order() -> None:
    pool = StatePool(2, torch.float32, torch.device("cpu"))
    expected: dict[tuple[int, int], Any] = {}
    for number in range(100):
        key = (number % 3, number % 2)
        states = torch.randn(number % 5 + 1, 2)
        pool.append(*key, states)
        expected[key] = torch.cat([expected.get(key, torch.zeros(0, 2)), states])
    for key, states in expected.items():
        assert torch.equal(pool.select(*key), states)
    pool.clear(1)
    assert len(pool.select(1, 0)) == len(pool.select(1, 1)) == 0
    assert torch.equal(pool.select(2, 0), expected[2, 0])


def test_bytes_stay_bytes() -> None:
    pool = StatePool(4, torch.uint8, torch.device("cpu"))
    pool.append(0, 0, torch.tensor([[0, 1, 254, 255]], dtype=torch.uint8))
    assert pool.select(0, 0).dtype == torch.uint8
    assert pool.select(0, 0).tolist() == [[0, 1, 254, 255]]
