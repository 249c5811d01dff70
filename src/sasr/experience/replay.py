"""Replay on the device: the last steps of P seeds, sampled by each seed from its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.experience.checked_module import GrowingModule
from sasr.experience.flatten import action_dtype, array_shape, state_dtype
from sasr.experience.frames import StackLayout
from sasr.experience.memory import HEADROOM, free_bytes
from sasr.experience.types import Batch, Host, Transition
from sasr.randomness import MemberStreams

_RINGS = ("obs", "action", "reward", "terminated", "truncated", "success", "aside")


class Window(NamedTuple):
    """B sampled steps of each of P seeds, each with the n − 1 steps after it.

    Where an episode or the stored steps end early, the last step is repeated and does not count.
    """

    steps: Batch
    """(P, n·B, …): the B sampled steps, then the B steps after them, and so on."""
    counts: Tensor
    """(P, n, B) bool: False for repeated steps."""
    stacks: tuple[Tensor, Tensor, Tensor | None] | None = None
    """What the policy sees, each (P, B, *stack shape): at the sampled steps, and `next_obs` and `following` of their
    windows' last steps; None where it sees single observations."""

    def total(self, values: Tensor, discount: float) -> Tensor:
        """Discounted sums (P, B) of what each step brings (P, n·B)."""
        P, n, B = self.counts.shape
        if n == 1:
            return values
        power = discount ** torch.arange(n, device=values.device, dtype=values.dtype)
        return (values.view(P, n, B) * self.counts * power[:, None]).sum(1)

    def first(self) -> Batch:
        """The sampled steps themselves."""
        steps, B = self.steps, self.counts.shape[2]
        return Batch(
            obs=steps.obs[:, :B],
            action=steps.action[:, :B],
            reward=steps.reward[:, :B],
            next_obs=steps.next_obs[:, :B],
            terminated=steps.terminated[:, :B],
            slot=None if steps.slot is None else steps.slot[:, :B],
            success=None if steps.success is None else steps.success[:, :B],
            following=None if steps.following is None else steps.following[:, :B],
        )

    def batch(self, discount: float) -> Batch:
        """The sampled steps, as if each led over n steps at once."""
        n, B = self.counts.shape[1:]
        batch, steps = self.steps, self.steps
        if n > 1:
            batch = self.first()._replace(
                reward=self.total(steps.reward, discount),
                next_obs=steps.next_obs[:, -B:],
                terminated=steps.terminated[:, -B:],
                following=None if steps.following is None else steps.following[:, -B:],
                discount=discount ** self.counts.sum(1).to(self.steps.reward.dtype),
            )
        if self.stacks is None:
            return batch
        obs, next_obs, following = self.stacks
        return batch._replace(obs=obs, next_obs=next_obs, following=following)


class Replay(GrowingModule):
    """A ring of steps of all P × E environments; a slot is one step of one environment.

    A step's next observation is the next step's observation, so each is stored once. Where the next step starts
    elsewhere (a new episode, or environments that were restarted), the observation it led to is kept aside. Frames are
    stacked when they are sampled.

    >>> import gymnasium as gym
    >>> box = gym.spaces.Box(-1.0, 1.0, (3,))
    >>> replay = Replay(Host(observation_space=box, action_space=box), capacity=100)
    >>> zeros, no = torch.zeros(1, 1, 3), torch.zeros(1, 1, dtype=torch.bool)
    >>> step = replay.add(Transition(zeros, zeros, torch.ones(1, 1), zeros, no, no))
    >>> len(replay), replay.sample(1).reward.tolist()
    (1, [[1.0]])
    """

    obs: Tensor  # (P, rows, E, *obs_shape)
    action: Tensor  # (P, rows, E, *action_shape)
    reward: Tensor  # (P, rows, E) float32, the environment's own
    terminated: Tensor  # (P, rows, E) bool
    truncated: Tensor  # (P, rows, E) bool
    success: Tensor  # (P, rows, E) bool, the environment's info["is_success"]
    aside: (
        Tensor  # (P, rows, E) int32, the serial number of the next observation in `finals`; −1: it is in the next row
    )
    offset: Tensor  # (P, 1) int64, where a seed's slots begin among those of all
    position: Tensor  # (2,) int64, `cursor` and `filled` on the device, where a captured graph can see them move
    finals: Tensor  # (F, *obs_shape) a ring: serial number n is in row n mod F
    compilable = ("write", "windows")

    def __init__(self, host: Host, *, capacity: int = 1_000_000, truncation_is_terminal: bool = False) -> None:
        """Allocate everything.

        Args:
            host: Gives spaces, seeds, environments and the device.
            capacity: Steps kept for each seed, over all its environments.
            truncation_is_terminal: Sample steps cut by a time limit as terminated, as the authors' code does.
        """
        super().__init__()
        P, E = host.members, host.envs
        if capacity < E:
            raise ValueError(f"capacity={capacity} must be at least one step of each of the {E} environments")
        self.envs, self.members, self.device, self.discount = E, P, host.device, host.discount
        self.truncation_is_terminal = truncation_is_terminal
        self.gives_following, self.layout = host.separate_stream, host.stack_layout
        # One row more than are valid: the newest step's next observation is there before its own step is. And rows for
        # frames before the oldest step's own.
        self.rows = capacity // E + host.frame_stack
        self.most_sampled = self.rows - host.frame_stack
        self.capacity = self.rows * E
        obs_shape, action_shape = array_shape(host.observation_space), array_shape(host.action_space)
        layout: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "obs": (obs_shape, state_dtype(host.observation_space)),
            "action": (action_shape, action_dtype(host.action_space)),
            "reward": ((), torch.float32),
            "terminated": ((), torch.bool),
            "truncated": ((), torch.bool),
            "success": ((), torch.bool),
            "aside": ((), torch.int32),
        }
        slot_bytes = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in layout.values())
        _check_memory(P * slot_bytes, self.rows * E, capacity, host)
        for name, (shape, dtype) in layout.items():
            # Growing, though they never do: a saved state has only the rows that hold something.
            self.register_growing(name, torch.zeros((P, self.rows, E, *shape), dtype=dtype, device=host.device), axis=1)
        # Room for episodes of 100 steps: when it grows, updates that read it have to be compiled and captured anew.
        finals = (max(64, P * self.capacity // 100), *obs_shape)
        self.register_growing("finals", torch.zeros(finals, dtype=layout["obs"][1], device=host.device), axis=0)
        self.streams = MemberStreams(host.seeds, "replay", host.device)
        first = torch.arange(P, device=host.device)[:, None] * self.capacity
        self.register_buffer("offset", first, persistent=False)
        self.register_buffer("position", torch.zeros(2, dtype=torch.int64, device=host.device), persistent=False)
        # What the newest step led to, where steps come from: compared with the next step's start without a wait.
        self.newest = torch.zeros((P, E, *obs_shape), dtype=layout["obs"][1])
        self.first_slots = torch.arange(E).repeat(P, 1)
        self.shapes = {"obs": (P, E, *obs_shape), "action": (P, E, *action_shape), "next_obs": (P, E, *obs_shape)}
        self.shapes |= dict.fromkeys(("reward", "terminated", "truncated"), (P, E))
        # Counters are plain ints: nothing waits for the device to know where to write. They travel as extra state.
        self.cursor = 0  # the row that the next step is written to
        self.filled = 0  # rows that hold a step
        self.kept = 0  # serial number of the next observation that goes aside
        self.oldest = 0  # serial numbers below this are not needed any more

    def __len__(self) -> int:
        """Steps stored for each member."""
        return min(self.filled, self.most_sampled) * self.envs

    # ------------------------------------------------------------------ write

    def next_released(self) -> Tensor:
        """The slots (P, E) that the next `add` takes away; a shaper that marks slots must release them before."""
        return self._slots_of((self.cursor + 1) % self.rows)

    def add(self, step: Transition) -> Transition:
        """Store one step of every environment, on the CPU as environments give it; the same step with its slots."""
        self._check(step)
        row = self.cursor
        if self.filled:
            self._keep_aside(row, step.obs.to(self.newest.dtype))
        self.newest.numpy()[...] = step.next_obs.numpy()
        success = torch.zeros_like(step.terminated) if step.success is None else step.success
        entries = (step.obs, self.newest, step.action, step.reward, step.terminated, step.truncated, success)
        if self.device.type == "cpu":
            self._write_here(*entries)
        else:
            with torch.no_grad():
                self.write(*entries)
        self.cursor, self.filled = (row + 1) % self.rows, min(self.filled + 1, self.rows - 1)
        return step._replace(slot=self._slots_of(row))

    def write(
        self,
        obs: Tensor,
        next_obs: Tensor,
        action: Tensor,
        reward: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        success: Tensor,
    ) -> None:
        """Put a step (P, E, …) where `position` says and move that on; only tensor work, so that it can be captured."""
        row = self.position[:1]
        after = (row + 1) % self.rows
        put = {"obs": obs, "action": action, "reward": reward}
        ends = {"terminated": terminated, "truncated": truncated, "success": success}
        for name, value in (put | ends).items():
            ring: Tensor = getattr(self, name)
            ring.index_copy_(1, row, value.to(ring)[:, None])
        self.obs.index_copy_(1, after, next_obs.to(self.obs)[:, None])
        self.aside.index_fill_(1, row, -1)
        filled = (self.position[1:] + 1).clamp(max=self.rows - 1)
        self.position.copy_(torch.cat([after, filled]))

    def _write_here(self, obs: Tensor, next_obs: Tensor, *entries: Tensor) -> None:
        """What `write` does, on the CPU: numpy's small copies cost a fifth of torch's."""
        row, after = self.cursor, (self.cursor + 1) % self.rows
        rings = self._buffers
        for name, value in zip(_RINGS, (obs, *entries), strict=False):
            _numbers(rings[name])[:, row] = value.numpy(force=True)
        _numbers(rings["obs"])[:, after] = next_obs.numpy()
        _numbers(rings["aside"])[:, row] = -1
        _numbers(rings["position"])[:] = after, min(self.filled + 1, self.rows - 1)

    def _keep_aside(self, row: int, obs: Tensor) -> None:
        """Save the next observations of the step before `row` where `obs`, which takes their place, is another."""
        # Compared, and not told by the end of an episode: right for any sequence of steps.
        differs = self.newest.numpy() != obs.numpy()
        if not differs.any():
            return
        places = np.nonzero(differs.reshape(self.members, self.envs, -1).any(-1))
        p, e = (torch.from_numpy(axis) for axis in places)
        count = len(p)
        self._make_room(count)
        serial = torch.arange(self.kept, self.kept + count, device=self.device)
        self.finals[serial % len(self.finals)] = self.newest[p, e].to(self.device)
        # Row −1 of row 0 is the last one, as it should be.
        self.aside[p.to(self.device), row - 1, e.to(self.device)] = serial.to(torch.int32)
        self.kept += count

    def _make_room(self, count: int) -> None:
        """Let `finals` take `count` more; rows are forgotten in the order they came, and so are their finals."""
        if self.kept + count - self.oldest <= len(self.finals):
            return
        needed = self.aside[self.aside >= 0]
        self.oldest = int(needed.min()) if len(needed) else self.kept
        live = self.kept - self.oldest
        # Less than half may stay in use: then this look over all rows pays for at least that many observations.
        if 2 * (live + count) > len(self.finals):
            serial = torch.arange(self.oldest, self.kept, device=self.device)
            saved = self.finals[serial % len(self.finals)]
            self.grow("finals", 2 * (live + count))
            self.finals[serial % len(self.finals)] = saved

    # ------------------------------------------------------------------- read

    @torch.no_grad()
    def sample(self, batch_size: int) -> Batch:
        """`batch_size` steps of each seed, uniformly and with replacement, each seed from its own stream."""
        if not 1 <= batch_size <= len(self):
            raise ValueError(
                f"batch_size={batch_size} must be between 1 and the {len(self)} steps stored for each seed; "
                "take more steps before learning (a longer burn-in), or a smaller batch"
            )
        return self.sample_windows(batch_size).steps

    def sample_windows(self, batch_size: int, n: int = 1) -> Window:
        """The same with the n − 1 steps after each; nothing but tensors and no check, so that it can be captured."""
        return self.gather(self.draw(batch_size), n)

    def draw(self, batch_size: int) -> Tensor:
        """Numbers (P, B) in [0, 1), each seed's from its own stream."""
        shape = (self.members, batch_size)
        return self.streams.uniform(torch.empty(shape, device=self.device, dtype=torch.float64))

    def windows(self, uniform: Tensor, n: int) -> tuple[Window, Batch]:
        """The windows that numbers (P, B) in [0, 1) stand for, and the same as a batch of n-step transitions."""
        window = self.gather(uniform, n)
        return window, window.batch(self.discount)

    def gather(self, uniform: Tensor, n: int) -> Window:
        """The steps (P, B) that numbers in [0, 1) stand for, each with the n − 1 steps after it."""
        cursor, filled = self.position[0], self.position[1].clamp(max=self.most_sampled)
        age = (uniform * (filled * self.envs)).long() + 1
        slots = [(cursor * self.envs - age) % self.capacity]  # slots are in order of time: row by row
        counts = [torch.ones_like(age, dtype=torch.bool)]
        for step in range(1, n):
            counts.append(counts[-1] & self._goes_on(slots[-1]) & (age > step * self.envs))
            slots.append(torch.where(counts[-1], (slots[-1] + self.envs) % self.capacity, slots[-1]))
        steps, counted = self._steps(torch.cat(slots, dim=1)), torch.stack(counts, dim=1)
        if self.layout is None:
            return Window(steps, counted)
        first = last = self._stacks(slots[0], self.layout)
        if n > 1:
            last = self._stacks(slots[-1], self.layout)
        B = age.shape[1]
        led_to, following = self.layout.push(last, steps.next_obs[:, -B:]), None
        if steps.following is not None:
            goes_on = self._goes_on(slots[-1])[..., None, None, None]
            new = self.layout.join([steps.following[:, -B:]] * self.layout.depth)
            following = torch.where(goes_on, led_to, new)
        return Window(steps, counted, (first, led_to, following))

    def _goes_on(self, slot: Tensor) -> Tensor:
        """Whether the steps in slots (P, B) led to where the next ones of their environments began."""
        place = self.offset + slot
        ended = self._rows("terminated", place) | self._rows("truncated", place)
        return ~ended & (self._rows("aside", place) < 0)  # aside: the environment was started anew

    def _stacks(self, slot: Tensor, layout: StackLayout) -> Tensor:
        """What the policy saw in slots (P, B): the newest frames of their episodes, the first one repeated."""
        cursor, filled = self.position[0], self.position[1]
        slots = [slot]
        for _ in range(layout.depth - 1):
            newer = slots[-1]
            older = (newer - self.envs) % self.capacity
            is_stored = (cursor * self.envs - older) % self.capacity <= filled * self.envs
            slots.append(torch.where(is_stored & self._goes_on(older), older, newer))
        frames = self._rows("obs", self.offset + torch.cat(slots[::-1], dim=1))
        return layout.join(frames.chunk(layout.depth, dim=1))

    def _steps(self, slot: Tensor) -> Batch:
        """What is stored in slots (P, B)."""
        place = self.offset + slot
        terminated = self._rows("terminated", place)
        if self.truncation_is_terminal:
            terminated = terminated | self._rows("truncated", place)
        # The row after the newest step has its next observation until the next episode's first takes its place.
        following = self._rows("obs", self.offset + (slot + self.envs) % self.capacity)
        return Batch(
            obs=self._rows("obs", place),
            action=self._rows("action", place),
            reward=self._rows("reward", place),
            next_obs=self._next_obs(following, place),
            terminated=terminated,
            slot=slot,
            success=self._rows("success", place),
            following=following if self.gives_following else None,
        )

    def read(self, member: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Observations (n, *obs_shape) and actions (n, *action_shape) now stored in `slots` of `member`."""
        return self.obs[member].flatten(0, 1)[slots], self.action[member].flatten(0, 1)[slots]

    def _rows(self, name: str, place: Tensor) -> Tensor:
        """Entries (P, B, …) of a buffer at places (P, B) among the slots of all seeds."""
        return _take(getattr(self, name).flatten(0, 2), place)

    def _next_obs(self, following: Tensor, place: Tensor) -> Tensor:
        serial = self._rows("aside", place).long()
        kept = _take(self.finals, serial.clamp(min=0) % len(self.finals))
        is_aside = (serial >= 0).view(*place.shape, *(1,) * (following.dim() - 2))
        return torch.where(is_aside, kept, following)  # no branch on the device's data, so nothing waits for it

    def _slots_of(self, row: int) -> Tensor:
        return self.first_slots + row * self.envs

    # ---------------------------------------------------------------- borders

    def _check(self, step: Transition) -> None:
        for name, expected in self.shapes.items():
            found = getattr(step, name).shape
            if found != expected:
                axes = "(seeds, envs)" if len(expected) == 2 else "(seeds, envs, *shape of the space)"
                raise ValueError(f"{name} has shape {tuple(found)}, expected {axes} = {expected}")
        if step.valid is not None and not bool(step.valid.all()):
            p, e = (~step.valid).nonzero()[0].tolist()
            raise ValueError(
                f"step of seed number {p}, environment {e} is not valid: replay stores a step of every environment; "
                "reset environments in the step that ends an episode, as sasr.envs.population.Population does"
            )

    # ----------------------------------------------------------- checkpoints

    def why_not(self, saved: Mapping[str, Any]) -> str:
        """A ring of another length can't be taken over."""
        rows, used = int(saved["_extra_state"][0]), saved["reward"].shape[1]
        if rows == self.rows and used <= rows:
            return ""
        return f"it has room for {rows} rows of steps, not {self.rows}"

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        used = self.cursor + 1
        if self.filled == self.rows - 1:
            used = self.rows
        for name in _RINGS:
            destination[prefix + name] = destination[prefix + name][:, :used]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in _RINGS:
            ring, saved = getattr(self, name), state_dict[prefix + name]
            ring[:, : saved.shape[1]] = saved.to(ring.device)
            state_dict[prefix + name] = ring
        super()._load_from_state_dict(state_dict, prefix, *args)

    def get_extra_state(self) -> Tensor:
        """Where writing goes on; a tensor, so that a checkpoint needs no pickle."""
        return torch.tensor([self.rows, self.cursor, self.filled, self.kept, self.oldest])

    def set_extra_state(self, state: Any) -> None:
        """Continue where the saved replay stood."""
        _, self.cursor, self.filled, self.kept, self.oldest = state.tolist()
        self.position.copy_(torch.tensor([self.cursor, self.filled]))
        self.newest.copy_(self.obs[:, self.cursor])


# ---------------------------------------------------------------- small parts


def _numbers(buffer: Tensor | None) -> NDArray[Any]:
    assert buffer is not None
    return buffer.numpy()


def _take(rows: Tensor, at: Tensor) -> Tensor:
    """rows[at], which on a CPU takes four times as long."""
    return rows.index_select(0, at.flatten()).view(*at.shape, *rows.shape[1:])


def _check_memory(bytes_per_slot: int, slots: int, capacity: int, host: Host) -> None:
    """Raise if a replay of all seeds does not fit, before any of it is allocated."""
    # Observations kept aside are not in here: one an episode, and nobody knows yet how long episodes are.
    needed, free = bytes_per_slot * slots, free_bytes(host.device)
    if needed <= HEADROOM * free:
        return
    fits = int(HEADROOM * free) // bytes_per_slot - host.envs
    fix = f"capacity={fits} would fit, or" if fits >= host.envs else "no capacity would fit:"
    raise ValueError(
        f"capacity={capacity} for {host.members} seeds needs {needed / 2**30:,.1f} GiB of replay, but {host.device} "
        f"has {free / 2**30:,.1f} GiB free; {fix} train fewer seeds at once"
    )
