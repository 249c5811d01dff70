"""Would the shaped reward be signal or noise on these states? What would help?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.evidence.exact_counts import ExactCounts
from sasr.evidence.kernels import KERNELS
from sasr.experience.flatten import state_width
from sasr.experience.random_rollout import RandomRollout, random_rollout
from sasr.experience.retained import FAILURE, SUCCESS
from sasr.experience.types import Batch, Host
from sasr.shaping.assembly import counts_places
from sasr.shaping.outcomes import explained, outcomes
from sasr.shaping.presets import PRESETS, SasrConfig
from sasr.shaping.reward_watch import SuccessWatch, no_success
from sasr.shaping.sasr import SASR
from sasr.tasks.environment import TaskLike, close_environment, make

LONELY = 0.01
"""A state whose exact kernel sum over all evidence is below this has no neighbour."""
MIN_RANK_CORRELATION = 0.5
MAX_LONELY_SHARE = 0.5
MAX_NEIGHBOUR_SHARE = 0.95
"""Above this share of the evidence as neighbours, the kernel makes all states alike."""
MIN_SIGNAL_TO_NOISE = 0.05
EVERY_STATE: dict[str, Any] = {"retention": 1.0, "retention_rule": "random", "burn_in": 0, "storage": "own"}
"""Settings under which every given state is evidence: others only change how many states there are."""
PROBES = 4
"""Synthetic success patterns that the signal-to-noise ratio is averaged over."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What a shaper's settings make of some states."""

    stored: int
    """States taken as evidence."""
    features: int
    """Features k of a state."""
    bandwidth: float
    """Kernel width h in force, in the units the kernel sees."""
    lonely: float
    """Share of new states whose exact kernel sum is below 0.01: they have no neighbour."""
    neighbours: float
    """Median exact kernel sum of new states: how many stored states one of them is compared with."""
    rank_correlation: float
    """Spearman correlation of the estimated with the exact kernel sum over new states."""
    signal_to_noise: float
    """ρ/(1 − ρ), ρ the correlation of the bonus between two runs that differ in their random draws alone."""
    clamped: float
    """Share of estimates below 0, which are clamped."""
    reason: str
    """Why the shaped reward is noise; empty where it is signal."""
    explained: dict[str, float] = field(default_factory=dict)
    """R² of what the neighbours of new states predict, by what that is; NaN where it is always the same."""
    warning: str = ""
    """Why there may be nothing to count: no step is a success. Empty otherwise, and without rewards."""

    @property
    def is_signal(self) -> bool:
        """Whether the shaped reward distinguishes states."""
        return not self.reason

    @property
    def verdict(self) -> str:
        """`signal` or `noise`."""
        return "signal" if self.is_signal else "noise"


@torch.no_grad()
def diagnose(
    states: NDArray[Any] | Tensor | RandomRollout | TaskLike,
    shaper: SASR | None = None,
    *,
    seed: int = 0,
    steps: int = 6000,
    info: Sequence[str] = (),
) -> Diagnosis:
    """Evaluate a shaper's settings on states (n, k), in the order a policy visited them.

    In place of states, a task, on which a random policy takes `steps` steps: a name, an id, module:function, an
    environment, or a function that makes one. Only then rewards are known, and the numbers of `info` that are named:
    the diagnosis has `explained` and `warning`.

    The first five sixths are taken as evidence, every one of them retained; the last sixth are new states to evaluate,
    which mostly come from other episodes. Rewards are not needed: for the signal-to-noise ratio a state's
    outcome is synthetic: which side of a random direction in standardised state space it lies on. The shaper itself is
    not touched; only its settings are used.
    """
    config = (shaper or SASR()).config
    rollout = None
    if isinstance(states, RandomRollout):
        rollout = states
    elif not isinstance(states, np.ndarray | Tensor | list):
        rollout = visited(states, steps, seed=seed, info=info)
    if rollout is not None and counts_places(config, spaces_of(rollout)):
        raise ValueError("on these images places are counted, which have to be learned first: use sasr.diagnose_images")
    data = torch.as_tensor(np.asarray(states if rollout is None else rollout.states)).flatten(1).float()
    if len(data) < 60:
        raise ValueError(f"{len(data)} states are too few to evaluate a kernel; give at least 60, better 6,000")
    finite = torch.isfinite(data)
    if not finite.all():
        row, column = (~finite).nonzero()[0].tolist()
        raise ValueError(f"state {row} is {data[row, column].item()} in dimension {column}; leave such states out")
    stored, new = data[: -(len(data) // 6)], data[-(len(data) // 6) :][:1000]
    probes = [_Probe(config, stored, new, seed + index) for index in range(PROBES)]
    evidence = probes[0].shaper.evidence
    estimated, exact = probes[0].estimate(), probes[0].exact()
    reliability = float(np.mean([probe.reliability() for probe in probes]))
    figures: dict[str, Any] = {
        "lonely": float((exact < LONELY).float().mean()),
        "rank_correlation": rank_correlation(estimated.numpy(), exact.numpy()),
        "signal_to_noise": max(0.0, reliability) / max(1e-9, 1.0 - reliability),
    }
    neighbours = float(exact.median())
    return Diagnosis(
        stored=len(stored),
        features=data.shape[1],
        bandwidth=float(evidence.h[0]),
        neighbours=neighbours,
        clamped=float((evidence.raw(new.expand(2, -1, -1)) < 0.0).float().mean()),
        reason=_reason(**figures, neighbour_share=neighbours / len(stored)),
        explained={} if rollout is None else probes[0].explained(rollout),
        warning="" if rollout is None else _warning(rollout, config.reward_above),
        **figures,
    )


def visited(
    task: TaskLike,
    steps: int,
    *,
    seed: int = 0,
    info: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> RandomRollout:
    """What a random policy sees on a task; see `random_rollout`."""
    env = make(task)
    try:
        state_width(env.observation_space)
        return random_rollout(env, steps, seed=seed, info=info, progress=progress)
    finally:
        close_environment(env)


def spaces_of(rollout: RandomRollout, seed: int = 0) -> Host:
    """A host of one seed with the spaces of what was seen."""
    return Host(observation_space=rollout.observation_space, action_space=rollout.action_space, seeds=(seed,))


def suggest(
    states: NDArray[Any] | Tensor, shaper: SASR, *, progress: Callable[[str], None] | None = None
) -> tuple[SASR, Diagnosis] | None:
    """The smallest change of settings that makes the shaped reward signal on `states`; None without one."""
    width = torch.as_tensor(np.asarray(states)).flatten(1).shape[1]
    rule = PRESETS["auto"].bandwidth
    wide = round(1.4 * KERNELS[shaper.config.kernel].dimension_bandwidth(width), 3)
    more = 4 * shaper.config.features
    for change in (
        {"standardise": True},
        {"standardise": True, "bandwidth": rule},
        {"standardise": True, "bandwidth": wide},
        {"standardise": True, "bandwidth": rule, "features": more},
        {"standardise": True, "bandwidth": wide, "features": more},
    ):
        candidate = SASR(config=dataclasses.replace(shaper.config, **change))
        if progress:
            progress(", ".join(f"{name}={value}" for name, value in change.items()))
        if (diagnosis := diagnose(states, candidate)).is_signal:
            return candidate, diagnosis
    return None


def rank_correlation(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Spearman's correlation with average ranks for ties; 0 where one side is constant.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0]))
    1.0
    """

    def ranks(values: NDArray[Any]) -> NDArray[Any]:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return np.asarray((np.cumsum(counts) - (counts - 1) / 2.0)[inverse])

    rx, ry = ranks(x), ranks(y)
    if rx.std() == 0.0 or ry.std() == 0.0:
        return 0.0
    return round(float(np.corrcoef(rx, ry)[0, 1]), 12)


class _Probe:
    """Two runs of the same settings on the same evidence, which differ in their random draws alone."""

    def __init__(self, config: SasrConfig, stored: Tensor, new: Tensor, seed: int) -> None:
        settings = dataclasses.replace(config, state_action=False, **EVERY_STATE)
        k = stored.shape[1]
        space = gym.spaces.Box(-np.inf, np.inf, (k,), np.float32)
        self.shaper = SASR(config=settings)
        self.shaper.bind(Host(observation_space=space, action_space=space, seeds=(2 * seed, 2 * seed + 1)))
        std = stored.std(0)
        direction = torch.randn(k, generator=torch.Generator().manual_seed(seed)) / torch.where(std > 1e-8, std, 1.0)
        side = stored @ direction
        self.outcome = {SUCCESS: stored[side > side.median()], FAILURE: stored[side <= side.median()]}
        for seed in (0, 1):
            for outcome, states in self.outcome.items():
                if len(states):
                    self.shaper.add_trajectory(states, success=outcome == SUCCESS, member=seed)
            self.shaper.evidence.rebuild(seed)
        self.stored, self.new = stored, new

    def estimate(self) -> Tensor:
        """Estimated kernel sums of the new states over all evidence, (n,)."""
        return self.shaper.evidence.counts(self.new.expand(2, -1, -1))[0].sum(-1)

    def exact(self) -> Tensor:
        """Exact kernel sums of the new states over all evidence, (n,), with equal mapping and bandwidth."""
        evidence = self.shaper.evidence
        counts = ExactCounts(evidence.kernel, self.new.shape[1])
        counts.bandwidth.copy_(evidence.h[:1])
        for outcome, states in self.outcome.items():
            counts.add(0, outcome, evidence.normaliser.of_member(0, states))
        return counts.raw(evidence.normaliser.of_member(0, self.new)[None])[0].sum(-1)

    def explained(self, rollout: RandomRollout) -> dict[str, float]:
        """R² of what the new states' neighbours predict, by what that is."""
        evidence = self.shaper.evidence
        stored, new = (evidence.normaliser.of_member(0, part) for part in (self.stored, self.new))
        h, count = float(evidence.h[0]), len(stored) + len(new)
        per_name = outcomes(rollout, self.shaper.config.segment_steps)

        def alike(x: Tensor, y: Tensor) -> Tensor:
            return evidence.kernel.value(x, y, h)

        return {name: explained(alike, stored, new, values[:count]) for name, values in per_name.items()}

    def reliability(self) -> float:
        """Correlation of the two runs' success rates over the new states."""
        batch = Batch.of_states(self.new.expand(2, -1, -1))
        first, second = self.shaper.success_rate(batch).numpy()
        if first.std() == 0.0 or second.std() == 0.0:
            return 0.0
        return float(np.corrcoef(first, second)[0, 1])


def _warning(rollout: RandomRollout, reward_above: float) -> str:
    """What stands in the way of a success, as far as a random policy can tell; empty where nothing does."""
    watch = SuccessWatch(reward_above)
    text = watch.observe(rollout.rewards, rollout.terminated, rollout.success)
    succeeded = watch.finished and not text
    if succeeded or rollout.tells_success:
        return ""
    # Where all rewards are 0 the goal may just not have been found; rewards below the threshold say more.
    return text or (no_success(watch) if watch.lowest < reward_above else "")


def _reason(*, lonely: float, rank_correlation: float, signal_to_noise: float, neighbour_share: float) -> str:
    if lonely > MAX_LONELY_SHARE:
        return f"{lonely:.0%} of new states have no neighbour: the kernel is too narrow to see them"
    if neighbour_share > MAX_NEIGHBOUR_SHARE:
        return f"{neighbour_share:.0%} of all states are neighbours of a new one: the kernel is too wide"
    if rank_correlation < MIN_RANK_CORRELATION:
        return f"the estimate does not follow the kernel (rank correlation {rank_correlation:.2f}): too few features"
    if signal_to_noise < MIN_SIGNAL_TO_NOISE:
        return f"draws drown the differences between states (signal to noise {signal_to_noise:.3f})"
    return ""
