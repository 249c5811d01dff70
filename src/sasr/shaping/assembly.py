"""SASR's evidence, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sasr.evidence.counts import Counts, LinearCounts
from sasr.evidence.evidence import Evidence
from sasr.evidence.exact_counts import ExactCounts
from sasr.evidence.features import RandomFeatures, StateNormaliser
from sasr.evidence.flagged import FlaggedEvidence, ReplayFlags
from sasr.evidence.kernels import kernel_named
from sasr.evidence.on_device import EvidenceInBlocks, LinearCountsOnDevice
from sasr.evidence.squared_counts import SquaredCounts
from sasr.experience.retained import StatePool
from sasr.experience.types import Host
from sasr.shaping.presets import SasrConfig


def make_evidence(
    config: SasrConfig,
    host: Host,
    *,
    width: int,
    dtype: torch.dtype,
    states_of: Callable[[Tensor, Tensor], Tensor],
    count_block: Callable[[Tensor, Tensor], None],
) -> Evidence:
    """Evidence as the settings have it.

    Args:
        config: Settings of SASR.
        host: Gives seeds, device and the replay buffer.
        width: Entries k of a state.
        dtype: The type that retained states are kept in.
        states_of: Makes states (1, n, k) of observations and actions (1, n, …).
        count_block: Stands in for `EvidenceInBlocks.count_block` on an accelerator.
    """
    counts = make_counts(config, host, width)
    normaliser = StateNormaliser(host.members, width, enabled=config.standardise, clip=config.clip, device=host.device)
    mapping = (normaliser, counts, kernel_named(config.kernel), config.bandwidth)
    options: dict[str, Any] = {
        "scaling": config.scaling,
        "burn_in": config.burn_in,
        "background": config.background,
    }
    if config.storage == "flags":
        return FlaggedEvidence(ReplayFlags(host, states_of), *mapping, **options)
    pool = StatePool(width, dtype, torch.device("cpu"))  # read only when sums are rebuilt
    if isinstance(counts, LinearCountsOnDevice):
        return EvidenceInBlocks(pool, *mapping, count_block=count_block, **options)
    return Evidence(pool, *mapping, **options)


def make_counts(config: SasrConfig, host: Host, width: int) -> Counts:
    """The estimator that the settings name."""
    kernel = kernel_named(config.kernel)
    if config.estimator == "exact":
        return ExactCounts(kernel, width, host.members, host.device)
    features = RandomFeatures(
        kernel,
        width,
        config.features,
        seeds=host.seeds,
        frequencies=config.frequencies,
        form=config.form,
        device=host.device,
    )
    if config.estimator == "squared":
        return SquaredCounts(features, subtract_floor=config.subtract_floor)
    if host.device.type == "cpu":
        return LinearCounts(features)
    return LinearCountsOnDevice(features)
