from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, LeaveOneOut
from sklearn.neighbors import KernelDensity

from sasr.evidence import bandwidth as rules
from sasr.evidence.bandwidth import RULES, LinearSchedule, check_bandwidth, choose_bandwidth
from sasr.evidence.kernels import Cauchy, Gaussian, Kernel, Laplacian


def normal(n: int, k: int) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(0))


def test_dimension_rule_is_half_root_k() -> None:
    assert choose_bandwidth("dimension", normal(50, 105), Gaussian(), 0) == pytest.approx(0.5 * math.sqrt(105))


def test_silverman_as_the_paper_writes_it() -> None:
    states = normal(500, 1)
    sigma = float(states.std(correction=0))
    assert choose_bandwidth("silverman_paper", states, Gaussian(), 0) == pytest.approx(1.06 * sigma * 500 ** (-0.2))


def test_median_heuristic_makes_the_kernel_one_over_e_at_the_median_distance() -> None:
    states = normal(300, 5)
    h = choose_bandwidth("median", states, Gaussian(), 0)
    kernel = Gaussian().value(states, states, h)
    off_diagonal = kernel[~torch.eye(300, dtype=torch.bool)]
    assert float(off_diagonal.median()) == pytest.approx(math.exp(-1), rel=0.01)


def test_likelihood_rule_agrees_with_scikit_learns_leave_one_out_search() -> None:
    states = normal(80, 2)
    ours = choose_bandwidth("likelihood", states, Gaussian(), 0)
    grid = ours * 2.0 ** (np.arange(-8, 9) / 4)
    search = GridSearchCV(KernelDensity(), {"bandwidth": grid}, cv=LeaveOneOut()).fit(states.numpy())
    assert search.best_params_["bandwidth"] == pytest.approx(ours)


def test_likelihood_rule_is_not_fooled_by_repeated_states() -> None:
    states = normal(60, 2)
    assert choose_bandwidth("likelihood", states.repeat(5, 1), Gaussian(), 0) > 0.1


@pytest.mark.parametrize("kernel", [Gaussian(), Laplacian(), Cauchy()])
@pytest.mark.parametrize("k", [1, 2, 30, 200])
def test_under_the_neighbour_rule_the_median_state_has_one_in_fifty_as_neighbours(k: int, kernel: Kernel) -> None:
    states = normal(250, k)
    h = choose_bandwidth("neighbours", states, kernel, 0)
    others = kernel.value(states, states, h).fill_diagonal_(0.0).sum(1) / 249
    assert float(others.median()) == pytest.approx(0.02, rel=0.15)  # h is found to half a per cent, and k multiplies it


def test_neighbour_rule_is_not_fooled_by_a_crowd_or_by_repeated_states() -> None:
    states = normal(240, 2)
    usual = choose_bandwidth("neighbours", states, Gaussian(), 0)
    crowd = torch.cat([states[:150], 1e-3 * states[150:]])
    assert 0.5 * usual < choose_bandwidth("neighbours", crowd, Gaussian(), 0) < 2.0 * usual
    assert choose_bandwidth("neighbours", states.repeat(4, 1), Gaussian(), 0) == pytest.approx(usual)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_gives_a_positive_number_for_any_states(rule: Any) -> None:
    for states in (torch.zeros(5, 2), torch.ones(1, 3), normal(2000, 2)):
        for kernel in (Gaussian(), Cauchy()):
            h = choose_bandwidth(rule, states, kernel, 0)
            assert h > 0.0
            assert math.isfinite(h)


def test_pairwise_rules_look_at_a_bounded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def noted(states: torch.Tensor, kernel: object) -> float:
        seen.append(len(states))
        return 1.0

    monkeypatch.setitem(rules.RULES, "median", noted)
    choose_bandwidth("median", normal(5000, 2), Gaussian(), 0)
    assert seen == [rules.SAMPLE]


def test_schedule_falls_linearly_and_stays() -> None:
    schedule = LinearSchedule(0.5, 0.1, 1000)
    assert [round(schedule.at(n), 6) for n in (0, 250, 1000, 9999)] == [0.5, 0.4, 0.1, 0.1]


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_bandwidth_names_the_value_and_the_fix(bad: float) -> None:
    with pytest.raises(ValueError, match=f"bandwidth={bad} must be above 0; the paper uses 0.2"):
        check_bandwidth(bad)


def test_bad_rules_and_schedules() -> None:
    with pytest.raises(ValueError, match="did you mean 'median'"):
        check_bandwidth(cast(Any, "medain"))
    with pytest.raises(ValueError, match="start and end must be finite and above 0"):
        LinearSchedule(0.5, 0.0, 10)
