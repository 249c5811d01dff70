"""A shaper's settings from keyword options; the error for another method's option names that method."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sasr.errors import unknown_name

C = TypeVar("C")


def settings_from(config_class: type[C], config: C | None, options: Mapping[str, Any]) -> C:
    """`config`, or the defaults of its class, with some settings replaced."""
    if config is not None and not isinstance(config, config_class):
        raise TypeError(f"config is a {type(config).__name__}, but a {config_class.__name__} belongs here")
    for option in options:
        if option not in setting_names(config_class):
            raise foreign_option(config_class, option)
    # mypy does not know that C is a dataclass.
    settings: C = dataclasses.replace(config or config_class(), **options)  # type: ignore[type-var]
    return settings


def foreign_option(config_class: type[Any], option: str) -> ValueError:
    """The error for a setting that a class does not have: whose it is, or the closest one that it has."""
    from sasr.shaping.registry import SHAPERS  # here, because the registry imports the shapers, which import this

    method = next((name for name, entry in SHAPERS.items() if entry.config is config_class), config_class.__name__)
    owners = [name for name, entry in SHAPERS.items() if option in setting_names(entry.config)]
    if owners:
        return ValueError(
            f"option {option!r} is not one of {method!r}: it belongs to {' and '.join(map(repr, owners))}; drop it, or "
            f"take shaper={owners[0]!r}"
        )
    return unknown_name(f"option of {method!r}", option, setting_names(config_class))


def check_choices(config: object) -> None:
    """Raise for a setting that is none of the values its type lists."""
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            raise unknown_name(name, getattr(config, name), get_args(hint))


def setting_names(config_class: type[Any]) -> list[str]:
    """The names of a dataclass's fields."""
    return [field.name for field in dataclasses.fields(config_class)]
