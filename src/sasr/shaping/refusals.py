"""What SASR refuses to count, in words that name the member, the row and the dimension."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sasr.experience.transition import Host, Transition


def check_shape(step: Transition, host: Host) -> None:
    """Raise a ValueError unless a step is one of every environment of every member."""
    expected, found = (host.members, host.envs), tuple(step.obs.shape[:2])
    if found != expected:
        raise ValueError(f"obs has leading axes {found}, expected (members, envs) = {expected}")


def check_slots(step: Transition, host: Host, *, longest: int) -> None:
    """Raise a ValueError unless a step, and open episodes up to `longest`, can be marked in the replay buffer."""
    if step.slot is None:
        raise ValueError("storage='flags' needs the replay slot of every step; set Transition.slot")
    room = host.replay.capacity // host.envs if host.replay else longest + 1
    if longest >= room:
        raise ValueError(
            f"an episode of more than {room} steps does not fit the replay buffer, whose flags are evidence; "
            "make the buffer larger, or use storage='own'"
        )


def check_states(name: str, states: Tensor, *, width: int, valid: Tensor | None = None) -> None:
    """Raise a ValueError unless states (P, n, k) have this width and are finite wherever they are valid."""
    if states.shape[-1] != width:
        raise ValueError(f"{name} has {states.shape[-1]} features, but this shaper was bound to {width}")
    if states.dtype.is_floating_point and not np.isfinite(states.numpy()).all():
        bad = ~torch.isfinite(states)
        if valid is not None:
            bad = bad & valid[..., None]
        if bad.any():
            p, i, d = bad.nonzero()[0].tolist()
            what = f"{name} of member {p} (row {i}) is {states[p, i, d].item()} in dimension {d}"
            raise ValueError(f"{what}; the step is refused and nothing was counted: mend the environment")


def check_rewards(reward: Tensor) -> None:
    """Raise a ValueError unless all rewards (P, E) are finite."""
    if not np.isfinite(reward.numpy()).all():
        p, e = (~torch.isfinite(reward)).nonzero()[0].tolist()
        raise ValueError(f"reward of member {p}, environment {e} is {reward[p, e]}; the step is refused")


def check_device(name: str, device: torch.device, home: torch.device) -> None:
    """Raise a ValueError unless a tensor on `device` can be read at home."""
    numbered = home.type != "cpu" and home.index is not None  # torch calls tensors on cpu:0 those of "cpu"
    if device.type != home.type or (numbered and device.index != home.index):
        raise ValueError(f"{name} is on {device}, but this shaper was bound to {home}; move it with .to({str(home)!r})")
