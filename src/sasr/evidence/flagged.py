"""Evidence that is only marked in the host's replay buffer: one byte a slot, no state stored twice (storage="flags").

The paper's "Time and Space Complexity". Evidence is then what the replay buffer still holds: a slot about to be
overwritten must be released first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sasr.evidence.evidence import Evidence
from sasr.experience.types import Host, Transition


class ReplayFlags(nn.Module):
    """Marks on the slots of the host's replay buffer, where the states are read again when they are needed."""

    flags: Tensor  # (P, capacity) uint8: 0 not evidence, otherwise 1 + outcome

    def __init__(self, host: Host, states_of: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Mark nothing yet; `states_of` makes states (1, n, k) of observations and actions (1, n, …)."""
        super().__init__()
        if host.replay is None:
            raise ValueError("storage='flags' marks states in the host's replay buffer, but this host has none to mark")
        self.read_slots = host.replay.read  # not the buffer itself: its steps would become part of this module's state
        self.states_of = states_of
        flags = torch.zeros((host.members, host.replay.capacity), dtype=torch.uint8, device=host.device)
        self.register_buffer("flags", flags)

    def read(self, member: int, slots: Tensor) -> Tensor:
        """The states (n, k) that slots (n,) of a seed hold."""
        obs, action = self.read_slots(member, slots)
        return self.states_of(obs[None], action[None])[0]

    def append(self, member: int, outcome: int, items: Tensor) -> Tensor:
        """Mark the slots `items` (n,) and return the states they hold."""
        items = items.to(self.flags.device)
        self.flags[member, items] = outcome + 1
        return self.read(member, items)

    def select(self, member: int, outcome: int) -> Tensor:
        """All states marked for this seed and outcome, (n, k), in slot order."""
        return self.read(member, (self.flags[member] == outcome + 1).nonzero()[:, 0])

    def release(self, member: int, slot: int) -> tuple[int, Tensor] | None:
        """Unmark a slot that is about to be overwritten; its outcome and state (1, k) if it was evidence."""
        flag = int(self.flags[member, slot])
        if flag == 0:
            return None
        self.flags[member, slot] = 0
        return flag - 1, self.read(member, torch.tensor([slot], device=self.flags.device))


class FlaggedEvidence(Evidence):
    """Evidence over the marked slots of a replay buffer."""

    store: ReplayFlags

    def release(self, slots: Tensor) -> None:
        """Forget replay slots (P, E) that are about to be overwritten."""
        for member, slots_of_member in enumerate(slots.tolist()):
            for slot in slots_of_member:
                released = self.store.release(member, slot)
                if released is not None:
                    outcome, state = released
                    self.until_rebuild[member] -= 1
                    self.estimator.add(member, outcome, self.normaliser.of_member(member, state), sign=-1)

    def forget(self) -> None:
        """Forget all marked states; statistics of states stay."""
        self.store.flags.zero_()
        for member in range(len(self.until_rebuild)):
            self.estimator.clear(member)
        self.until_rebuild.fill_(1)


def check_slots(step: Transition, open_length: Tensor, host: Host) -> None:
    """Raise a ValueError unless a step and the segments under way, of lengths (P, E), can be marked in the replay."""
    if step.slot is None:
        raise ValueError("storage='flags' needs the replay slot of every step; set Transition.slot")
    assert host.replay is not None
    rows = host.replay.capacity // host.envs
    if int(open_length.max()) >= rows:
        raise ValueError(
            f"an episode of more than {rows} steps does not fit the replay buffer, whose flags are evidence; "
            "make the buffer larger, or use storage='own'"
        )
