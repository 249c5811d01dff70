"""The success rate of a state as a Beta distribution over its counts."""

from __future__ import annotations

import torch
from torch import Tensor

from sasr.randomness import MemberStreams


def beta_mean(n_success: Tensor, n_failure: Tensor) -> Tensor:
    """Mean of Beta(N_S + 1, N_F + 1), the form without sampling.

    >>> float(beta_mean(torch.tensor(3.0), torch.tensor(0.0)))
    0.800000011920929
    """
    return (n_success + 1.0) / (n_success + n_failure + 2.0)


def beta_draw(n_success: Tensor, n_failure: Tensor, streams: MemberStreams) -> Tensor:
    """One draw from Beta(N_S + 1, N_F + 1) for each pair of counts (P, B): G_S / (G_S + G_F) of two Gamma draws.

    Two Gamma draws rather than torch.distributions.Beta because only they take a generator. Both shapes are at least 1,
    so neither draw can underflow to 0 in float64 and the ratio is never 0/0.
    """
    shape = torch.stack([n_success, n_failure], dim=1).double() + 1.0  # (P, 2, B)
    success, failure = streams.draw(_standard_gamma, shape).unbind(1)
    return (success / (success + failure)).float()


def beta_quantile(n_success: Tensor, n_failure: Tensor, normal: Tensor) -> Tensor:
    """Nearly the Φ(normal)-quantile of Beta(N_S + 1, N_F + 1), so that states that share a `normal` share a quantile.

    G_S / G_F of two Gammas has no simple quantile, but the cube root of a Gamma is nearly normal (Wilson and Hilferty),
    and the ratio of two normals is below r with a probability that can be solved for r (Paulson): a dozen elementary
    operations. The quantile is off by up to 0.013, the mean by up to 0.01 and the deviation by up to 0.04 of a standard
    deviation (`tests/shaping/test_beta.py`), all at N_S = 0 or N_F = 0.

    >>> beta_quantile(torch.tensor([8.0, 998.0]), torch.tensor([3.0, 998.0]), torch.tensor(0.0))
    tensor([0.7023, 0.5000])
    """
    # Further out, the cube root of a Gamma of shape 1 would come out negative: 1.2 % of the quantiles share two values.
    z = normal.double().clamp(-2.5, 2.5)
    alpha, beta = n_success.double() + 1.0, n_failure.double() + 1.0
    v_success, v_failure = 1.0 / (9.0 * alpha), 1.0 / (9.0 * beta)
    m_success, m_failure = 1.0 - v_success, 1.0 - v_failure
    root = m_success**2 * v_failure + m_failure**2 * v_success - z**2 * v_success * v_failure
    ratio = (m_success * m_failure + z * root.clamp(min=0.0).sqrt()) / (m_failure**2 - z**2 * v_failure)
    success = alpha * ratio.clamp(min=0.0) ** 3
    return (success / (success + beta)).to(n_success.dtype)


def _standard_gamma(shape: Tensor, generator: torch.Generator) -> Tensor:
    return torch._standard_gamma(shape, generator=generator)
