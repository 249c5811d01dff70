"""Running statistics on a population axis: moments of what was observed, and the spread of discounted sums of it.

Everything is tensor work of fixed shapes and happens in place, so that it can be captured and a checkpoint has it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_FEW = 1e-4  # the weight of the mean of 0 and variance of 1 that statistics start from
_TINY = 1e-8
_RECENT = 0.01  # about the last hundred batches


class RunningMoments(nn.Module):
    """Mean and variance of k features of P seeds, merged batch by batch (Chan's rule), in float64.

    >>> moments = RunningMoments(1, 1, torch.device("cpu"))
    >>> moments.merge(torch.tensor([[[1.0], [3.0]]]), torch.ones(1, 2, dtype=torch.bool))
    >>> round(moments.mean.item(), 3), round(moments.var.item(), 3)
    (2.0, 1.0)
    """

    count: Tensor  # (P, 1)
    mean: Tensor  # (P, k)
    var: Tensor  # (P, k)

    def __init__(self, members: int, k: int, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((members, 1), _FEW, dtype=torch.float64, device=device))
        self.register_buffer("mean", torch.zeros((members, k), dtype=torch.float64, device=device))
        self.register_buffer("var", torch.ones((members, k), dtype=torch.float64, device=device))

    def merge(self, rows: Tensor, valid: Tensor) -> None:
        """Take in rows (P, n, k), leaving out those that are not valid (P, n)."""
        x = torch.where(valid[..., None], rows.double(), 0.0)  # 0 · NaN would still be NaN
        new = valid.sum(1, keepdim=True).double()
        some = new.clamp(min=1.0)
        mean = x.sum(1) / some
        off = torch.where(valid[..., None], x - mean[:, None], 0.0)
        self.merge_moments(mean, off.square().sum(1) / some, new)

    def merge_moments(self, mean: Tensor, var: Tensor, new: Tensor) -> None:
        """Take in `new` (P, 1) rows that have this mean and variance, each (P, k)."""
        total = self.count + new
        delta = mean - self.mean
        spread = self.var * self.count + var * new + delta.square() * (self.count * new / total)
        self.mean.add_(delta * (new / total))
        self.var.copy_(spread / total)
        self.count.copy_(total)

    def standardise(self, rows: Tensor, clip: float) -> Tensor:
        """Rows (P, n, k) less the mean, over the standard deviation, clipped to ± `clip`."""
        # Under the root, because some features never change.
        scale = (self.var + _TINY).sqrt().float()
        return ((rows - self.mean.float()[:, None]) / scale[:, None]).clamp(-clip, clip)


class ReturnSpread(nn.Module):
    """The standard deviation of discounted sums R ← γ·R + r of a reward, one sum for each of E environments.

    Sums run on over the ends of episodes (Burda et al., 2019). γ = 0 gives the deviation of the reward itself.
    """

    running: Tensor  # (P, E)
    begun: Tensor  # (1,) bool

    def __init__(
        self, members: int, envs: int, *, discount: float, device: torch.device, learning: bool = True
    ) -> None:
        """`learning` is whether rewards count in full from the first on, or from the first `update` on."""
        super().__init__()
        self.discount = discount
        self.horizon_rows = envs / (1.0 - discount)
        self.moments = RunningMoments(members, 1, device)
        self.register_buffer("running", torch.zeros((members, envs), dtype=torch.float64, device=device))
        self.register_buffer("begun", torch.full((1,), learning, device=device))

    def advance(self, reward: Tensor, valid: Tensor) -> None:
        """One time step with rewards (P, E); environments whose step is not valid (P, E) stand still."""
        self.running.copy_(torch.where(valid, self.discount * self.running + reward, self.running))
        self.moments.merge(self.running[..., None], valid)

    def update(self, reward: Tensor) -> None:
        """At the first batch (P, B) that is learned from, let what came before weigh as one horizon of steps at most.

        Before a replay buffer is learned from, there are thousands of random steps, and rewards of what has learned
        nothing yet are far larger than any later one.
        """
        shortened = self.moments.count.clamp(max=self.horizon_rows)
        self.moments.count.copy_(torch.where(self.begun, self.moments.count, shortened))
        self.begun.fill_(True)

    def forward(self) -> Tensor:
        """The spread (P, 1) in float32, to divide rewards by."""
        return (self.moments.var + _TINY**2).sqrt().float()


class RecentSum(nn.Module):
    """What a reward of recent batches adds up to, on average, over the horizon of a discount: ē/(1 − γ)."""

    mean: Tensor  # (P, 1)
    begun: Tensor  # (1,) bool

    def __init__(self, members: int, *, discount: float, device: torch.device) -> None:
        super().__init__()
        self.horizon = 1.0 / (1.0 - discount)
        self.register_buffer("mean", torch.ones((members, 1), device=device))
        self.register_buffer("begun", torch.zeros(1, dtype=torch.bool, device=device))

    def update(self, reward: Tensor) -> None:
        """Move a little towards the mean of a batch's rewards (P, B); the first batch sets it."""
        mean = reward.mean(1, keepdim=True)
        self.mean.copy_(torch.where(self.begun, self.mean.lerp(mean, _RECENT), mean))
        self.begun.fill_(True)

    def forward(self) -> Tensor:
        """The sum (P, 1), to divide rewards by."""
        return (self.mean * self.horizon).clamp(min=_TINY)


class TransposedSpread(nn.Module):
    """The same with time and environments mixed up, as CleanRL's RND and the SASR authors' copy of it compute it.

    There is one sum for each of T places in a rollout, and it runs over the environments and the rollouts; the
    statistics move once a rollout, by as many samples as there are environments.
    """

    running: Tensor  # (P, T)
    total: Tensor  # (P, 2) sum and sum of squares of this rollout's R
    place: Tensor  # (1,) int64, of the next step in its rollout

    def __init__(self, members: int, envs: int, *, discount: float, rollout: int, device: torch.device) -> None:
        super().__init__()
        self.discount, self.envs, self.rollout = discount, envs, rollout
        self.moments = RunningMoments(members, 1, device)
        self.register_buffer("running", torch.zeros((members, rollout), dtype=torch.float64, device=device))
        self.register_buffer("total", torch.zeros((members, 2), dtype=torch.float64, device=device))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64, device=device))

    def advance(self, reward: Tensor, valid: Tensor) -> None:
        """One time step with rewards (P, E); a step that is not valid counts as a reward of 0, as it did there."""
        rewards = torch.where(valid, reward.double(), 0.0)
        running = self.running.index_select(1, self.place)
        for env_reward in rewards.unbind(1):
            running = self.discount * running + env_reward[:, None]
            self.total.add_(torch.cat([running, running.square()], dim=1))
        self.running.index_copy_(1, self.place, running)
        self._close_rollout(self.place == self.rollout - 1)
        self.place.copy_((self.place + 1) % self.rollout)

    def _close_rollout(self, full: Tensor) -> None:
        """Merge the rollout's moments where it is full (1,), without a read from the device."""
        mean, square = (self.total / (self.rollout * self.envs)).chunk(2, dim=1)
        new = (self.envs * full).double().expand_as(mean)
        self.moments.merge_moments(mean, (square - mean.square()).clamp(min=0.0), new)
        self.total.mul_(~full)

    def update(self, reward: Tensor) -> None:
        """Nothing: it moves with the steps alone."""

    def forward(self) -> Tensor:
        """The spread (P, 1) in float32, to divide rewards by."""
        return (self.moments.var + _TINY**2).sqrt().float()


def spread(values: Tensor) -> Tensor:
    """Standard deviation over mean, (P,), of values (P, B): near 0, the values no longer distinguish states."""
    return values.std(1, correction=0) / values.mean(1).clamp(min=1e-12)
