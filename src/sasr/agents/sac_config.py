"""Settings of SAC: ours, chosen for rare rewards, and the SASR paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sasr.agents.base import check_settings
from sasr.errors import unknown_name
from sasr.networks.layers import NormName


@dataclass(frozen=True, kw_only=True)
class SacConfig:
    """Settings of SAC, chosen for rare rewards; `SacConfig.paper()` has those of the SASR paper. γ is the host's."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic."""
    actor_lr: float = 3e-4
    """Adam's step size for the actor."""
    critic_lr: float = 3e-4
    """Adam's step size for the critics."""
    temperature_lr: float = 1e-3
    """Adam's step size for log α; α starts at 1."""
    target_entropy: float | None = None
    """Entropy that the temperature is tuned towards; None is minus the number of action dimensions."""
    critic_norm: NormName = "layer"
    """Layer normalisation before each ReLU of the critics; with none, values may diverge on sparse rewards."""
    normalise_observations: bool = True
    """Standardise every feature of the observations by the statistics of the sampled batches."""
    n_step: int = 3
    """n of the n-step returns: rewards that a target adds up before it bootstraps."""
    tau: float = 0.005
    """Soft-update rate of the target critics, in (0, 1]."""
    policy_frequency: int = 2
    """Every this many updates, the actor and the temperature take this many steps on the same batch."""
    batch_size: int = 256
    """Transitions of each seed in an update."""
    burn_in: int = 5_000
    """Steps of each seed with uniformly random actions before the first update."""
    log_std_min: float = -5.0
    """Lower end of the actor's log standard deviation, before squashing."""
    log_std_max: float = 2.0
    """Upper end of the actor's log standard deviation, before squashing."""
    exploration: Literal["gaussian", "noisy"] = "gaussian"
    """Exploration by the actor's Gaussian alone (gaussian), or also by noise in its hidden layers (noisy, NoisyNet)."""
    noise_scale: float = 0.5
    """σ₀, the initial size of the noise under exploration=noisy; the SASR authors' code has 10."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.exploration not in ("gaussian", "noisy"):
            raise unknown_name("exploration", self.exploration, ("gaussian", "noisy"))
        if not self.log_std_min < self.log_std_max:
            raise ValueError(f"log_std_min={self.log_std_min} must be below log_std_max={self.log_std_max}")

    @classmethod
    def paper(cls, **changes: Any) -> SacConfig:
        """The hyperparameter table of the SASR paper, with some of its values replaced.

        >>> SacConfig.paper(hidden=(64, 64)).critic_lr
        0.001
        """
        table: dict[str, Any] = {
            "critic_lr": 1e-3,
            "temperature_lr": 1e-4,
            "critic_norm": "none",
            "normalise_observations": False,
            "n_step": 1,
        }
        return cls(**{**table, **changes})
