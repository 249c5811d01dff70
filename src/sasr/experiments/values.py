"""Values of settings as plans and flags write them, brought to the types of their dataclasses."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from sasr.evidence.bandwidth import LinearSchedule

WHOLE_RUN = 2**62
"""Length of a schedule that was given as [START, END]: as long as the run."""


def typed(value: Any, hint: Any) -> Any:
    """A value from a plan as a field of this type has it; a ValueError says what would be one.

    >>> typed([64, 64], tuple[int, ...]), typed(1, float), typed("none", float | None)
    ((64, 64), 1.0, None)
    """
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        try:
            return _as(value, option)
        except (TypeError, ValueError):
            continue
    raise ValueError(f"not {' or '.join(dict.fromkeys(map(_in_words, options)))}")


def literal(text: str) -> Any:
    """What a text on the command line means.

    >>> literal("8,8"), literal("1e-3"), literal("true"), literal("median")
    ([8, 8], 0.001, True, 'median')
    """
    text = text.strip()
    if "," in text:
        return [literal(own) for own in text.strip("[]() ").split(",") if own.strip()]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def plain(value: Any) -> Any:
    """A value that JSON can say."""
    if isinstance(value, LinearSchedule):
        return [value.start, value.end] + ([] if value.steps == WHOLE_RUN else [value.steps])
    if isinstance(value, dict):
        return {name: plain(own) for name, own in value.items()}
    return [plain(own) for own in value] if isinstance(value, list | tuple) else value


def _as(value: Any, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return _if(value in get_args(kind), value)
    if kind is type(None):
        return _if(value in (None, "none"), None)  # TOML has no null
    if kind is LinearSchedule:
        if isinstance(value, LinearSchedule):
            return value
        first, last, *length = value
        return LinearSchedule(float(first), float(last), *map(int, length or [WHOLE_RUN]))
    if get_origin(kind) is tuple:
        return tuple(_as(own, get_args(kind)[0]) for own in _if(isinstance(value, list | tuple), value))
    if kind is float:
        return float(_if(isinstance(value, int | float) and not isinstance(value, bool), value))
    if kind is int:
        return _if(isinstance(value, int) and not isinstance(value, bool), value)
    return _if(isinstance(value, kind), value)


def _if(fits: bool, value: Any) -> Any:
    if not fits:
        raise ValueError
    return value


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return "a list such as [64, 64]"
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        type(None): '"none"',
        LinearSchedule: "a schedule [START, END] or [START, END, STEPS]",
    }
    return words.get(kind, str(kind))
