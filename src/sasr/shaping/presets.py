"""Settings of SASR and the three presets: the paper's text, the authors' released code, and our default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sasr.errors import unknown_name
from sasr.evidence.bandwidth import Bandwidth, check_bandwidth
from sasr.evidence.counts import EstimatorName
from sasr.evidence.evidence import Scaling
from sasr.evidence.kernels import KernelName
from sasr.experience.retention import RetentionName
from sasr.experience.segments import RuleName
from sasr.shaping.reward_watch import PaidEnd
from sasr.shaping.settings import check_choices, settings_from

REMOVED_OPTIONS = (
    "draw",
    "form",
    "frequencies",
    "potential",
    "range_rule",
    "reward_scale",
    "subtract_floor",
    "weight_discount",
    "weighting",
)
REMOVED_VALUES = (
    ("background", "fitted"),
    ("bandwidth", "scott"),
    ("bandwidth", "silverman"),
    ("retention_rule", "adaptive"),
    ("retention_rule", "strided"),
    ("sample", "false"),  # its name before "mean"
    ("sample", "mean"),
)
"""What was tried and removed in version 0.1.0: nothing showed that any of it helps."""


def refuse_removed(settings: Mapping[str, Any], config_class: type[Any] | None = None) -> None:
    """Raise a ValueError for a setting of SASR, or a value of one, that an older version had.

    Settings of another `config_class` are not looked at.

    >>> refuse_removed({"potential": True})
    Traceback (most recent call last):
    ValueError: potential=True was removed in sasr 0.1.0: nothing shows it helps (results/diary/removed.md); drop it
    """
    if config_class not in (None, SasrConfig):
        return
    for name, value in settings.items():
        if name in REMOVED_OPTIONS or (name, str(value).lower()) in REMOVED_VALUES:
            raise ValueError(
                f"{name}={value} was removed in sasr 0.1.0: nothing shows it helps (results/diary/removed.md); drop it"
            )
        if name == "sample" and str(value).lower() == "true":
            raise ValueError(f"sample={value} is called sample='beta' since sasr 0.1.0; write that")


@dataclass(frozen=True, kw_only=True)
class SasrConfig:
    """Settings of SASR; the defaults are the paper's text."""

    reward_weight: float = 0.6
    """Weight λ of the shaped reward."""
    weight_rule: Literal["fixed", "failures"] = "fixed"
    """Keep λ constant (fixed), or multiply it by the share of failures among the retained states (failures)."""
    reward_min: float = 0.0
    """R_min, the shaped reward of a state that always failed."""
    reward_max: float = 1.0
    """R_max, the shaped reward of a state that always succeeded."""
    absorbing: bool = False
    """At termination, add γ/(1 − γ) times R_max if the last step was rewarded, times R_min if not."""
    paid_end: PaidEnd = "goal"
    """After such a success: R_max (goal); the more rewards follow one another, R_min (lost) or the state's f (stay)."""
    sample: Literal["beta", "ratio"] = "beta"
    """A draw from the success rate's Beta distribution, or the ratio of the counts N_S/(N_S + N_F)."""
    state_action: bool = False
    """Count pairs of state and action, R(s, a), instead of states, R(s)."""

    estimator: EstimatorName = "linear"
    """How counts are estimated: linear (Algorithm 1), squared (released code), exact (without random features)."""
    scaling: Scaling = "sum"
    """Plain kernel sums (Algorithm 1), or density: N/|D_X| times the sum (the equation for Ñ_X)."""
    burn_in: int = 0
    """Counts of an outcome are 0 until more than this many of its states are retained."""
    background: float = 0.0
    """Prior pseudo-count at the average success rate, from the first success on; 0 for none."""

    images: Literal["pixels", "places"] = "pixels"
    """Compare images by their pixels under the kernel, or by the place where the agent's actions have an effect."""
    kernel: KernelName = "gaussian"
    """Shape of the kernel."""
    bandwidth: Bandwidth = 0.2
    """Kernel width h: a number, a LinearSchedule, or a rule's name such as dimension, neighbours or median."""
    features: int = 1000
    """Number M of random Fourier features."""
    standardise: bool = False
    """Standardise states by their running mean and variance before the kernel."""
    clip: float = 5.0
    """Standardised states are clipped to ± this many standard deviations."""

    success_rule: RuleName = "paper"
    """What counts as a success: a rewarded episode, a segment up to a reward, or the paper's or authors' rule."""
    segment_steps: int = 200
    """Longest segment, in steps, under success_rule=segments or paper; running past it is a failure."""
    reward_above: float = 0.0
    """A step counts as rewarded when its reward is above this."""
    retention: float = 0.1
    """Share φ of each finished segment that is kept, in (0, 1]."""
    retention_rule: RetentionName = "random"
    """Which states are kept: random ones, or every n-th as in the released code (authors)."""
    storage: Literal["own", "flags"] = "own"
    """Keep copies of retained states, or only mark them in the host's replay buffer."""
    truncation_is_terminal: bool = False
    """Stop bootstrapping at a time limit, as the released code does."""

    def __post_init__(self) -> None:
        refuse_removed(vars(self))
        check_choices(self)
        if not math.isfinite(self.reward_weight):
            raise ValueError(f"reward_weight={self.reward_weight} must be a finite number; the paper uses 0.6")
        if not self.reward_min <= self.reward_max:
            raise ValueError(
                f"reward_min={self.reward_min} is above reward_max={self.reward_max}; swap them, or flip reward_weight"
            )
        if not 0.0 < self.retention <= 1.0:
            raise ValueError(f"retention={self.retention} must be in (0, 1]; the paper uses 0.1")
        if self.features < 1:
            raise ValueError(f"features={self.features} must be at least 1; the paper uses 1000")
        if not self.clip > 0.0:
            raise ValueError(f"clip={self.clip} must be above 0 standard deviations; 5 is the default")
        if self.burn_in < 0:
            raise ValueError(f"burn_in={self.burn_in} must be 0 or more states; the released code uses 1000")
        if not 0.0 <= self.background < math.inf:
            raise ValueError(f"background={self.background} must be 0 or more states; 0 is the paper's")
        if self.segment_steps < 1:
            raise ValueError(f"segment_steps={self.segment_steps} must be at least 1 step")
        check_bandwidth(self.bandwidth)
        if self.storage == "flags" and self.estimator == "exact":
            raise ValueError("storage='flags' needs estimator='linear' or 'squared': exact counts can't forget states")


PRESETS: dict[str, SasrConfig] = {
    "paper": SasrConfig(),
    # The released code halves λ in its constructor: 0.6 there is 0.3 here.
    "authors": SasrConfig(
        reward_weight=0.3,
        estimator="squared",
        burn_in=1000,
        success_rule="authors",
        retention_rule="authors",
        truncation_is_terminal=True,
    ),
    # Raw states are too far apart for the kernel. A new state must be worth less than the goal, hence the small weight
    # (docs/results/weight.md). A positive bonus would reward lingering beside the goal, so it goes on after the end.
    # Failures set the weight, an end that cuts lasting rewards off is no goal, and after a first success new states
    # have the average success rate (docs/results/default.md).
    "auto": SasrConfig(
        reward_weight=0.3,
        weight_rule="failures",
        absorbing=True,
        paid_end="stay",
        background=10.0,
        images="places",
        standardise=True,
        bandwidth="neighbours",
    ),
}


def preset_config(name: str = "auto", **overrides: Any) -> SasrConfig:
    """The settings called `name`, with some of them replaced.

    >>> preset_config("authors", reward_weight=0.1).burn_in
    1000
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    refuse_removed(overrides)
    return settings_from(SasrConfig, PRESETS[name], overrides)
