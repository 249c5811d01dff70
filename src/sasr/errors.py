"""Errors that name the value and the fix."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable


class ActionSpaceError(TypeError):
    """An agent cannot act in an environment's action space."""


def unknown_name(what: str, name: object, options: Iterable[str]) -> ValueError:
    """An error for a name that is not among `options`, with the closest one.

    >>> unknown_name("preset", "papper", ["auto", "authors", "paper"])
    ValueError("preset 'papper' is unknown; did you mean 'paper'? One of: auto, authors, paper")
    """
    known = list(options)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    one_of = f"did you mean {close[0]!r}? One of" if close else "take one of"
    return ValueError(f"{what} {name!r} is unknown; {one_of}: {', '.join(known)}")


def need(*modules: str, extra: str, to: str) -> None:
    """Raise unless the modules of an extra of sasr are installed; `to` says what they are needed for."""
    if not installed(*modules):
        raise ImportError(f'to {to}, {" and ".join(modules)} must be installed: pip install "sasr[{extra}]"')


def installed(*modules: str) -> bool:
    """Whether all these modules can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in modules)
