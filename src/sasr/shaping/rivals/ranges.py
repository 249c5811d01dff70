"""Checks of settings, whose errors name the setting and its value."""

from __future__ import annotations

import math


def check_weight(weight: float | None) -> None:
    """Raise unless a weight is finite, or left to the method; a weight of 0 is the plain agent."""
    if weight is not None and not math.isfinite(weight):
        raise ValueError(f"weight={weight} must be a finite number; 0 is the plain agent")


def check_positive(config: object, *names: str) -> None:
    """Raise unless the named settings are above 0."""
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            raise ValueError(f"{name}={value} must be above 0")


def check_not_negative(config: object, *names: str) -> None:
    """Raise unless the named settings are finite and not negative."""
    for name in names:
        value = getattr(config, name)
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{name}={value} must be a finite number that is not negative")


def check_at_least_one(config: object, *names: str) -> None:
    """Raise unless the named settings are at least 1."""
    for name in names:
        value = getattr(config, name)
        if not value >= 1:
            raise ValueError(f"{name}={value} must be at least 1")


def check_discount(config: object, *names: str) -> None:
    """Raise unless the named settings are in [0, 1)."""
    for name in names:
        value = getattr(config, name)
        if not 0.0 <= value < 1.0:
            raise ValueError(f"{name}={value} must be in [0, 1); 0.99 is the usual one")


def check_share(config: object, *names: str) -> None:
    """Raise unless the named settings are in (0, 1]."""
    for name in names:
        value = getattr(config, name)
        if not 0.0 < value <= 1.0:
            raise ValueError(f"{name}={value} must be in (0, 1]")
