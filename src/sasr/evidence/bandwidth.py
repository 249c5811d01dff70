"""Rules that choose the kernel's bandwidth h from the states at hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sasr.errors import unknown_name
from sasr.evidence.kernels import Kernel

RuleName = Literal["dimension", "neighbours", "median", "silverman_paper", "likelihood"]
SAMPLE = 1000
"""States a rule looks at, at most: pairwise rules cost SAMPLE²."""
SEARCH_SAMPLE = 256
"""Distinct states a search looks at: it computes all their kernels for every h it tries."""
NEIGHBOURS = 0.02
"""Share of all states that should be a state's neighbours under the rule of that name."""


@dataclass(frozen=True)
class LinearSchedule:
    """h falls linearly from `start` to `end` over the first `steps` observed states (paper, ablation on h)."""

    start: float = 0.5
    end: float = 0.1
    steps: int = 1_000_000

    def __post_init__(self) -> None:
        if not (0.0 < self.start < math.inf and 0.0 < self.end < math.inf and self.steps >= 1):
            raise ValueError(
                f"{self}: start and end must be finite and above 0, and steps at least 1; the paper goes 0.5 → 0.1"
            )

    def at(self, observed: float) -> float:
        """Bandwidth after `observed` states.

        >>> round(LinearSchedule(0.5, 0.1, 1000).at(500), 6)
        0.3
        """
        return self.start + min(1.0, observed / self.steps) * (self.end - self.start)


Bandwidth = float | LinearSchedule | RuleName


def dimension_rule(states: Tensor, kernel: Kernel) -> float:
    """The kernel's bandwidth for standardised states of this many features: 0.5·√k for the Gaussian."""
    return kernel.dimension_bandwidth(states.shape[1])


def silverman_paper(states: Tensor, kernel: Kernel) -> float:
    """1.06·σ·N^(−1/5), as the paper's appendix writes it: the rule for one dimension, whatever k is.

    σ is the standard deviation, averaged over features.
    """
    sigma = float(states.double().std(dim=0, correction=0).mean())
    return 1.06 * sigma * math.pow(len(states), -1 / 5)


def median_heuristic(states: Tensor, kernel: Kernel) -> float:
    """Median distance between distinct states over √2, so that a Gaussian kernel is e⁻¹ there."""
    distance = torch.pdist(states)
    distance = distance[distance > 0]
    return float(distance.median()) / math.sqrt(2.0) if len(distance) else 0.0


def leave_one_out_likelihood(states: Tensor, kernel: Kernel) -> float:
    """The h under which each state is most likely given the others, on a grid around the median heuristic.

    Repeated states make ever smaller bandwidths ever likelier, so each state counts once.
    """
    states = _distinct(states)
    centre = median_heuristic(states, kernel)
    n, k = states.shape
    if n < 3 or centre == 0.0:
        return centre

    def log_likelihood(h: float) -> float:
        others = kernel.value(states, states, h).double().fill_diagonal_(0.0).sum(1) / (n - 1)
        # A state beyond the reach of all others ends the search for smaller h, as it should, without log(0).
        return float(others.clamp(min=1e-300).log().mean()) - kernel.log_mass(k, h)

    grid = [centre * math.exp2(step / 4.0) for step in range(-24, 13)]
    return max(grid, key=log_likelihood)


def neighbour_rule(states: Tensor, kernel: Kernel) -> float:
    """The h at which the kernel of the median state sums to 2 % of the other states.

    So narrow that far states differ, so wide that none is alone, in two dimensions and in hundreds alike. The median,
    because a crowd in one place must not make the kernel too narrow for all others.
    """
    states = _distinct(states)
    usual = median_heuristic(states, kernel)
    if len(states) < 3 or usual == 0.0:
        return usual

    def share(h: float) -> float:
        return float((kernel.value(states, states, h).double().sum(1) - 1.0).median()) / (len(states) - 1)

    low, high = math.log(usual) - 5.0, math.log(usual)
    while share(math.exp(high)) < NEIGHBOURS:  # never for the Gaussian; others measure distance in other ways
        low, high = high, high + 1.0
    for _ in range(10):  # halves 5 to below half a per cent of h
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(math.exp(middle)) < NEIGHBOURS else (low, middle)
    return math.exp(high)


def _distinct(states: Tensor) -> Tensor:
    states = torch.unique(states, dim=0)
    return states[:: max(1, len(states) // SEARCH_SAMPLE)][:SEARCH_SAMPLE]


RULES: dict[str, Callable[[Tensor, Kernel], float]] = {
    "dimension": dimension_rule,
    "neighbours": neighbour_rule,
    "median": median_heuristic,
    "silverman_paper": silverman_paper,
    "likelihood": leave_one_out_likelihood,
}


def check_bandwidth(bandwidth: Bandwidth) -> None:
    """Raise a ValueError with the fix if `bandwidth` can't be one."""
    if isinstance(bandwidth, str):
        if bandwidth not in RULES:
            raise unknown_name("bandwidth rule", bandwidth, RULES)
    elif not isinstance(bandwidth, LinearSchedule) and not (bandwidth > 0.0 and math.isfinite(bandwidth)):
        raise ValueError(f"bandwidth={bandwidth} must be above 0; the paper uses 0.2, 'dimension' adapts to the states")


def choose_bandwidth(bandwidth: Bandwidth, states: Tensor, kernel: Kernel, observed: float) -> float:
    """The bandwidth for these mapped states (n, k) after `observed` states in all."""
    if isinstance(bandwidth, LinearSchedule):
        return bandwidth.at(observed)
    if not isinstance(bandwidth, str):
        return bandwidth
    n = len(states)
    if n > SAMPLE:
        # Evenly spaced rather than random: the choice then depends on the states alone.
        states = states[torch.linspace(0, n - 1, SAMPLE, device=states.device).long()]
    h = RULES[bandwidth](states, kernel)
    # All states alike: any bandwidth gives the same counts.
    return h if h > 0.0 and math.isfinite(h) else 1.0
