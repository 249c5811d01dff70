"""Rollouts on the device: the newest steps of P seeds, learned from together and then dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sasr.experience.checked_module import CheckedModule
from sasr.experience.flatten import action_dtype, array_shape, state_dtype
from sasr.experience.memory import HEADROOM, free_bytes
from sasr.experience.types import Batch, Host, Transition

_STEP = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
_WRITTEN = (*_STEP, "success", "log_prob")


class Rollouts(CheckedModule):
    """Up to n steps of each of P × E environments, in order of time.

    The next observation of a step is kept beside its own: a shaper may look at either, and where an episode ends the
    next row is another episode's start. Where the policy sees stacks of frames, a step's observation is a stack: a
    rollout is short, so it takes little memory.

    >>> import gymnasium as gym
    >>> box = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> rollouts = Rollouts(Host(observation_space=box, action_space=box), rows=2)
    >>> zeros, no = torch.zeros(1, 1, 3), torch.zeros(1, 1, dtype=torch.bool)
    >>> rollouts.add(Transition(zeros, zeros, torch.ones(1, 1), zeros, no, no), log_prob=torch.zeros(1, 1))
    >>> len(rollouts), rollouts.full
    (1, False)
    """

    obs: Tensor  # (P, n, E, *obs_shape) as the policy sees it: a stack, where it sees stacks
    action: Tensor  # (P, n, E, *action_shape) as it was drawn, before it was clipped to the space
    log_prob: Tensor  # (P, n, E) float32, of that action, by the policy that drew it
    reward: Tensor  # (P, n, E) float32, the environment's own
    next_obs: Tensor  # (P, n, E, *obs_shape)
    terminated: Tensor  # (P, n, E) bool
    truncated: Tensor  # (P, n, E) bool
    success: Tensor  # (P, n, E) bool, the environment's info["is_success"]
    position: Tensor  # (1,) int64, the row to be written next, on the device, where a captured graph can see it move
    offset: Tensor  # (P, 1) int64, where a seed's steps begin among those of all

    def __init__(self, host: Host, *, rows: int) -> None:
        """Allocate everything.

        Args:
            host: Gives spaces, seeds, environments and the device.
            rows: Steps n of each environment.
        """
        super().__init__()
        if rows < 1:
            raise ValueError(f"rows={rows} must be at least 1 step of each environment")
        P, E = host.members, host.envs
        self.members, self.envs = P, E
        self.rows = rows
        self.layout = host.stack_layout
        dtype = state_dtype(host.observation_space)
        columns: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "obs": (array_shape(host.policy_space), dtype),
            "action": (array_shape(host.action_space), action_dtype(host.action_space)),
            "log_prob": ((), torch.float32),
            "reward": ((), torch.float32),
            "next_obs": (array_shape(host.observation_space), dtype),
            "terminated": ((), torch.bool),
            "truncated": ((), torch.bool),
            "success": ((), torch.bool),
        }
        step_bytes = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in columns.values())
        _check_memory(P * E * step_bytes, rows, host)
        for name, (shape, dtype) in columns.items():
            self.register_buffer(name, torch.zeros((P, rows, E, *shape), dtype=dtype, device=host.device))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64, device=host.device), persistent=False)
        offset = torch.arange(P, device=host.device)[:, None] * (rows * E)
        self.register_buffer("offset", offset, persistent=False)
        self.filled = 0  # rows that hold a step; an int, so that nothing waits for the device to know

    def __len__(self) -> int:
        """Steps stored for each member."""
        return self.filled * self.envs

    @property
    def full(self) -> bool:
        """Whether it is time to learn."""
        return self.filled == self.rows

    # ------------------------------------------------------------------ write

    @torch.no_grad()
    def add(self, step: Transition, *, log_prob: Tensor) -> None:
        """Store one step of every environment, from what the policy saw, and how likely (P, E) its actions were."""
        if self.full:
            raise RuntimeError(f"all {self.rows} rows are taken; learn from them and `clear` before the next step")
        self._check(step, log_prob)
        success = torch.zeros_like(step.terminated) if step.success is None else step.success
        self.write(*(getattr(step, name) for name in _STEP), success, log_prob)
        self.filled += 1

    def write(self, *columns: Tensor) -> None:
        """Put a step, an entry (P, E, …) for each of `_WRITTEN`, where `position` says, and move that on.

        Only tensor work, so that it can be captured.
        """
        for name, value in zip(_WRITTEN, columns, strict=True):
            stored: Tensor = getattr(self, name)
            stored.index_copy_(1, self.position, value.to(stored)[:, None])
        self.position += 1

    def clear(self) -> None:
        """Drop all steps."""
        self.filled = 0
        self.position.zero_()

    # ------------------------------------------------------------------- read

    def batch(self) -> Batch:
        """All steps as one batch (P, n·E, …), row by row, of single observations; nothing is copied."""
        return Batch(
            obs=self.newest(self.obs).flatten(1, 2),
            action=self.action.flatten(1, 2),
            reward=self.reward.flatten(1, 2),
            next_obs=self.next_obs.flatten(1, 2),
            terminated=self.terminated.flatten(1, 2),
            success=self.success.flatten(1, 2),
        )

    def take(self, name: str, index: Tensor) -> Tensor:
        """Entries (P, B, …) of one of the buffers at steps (P, B), counted as in `batch`."""
        flat: Tensor = getattr(self, name).flatten(0, 2)
        return flat[self.offset + index]

    def newest(self, obs: Tensor) -> Tensor:
        """Single observations: the newest frames, where the policy sees stacks."""
        return obs if self.layout is None else self.layout.newest(obs)

    def led_to(self) -> Tensor:
        """What the policy would see where the steps led, (P, n, E, …)."""
        return self.next_obs if self.layout is None else self.layout.push(self.obs, self.next_obs)

    def cut(self, following: Tensor) -> Tensor:
        """Where a step is not followed by the next row (P, n, E): its episode ended, or its environment was restarted.

        `following` (P, E, …) is what the policy sees after the last row.
        """
        # Observations are compared too: a run that was resumed may begin episodes anew, and no step says so.
        after = self.newest(torch.cat([self.obs[:, 1:], following.to(self.obs.dtype)[:, None]], dim=1))
        elsewhere = (self.next_obs != after).flatten(3).any(-1)
        return self.terminated | self.truncated | elsewhere

    # ---------------------------------------------------------------- borders

    def _check(self, step: Transition, log_prob: Tensor) -> None:
        leading = (self.members, self.envs)
        for name in _STEP:
            expected, shape = (*leading, *getattr(self, name).shape[3:]), tuple(getattr(step, name).shape)
            if shape != expected:
                raise ValueError(f"{name} has shape {shape}, expected (seeds, envs, *shape) = {expected}")
        if tuple(log_prob.shape) != leading:
            raise ValueError(f"log_prob has shape {tuple(log_prob.shape)}, expected (seeds, envs) = {leading}")
        if step.valid is not None and not bool(step.valid.all()):
            p, e = (~step.valid).nonzero()[0].tolist()
            raise ValueError(
                f"step of seed number {p}, environment {e} is not valid: a rollout has a step of every environment; "
                "reset environments in the step that ends an episode, as sasr.envs.population.Population does"
            )

    # ----------------------------------------------------------- checkpoints

    def get_extra_state(self) -> Tensor:
        """How many rows are filled; a tensor, so that a checkpoint needs no pickle."""
        return torch.tensor(self.filled)

    def set_extra_state(self, state: Any) -> None:
        """Continue where the saved rollout stood."""
        self.filled = int(state)
        self.position.fill_(self.filled)


def _check_memory(row_bytes: int, rows: int, host: Host) -> None:
    """Raise if the rollouts of all seeds do not fit, before any of them is allocated."""
    needed, free = row_bytes * rows, free_bytes(host.device)
    if needed <= HEADROOM * free:
        return
    fits = int(HEADROOM * free) // row_bytes
    fix = f"{fits} steps would fit, or" if fits else "not even one step fits:"
    raise ValueError(
        f"rollouts of {rows} steps of {host.envs} environments of {host.members} seeds need "
        f"{needed / 2**30:,.1f} GiB, but {host.device} has {free / 2**30:,.1f} GiB free; {fix} train fewer seeds"
    )
