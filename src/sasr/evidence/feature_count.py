"""Rules that choose the number M of random Fourier features."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import Kernel


def features_for_error(error: float, confidence: float, pairs: int) -> int:
    """M ≥ (8/ε²)·ln(2N/δ): every one of N pairs is within ε of its kernel value with probability 1 − δ.

    z(s)ᵀz(s′) is a mean of M terms in [−2, 2], so Hoeffding bounds one pair's failure by 2·exp(−Mε²/8) and a union
    bound adds the N pairs up. The paper gives the order of this without its constant.

    Args:
        error: largest error ε allowed for a kernel value, above 0.
        confidence: probability 1 − δ that it holds for all pairs, in (0, 1).
        pairs: number N of pairs.

    >>> features_for_error(0.1, 0.95, 1)
    2952
    """
    if not error > 0.0:
        raise ValueError(f"error={error} must be above 0; 0.1 is a usual bound on a kernel value")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence} must be in (0, 1), such as 0.95")
    if pairs < 1:
        raise ValueError(f"pairs={pairs} must be at least 1")
    return math.ceil(8.0 / error**2 * math.log(2.0 * pairs / (1.0 - confidence)))


def frobenius_error(states: Tensor, kernel: Kernel, h: float, features: int, seed: int = 0) -> float:
    """‖K_RFF − K‖_F / ‖K‖_F over the pairs of `states` (n, k)."""
    exact = kernel.value(states, states, h)
    mapping = RandomFeatures(kernel, states.shape[1], features, seeds=(seed,), device=states.device)
    mapping.bandwidth.fill_(h)
    z = mapping.of_member(0, states)
    return float(torch.linalg.matrix_norm(z @ z.T - exact) / torch.linalg.matrix_norm(exact))


def search_feature_count(
    states: Tensor, kernel: Kernel, h: float, *, tolerance: float = 0.1, largest: int = 16_384, seed: int = 0
) -> tuple[int, float]:
    """The smallest power of two M whose relative Frobenius error is at most `tolerance`, and that error.

    Where even `largest` is not enough, it is returned with the error it has.
    """
    if not tolerance > 0.0:
        raise ValueError(f"tolerance={tolerance} must be above 0; 0.1 is a usual choice")
    features = 16
    while (error := frobenius_error(states, kernel, h, features, seed)) > tolerance and features < largest:
        features *= 2
    return features, error
