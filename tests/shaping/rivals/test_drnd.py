from __future__ import annotations

import pytest
import torch

from sasr.shaping.rivals.drnd import DRND, drnd_terms
from tests.conftest import make_batch
from tests.shaping.rivals.novelty import bind, clusters


def mean_of_draws(n: int, N: int, *, times: int = 400, D: int = 512) -> tuple[torch.Tensor, torch.Tensor]:
    """What a predictor says that is the mean of n drawn targets, (times, D), and the targets (N, times, D)."""
    generator = torch.Generator().manual_seed(n * 100 + N)
    targets = torch.randn(N, times, D, generator=generator)
    drawn = torch.randint(N, (n, times, D), generator=generator)
    return targets.gather(0, drawn).mean(0), targets


@pytest.mark.parametrize("N", [5, 10])
@pytest.mark.parametrize("n", [1, 2, 4, 16, 64])
def test_the_statistic_is_one_over_the_number_of_visits(n: int, N: int) -> None:
    predicted, targets = mean_of_draws(n, N)
    mean = targets.mean(0)
    raw = ((predicted.square() - mean.square()) / (targets.square().mean(0) - mean.square())).mean(-1)
    # One draw of 512 outputs scatters; its mean over the draws is what is unbiased.
    assert float(raw.median()) == pytest.approx(1.0 / n, rel=0.15)
    terms = drnd_terms(predicted, targets)
    assert float(terms.inverse_count.median()) == pytest.approx(1.0 / n, rel=0.15)


def test_the_root_of_each_output_fades_more_slowly_than_the_root_of_the_mean() -> None:
    shares = {}
    for root in ("each", "mean"):
        few, many = (drnd_terms(*mean_of_draws(n, 10, times=50), root=root).rarity.mean() / 512 for n in (16, 256))
        shares[root] = (float(few), float(many))
    assert shares["each"] == pytest.approx((0.30, 0.147), rel=0.2)
    assert shares["mean"] == pytest.approx((0.25, 0.0625), rel=0.3)


def test_the_terms_are_the_formulas() -> None:
    predicted, targets = torch.randn(3, 6), torch.randn(4, 3, 6)
    terms = drnd_terms(predicted, targets)
    mean, second = targets.mean(0), targets.square().mean(0)
    ratio = (predicted.square() - mean.square()).abs() / (second - mean.square())
    torch.testing.assert_close(terms.distance, (predicted - mean).square().sum(-1))
    torch.testing.assert_close(terms.rarity, ratio.clamp(1e-6, 1.0).sqrt().sum(-1), rtol=1e-4, atol=1e-4)
    first = drnd_terms(predicted, targets, compat=True)
    torch.testing.assert_close(first.distance, (predicted - mean).square().mean(-1))
    torch.testing.assert_close(first.rarity, ratio.clamp(1e-3, 1.0).sqrt().mean(-1), rtol=1e-4, atol=1e-4)


def test_targets_that_agree_do_not_blow_the_bonus_up() -> None:
    same = torch.randn(1, 3, 6).expand(5, 3, 6)
    for terms in (drnd_terms(torch.randn(3, 6), same), drnd_terms(same[0], same)):
        assert all(torch.isfinite(term).all() for term in terms)


def test_visits_lower_the_distance_a_lot_and_the_bonus_clearly() -> None:
    shaper = bind(DRND(learning_rate=1e-3, trained_share=1.0), 8)
    before = {name: own.clone() for name, own in shaper.named_parameters()}
    for seed in range(300):
        shaper.update(make_batch(clusters(seed=seed)[0]))
    for name, own in shaper.named_parameters():
        assert torch.equal(own, before[name]) == name.startswith("target."), name
    visited, unvisited = clusters(seed=1000)
    with torch.no_grad():
        near, far = shaper.terms(shaper.states(visited)), shaper.terms(shaper.states(unvisited))
    assert float(near.distance.mean() / far.distance.mean()) < 0.05
    assert float(near.inverse_count.mean()) < float(far.inverse_count.mean())
    ratio = shaper.shape(make_batch(visited)).mean() / shaper.shape(make_batch(unvisited)).mean()
    assert float(ratio) < 0.3


def test_every_target_is_learned_from_and_each_is_another_network() -> None:
    shaper = bind(DRND(targets=3, hidden=(16,), outputs=8), 4, seeds=(0, 1))
    _, targets = shaper.outputs(torch.randn(2, 5, 4))
    assert targets.shape == (3, 2, 5, 8)
    flat = targets.reshape(6, -1)
    assert len({tuple(row.tolist()) for row in flat}) == 6
    drawn = shaper.draw_targets(torch.empty(2, 300))
    assert all(80 < int(count) < 120 for own in drawn for count in own.bincount(minlength=3))
