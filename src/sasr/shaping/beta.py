"""The success rate of a state as a Beta distribution over its counts."""

from __future__ import annotations

import torch
from torch import Tensor

from sasr.randomness import MemberStreams


def beta_mean(n_success: Tensor, n_failure: Tensor) -> Tensor:
    """Mean of Beta(N_S + 1, N_F + 1).

    >>> float(beta_mean(torch.tensor(3.0), torch.tensor(0.0)))
    0.800000011920929
    """
    return (n_success + 1.0) / (n_success + n_failure + 2.0)


def success_ratio(n_success: Tensor, n_failure: Tensor) -> Tensor:
    """N_S / (N_S + N_F), the paper's ablation without a Beta distribution; 0.5 where nothing was counted.

    >>> success_ratio(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 0.0])).tolist()
    [0.75, 0.5]
    """
    total = n_success + n_failure
    return torch.where(total > 0.0, n_success / total, 0.5)


def beta_draw(n_success: Tensor, n_failure: Tensor, streams: MemberStreams) -> Tensor:
    """Draws (P, B) from Beta(N_S + 1, N_F + 1) for counts (P, B): G_S / (G_S + G_F) of two Gamma draws.

    Two Gamma draws rather than torch.distributions.Beta because only they take a generator. Both shapes are at
    least 1, so neither draw can underflow to 0 in float64 and the ratio is never 0/0.
    """
    shape = torch.stack([n_success, n_failure], dim=1).double() + 1.0  # (P, 2, B)
    success, failure = streams.draw(_standard_gamma, shape).unbind(1)
    return (success / (success + failure)).float()


def _standard_gamma(shape: Tensor, generator: torch.Generator) -> Tensor:
    return torch._standard_gamma(shape, generator=generator)
