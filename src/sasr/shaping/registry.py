"""The reward shapers by name."""

from __future__ import annotations

from collections.abc import Callable
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
from sasr.shaping.rivals.rosa import Rosa, RosaConfig
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
    "rosa": ShaperEntry(Rosa, RosaConfig),
}
NONE = "none"
"""The name of no shaper: the plain agent."""


CUSTOM = "custom"
"""The name of a shaper that the caller brings."""


def shaper_named(name: str) -> ShaperEntry | None:
    """A shaper's entry; None for "none" and for a shaper that the caller brings."""
    if name in (NONE, CUSTOM):
        return None
    if name not in SHAPERS:
        raise unknown_name("shaper", name, [*SHAPERS, NONE])
    return SHAPERS[name]
