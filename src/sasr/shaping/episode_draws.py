"""One draw an episode: a quantile for each seed, held until its episode ends."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sasr.experience.types import Host, Transition
from sasr.randomness import MemberStreams


class EpisodeDraws(nn.Module):
    """A standard normal number for each seed, the quantile of all its success rates during an episode.

    A seed has one policy and its batches are of all its environments, so it has one number too;
    with several environments, the first one's episodes set the pace.
    """

    drawn: Tensor  # (P,) on the CPU: reading it back from the device would wait for the update that runs there
    normal: Tensor  # (P,) the same on the host's device, where captured graphs read it
    streams: MemberStreams

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.streams = MemberStreams(host.seeds, "episode draw", torch.device("cpu"))
        self.register_buffer("drawn", torch.zeros(host.members))
        self.register_buffer("normal", torch.zeros(host.members, device=host.device))
        self._renew(range(host.members))

    def observe(self, step: Transition) -> None:
        """Draw anew for the seeds whose first environment ended an episode with this step."""
        done = step.terminated[:, 0] | step.truncated[:, 0]
        if step.valid is not None:
            done = done & step.valid[:, 0]
        ended = [member for member, is_done in enumerate(done.tolist()) if is_done]
        if ended:
            self._renew(ended)

    def _renew(self, members: range | list[int]) -> None:
        for member in members:
            self.drawn[member] = torch.randn((), generator=self.streams.member(member))
        self.normal.copy_(self.drawn)
