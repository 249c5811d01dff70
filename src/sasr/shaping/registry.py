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


class ShaperKind(NamedTuple):
    """How a shaper is made, and from which settings."""

    make: Callable[..., RewardShaper]
    """Called with config=settings."""
    config: type[Any]


SHAPERS: dict[str, ShaperKind] = {
    "sasr": ShaperKind(SASR, SasrConfig),
    "rnd": ShaperKind(RND, RndConfig),
    "drnd": ShaperKind(DRND, DrndConfig),
    "explo": ShaperKind(Explo, ExploConfig),
    "explors": ShaperKind(ExploRS, ExplorsConfig),
    "gfa_rfe": ShaperKind(GfaRfe, GfaRfeConfig),
    "relara": ShaperKind(Relara, RelaraConfig),
    "rosa": ShaperKind(Rosa, RosaConfig),
}
NONE = "none"
"""The name of no shaper: the plain agent."""


CUSTOM = "custom"
"""The name of a shaper that the caller brings."""


def shaper_named(name: str) -> ShaperKind | None:
    """A shaper's kind; None for "none" and for a caller's own."""
    if name in (NONE, CUSTOM):
        return None
    if name not in SHAPERS:
        raise unknown_name("shaper", name, [*SHAPERS, NONE])
    return SHAPERS[name]
