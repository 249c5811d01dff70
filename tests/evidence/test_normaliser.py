from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sasr.evidence.features import StateNormaliser


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), offset=st.sampled_from([0.0, 1e4, -1e6]))
def test_running_statistics_equal_numpys(sizes: list[int], offset: float) -> None:
    rng = np.random.default_rng(len(sizes))
    parts = [rng.normal(size=(2, n, 3)) + offset for n in sizes]
    normaliser = StateNormaliser(2, 3, enabled=True, clip=5.0)
    for part in parts:
        normaliser.observe(torch.tensor(part))
    whole = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(normaliser.mean.numpy(), whole.mean(1), rtol=1e-9)
    variance = (normaliser.spread / normaliser.count[:, None]).numpy()
    np.testing.assert_allclose(variance, whole.var(1), rtol=1e-4, atol=1e-9)


def test_invalid_steps_are_left_out_even_if_nan() -> None:
    normaliser = StateNormaliser(1, 2, enabled=True, clip=5.0)
    states = torch.tensor([[[1.0, 2.0], [float("nan"), 9.0], [3.0, 4.0]]])
    normaliser.observe(states, torch.tensor([[True, False, True]]))
    assert normaliser.count.tolist() == [2.0]
    assert normaliser.mean.tolist() == [[2.0, 3.0]]


def test_mapping_moves_only_when_frozen() -> None:
    normaliser = StateNormaliser(1, 1, enabled=True, clip=5.0)
    normaliser.observe(torch.tensor([[[0.0], [2.0]]]))
    states = torch.tensor([[[3.0]]])
    assert normaliser(states).item() == 3.0
    normaliser.freeze(0)
    assert normaliser(states).item() == pytest.approx(2.0)
    normaliser.observe(torch.full((1, 50, 1), 100.0))
    assert normaliser(states).item() == pytest.approx(2.0)


@pytest.mark.parametrize("value", [0.0, 7.0, 1e6])
def test_constant_feature_maps_to_zero(value: float) -> None:
    normaliser = StateNormaliser(1, 2, enabled=True, clip=5.0)
    states = torch.stack([torch.full((100,), value), torch.arange(100.0)], dim=1)[None]
    normaliser.observe(states)
    normaliser.freeze(0)
    mapped = normaliser(states)
    assert mapped[..., 0].abs().max() < 1e-6
    assert mapped[..., 1].std() == pytest.approx(1.0, abs=0.02)


def test_outliers_are_clipped_and_off_means_untouched() -> None:
    on, off = (StateNormaliser(1, 1, enabled=e, clip=5.0) for e in (True, False))
    for normaliser in (on, off):
        normaliser.observe(torch.randn(1, 100, 1))
        normaliser.freeze(0)
    far = torch.tensor([[[1e9], [-1e9]]])
    assert on(far).flatten().tolist() == [5.0, -5.0]
    assert torch.equal(off(far), far)


def test_freezing_one_member_leaves_the_others() -> None:
    normaliser = StateNormaliser(3, 2, enabled=True, clip=5.0)
    normaliser.observe(torch.randn(3, 10, 2) + 4.0)
    normaliser.freeze(1)
    assert (normaliser.centre[1] != 0).all()
    assert (normaliser.centre[[0, 2]] == 0).all()
