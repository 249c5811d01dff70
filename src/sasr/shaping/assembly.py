"""SASR's evidence, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from sasr.evidence.counts import Counts, LinearCounts
from sasr.evidence.evidence import Evidence
from sasr.evidence.exact_counts import ExactCounts
from sasr.evidence.features import RandomFeatures, StateNormaliser
from sasr.evidence.flagged import FlaggedEvidence, ReplayFlags
from sasr.evidence.kernels import KERNELS
from sasr.evidence.on_device import EvidenceInBlocks, LinearCountsOnDevice
from sasr.evidence.places import PlaceCounts, PlaceFeatures
from sasr.evidence.squared_counts import SquaredCounts
from sasr.experience.frames import picture_axes
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
) -> Evidence:
    """Evidence as the settings have it.

    Args:
        config: Settings of SASR.
        host: Gives seeds, device and the replay buffer.
        width: Entries k of a state.
        dtype: The type that retained states are kept in.
        states_of: Makes states (1, n, k) of observations and actions (1, n, …).
    """
    counts = make_counts(config, host, width)
    normaliser = StateNormaliser(host.members, width, enabled=config.standardise, clip=config.clip, device=host.device)
    bandwidth = 1.0 if isinstance(counts, PlaceCounts) else config.bandwidth
    mapping = (normaliser, counts, KERNELS[config.kernel], bandwidth)
    options: dict[str, Any] = {
        "scaling": config.scaling,
        "burn_in": config.burn_in,
        "background": config.background,
    }
    if config.storage == "flags":
        return FlaggedEvidence(ReplayFlags(host, states_of), *mapping, **options)
    pool = StatePool(width, dtype, torch.device("cpu"))  # read only when sums are rebuilt
    if isinstance(counts, LinearCountsOnDevice):
        return EvidenceInBlocks(pool, *mapping, **options)
    return Evidence(pool, *mapping, **options)


def make_counts(config: SasrConfig, host: Host, width: int) -> Counts:
    """The estimator that the settings name; for images there is one that the settings may ask for."""
    kernel = KERNELS[config.kernel]
    if counts_places(config, host):
        _check_places(config)
        seen = PlaceFeatures(host.observation_space, host.action_space, seeds=host.seeds, device=host.device)
        return PlaceCounts(seen)
    if config.estimator == "exact":
        return ExactCounts(kernel, width, host.members, host.device)
    features = RandomFeatures(kernel, width, config.features, seeds=host.seeds, device=host.device)
    if config.estimator == "squared":
        return SquaredCounts(features)
    if host.device.type == "cpu":
        return LinearCounts(features)
    return LinearCountsOnDevice(features)


def counts_places(config: SasrConfig, host: Host) -> bool:
    """Whether what is counted is the place in an image where the agent's actions show."""
    learnable = isinstance(host.action_space, gym.spaces.Discrete | gym.spaces.Box)
    return config.images == "places" and picture_axes(host.observation_space) is not None and learnable


def _check_places(config: SasrConfig) -> None:
    """Raise a ValueError for settings that only counts of pixels, or of vectors, have."""
    for name, value in (("estimator", "linear"), ("standardise", True), ("state_action", False)):
        if getattr(config, name) != value:
            raise ValueError(
                f"{name}={getattr(config, name)!r} is not for images='places', which needs {value!r}; drop it, or set "
                "images='pixels'"
            )
