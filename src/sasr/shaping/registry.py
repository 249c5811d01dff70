"""The reward shapers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sasr.errors import unknown_name
from sasr.shaping.base import RewardShaper
from sasr.shaping.presets import SasrConfig
from sasr.shaping.rivals.drnd import DRND, DrndConfig
from sasr.shaping.rivals.explo import Explo, ExploConfig
from sasr.shaping.rivals.explors import ExploRS, ExplorsConfig
from sasr.shaping.rivals.gfa_rfe import GfaRfe, GfaRfeConfig
from sasr.shaping.rivals.relara import Relara, RelaraConfig
from sasr.shaping.rivals.rnd import RND, RndConfig
from sasr.shaping.sasr import SASR


class ShaperEntry(NamedTuple):
    """How a shaper is made, and from which settings."""

    make: Callable[..., RewardShaper]
    """Called with config=settings."""
    config: type[Any]


SHAPERS: dict[str, ShaperEntry] = {
    "sasr": ShaperEntry(SASR, SasrConfig),
    "rnd": ShaperEntry(RND, RndConfig),
    "drnd": ShaperEntry(DRND, DrndConfig),
    "explo": ShaperEntry(Explo, ExploConfig),
    "explors": ShaperEntry(ExploRS, ExplorsConfig),
    "gfa_rfe": ShaperEntry(GfaRfe, GfaRfeConfig),
    "relara": ShaperEntry(Relara, RelaraConfig),
}
NONE = "none"
"""The name of no shaper: the plain agent."""


CUSTOM = "custom"
"""The name of a shaper that the caller brings."""

REMOVED = {"rosa": "it was not the published ROSA, and found TwoRooms' goal no more often than plain SAC"}
"""Shapers that an older version had, and why they are gone."""


def shaper_named(name: str) -> ShaperEntry | None:
    """A shaper's entry; None for "none" and for a shaper that the caller brings."""
    if name in (NONE, CUSTOM):
        return None
    if name not in SHAPERS:
        raise unknown_shaper(name, [*SHAPERS, NONE])
    return SHAPERS[name]


def unknown_shaper(name: str, known: Iterable[str], *, what: str = "shaper") -> ValueError:
    """An error for a name that is not among those known: the closest one, or why the shaper was removed.

    >>> unknown_shaper("rdn", ["sasr", "rnd"])
    ValueError("shaper 'rdn' is unknown; did you mean 'rnd'? One of: sasr, rnd")
    """
    if name in REMOVED:
        return ValueError(
            f"shaper {name!r} was removed in sasr 0.1.0: {REMOVED[name]}; take another one: {', '.join(known)}"
        )
    return unknown_name(what, name, known)
