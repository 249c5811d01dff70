"""A shaper's settings from what its caller wrote; a setting of another method is sent there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from sasr.errors import unknown_name

C = TypeVar("C")


def settings_of(kind: type[C], config: C | None, options: Mapping[str, Any]) -> C:
    """`config`, or the defaults of `kind`, with some settings replaced."""
    if config is not None and not isinstance(config, kind):
        raise TypeError(f"config is a {type(config).__name__}, but a {kind.__name__} belongs here")
    for option in options:
        if option not in _names(kind):
            raise foreign_option(kind, option)
    # mypy does not know that C is a dataclass.
    settings: C = dataclasses.replace(config or kind(), **options)  # type: ignore[type-var]
    return settings


def foreign_option(kind: type[Any], option: str) -> ValueError:
    """The error for a setting that `kind` does not have: whose it is, or the closest one that it has."""
    from sasr.shaping.registry import SHAPERS  # here, because the registry imports the shapers, which import this

    method = next((name for name, each in SHAPERS.items() if each.config is kind), kind.__name__)
    owners = [name for name, each in SHAPERS.items() if option in _names(each.config)]
    if owners:
        return ValueError(
            f"option {option!r} is not one of {method!r}: it belongs to {' and '.join(map(repr, owners))}; drop it, or "
            f"take shaper={owners[0]!r}"
        )
    return unknown_name(f"option of {method!r}", option, _names(kind))


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
