from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from sasr.randomness import MemberStreams
from sasr.shaping.beta import beta_draw, beta_mean, success_ratio

N = 100_000


def draws(n_success: float, n_failure: float, seed: int = 0) -> np.ndarray:
    streams = MemberStreams((seed,), "beta", torch.device("cpu"))
    return beta_draw(torch.full((1, N), n_success), torch.full((1, N), n_failure), streams)[0].double().numpy()


@pytest.mark.parametrize(
    ("n_success", "n_failure"),
    [(0, 0), (1e-3, 0), (0.5, 2), (3, 1), (0, 50), (200, 1000), (1e5, 3), (1e6, 1e6), (0, 1e7), (1e7, 1e7)],
)
def test_moments_within_three_standard_errors(n_success: float, n_failure: float) -> None:
    found = draws(n_success, n_failure)
    exact = stats.beta(n_success + 1, n_failure + 1)
    assert found.mean() == pytest.approx(exact.mean(), abs=3 * exact.std() / np.sqrt(N))
    kurtosis = exact.stats("k") + 3.0
    variance_error = exact.var() * np.sqrt((kurtosis - 1.0) / N)
    assert found.var() == pytest.approx(exact.var(), abs=3 * variance_error)


def test_no_evidence_is_uniform() -> None:
    assert stats.kstest(draws(0, 0), "uniform").pvalue > 0.001


def test_never_nan_for_counts_from_zero_to_ten_million() -> None:
    grid = torch.cat([torch.zeros(1), torch.logspace(-8, 7, 60)])
    n_success, n_failure = (axis.reshape(1, -1).repeat(1, 20) for axis in torch.meshgrid(grid, grid, indexing="ij"))
    found = beta_draw(n_success, n_failure, MemberStreams((0,), "beta", torch.device("cpu")))
    assert torch.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()


def test_mean_form_is_the_distributions_mean() -> None:
    assert beta_mean(torch.tensor(7.0), torch.tensor(2.0)).item() == pytest.approx(stats.beta(8, 3).mean())


def test_a_member_draws_the_same_alone_and_in_a_population() -> None:
    counts = torch.rand(3, 50) * 10
    together = beta_draw(counts, counts.flip(1), MemberStreams((4, 5, 6), "beta", torch.device("cpu")))
    alone = beta_draw(counts[1:2], counts.flip(1)[1:2], MemberStreams((5,), "beta", torch.device("cpu")))
    assert torch.equal(together[1], alone[0])
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize(("n_success", "n_failure", "ratio"), [(3.0, 1.0, 0.75), (0.0, 2.0, 0.0), (0.0, 0.0, 0.5)])
def test_the_ratio_of_counts_is_half_where_nothing_was_counted(
    n_success: float, n_failure: float, ratio: float
) -> None:
    assert success_ratio(torch.tensor(n_success), torch.tensor(n_failure)).item() == ratio
