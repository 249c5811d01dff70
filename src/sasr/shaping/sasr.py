"""SASR: a state's success rate, drawn from a Beta distribution over kernel counts, added to the reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sasr.evidence.counts import Counts, ExactCounts, LinearCounts, SquaredCounts
from sasr.evidence.evidence import Evidence
from sasr.evidence.features import RandomFeatures
from sasr.evidence.kernels import kernel_named
from sasr.evidence.normaliser import StateNormaliser
from sasr.experience.flatten import action_width, state_dtype
from sasr.experience.retained import FAILURE, SUCCESS, ReplayFlags, StatePool
from sasr.experience.retention import RETENTION
from sasr.experience.segments import Segment, Segmenter
from sasr.experience.types import Batch, Host, Transition
from sasr.randomness import MemberStreams
from sasr.shaping.base import CPU, Shaper, check_finite, check_width
from sasr.shaping.beta import beta_draw, beta_mean, success_ratio
from sasr.shaping.presets import SasrConfig, preset_config, refuse_removed
from sasr.shaping.reward_runs import RewardRuns


class SASR(Shaper):
    """Self-adaptive success-rate reward shaping for a population of P seeds.

    >>> shaper = SASR(preset="paper", reward_weight=0.3)
    >>> shaper.config.bandwidth
    0.2

    A host binds it (`bind`), reports every step (`observe`) and asks for bonuses when it learns (`shape`).
    """

    compilable = ("bonus",)
    segmenter: Segmenter
    evidence: Evidence
    beta_streams: MemberStreams
    reward_runs: RewardRuns | None

    def __init__(self, preset: str = "auto", *, config: SasrConfig | None = None, **overrides: Any) -> None:
        super().__init__()
        refuse_removed(overrides)
        self.config = dataclasses.replace(config, **overrides) if config else preset_config(preset, **overrides)
        self.truncation_is_terminal = self.config.truncation_is_terminal
        self.capturable = self.config.estimator != "exact"  # exact counts read as many states as there are

    # ---------------------------------------------------------------- set-up

    def make(self, host: Host) -> None:
        """Make the evidence, the segmenter and the random streams."""
        config, device, members, k = self.config, host.device, host.members, self.obs_width
        if config.state_action:
            k += action_width(host.action_space)
        dtype = torch.float32 if config.state_action else state_dtype(host.observation_space)
        self.width = k
        kernel = kernel_named(config.kernel)
        self.evidence = Evidence(
            self._make_store(host, dtype),
            StateNormaliser(members, k, enabled=config.standardise, clip=config.clip, device=device),
            self._make_counts(host),
            kernel,
            config.bandwidth,
            scaling=config.scaling,
            burn_in=config.burn_in,
            background=config.background,
        )
        flagged = config.storage == "flags"
        self.segmenter = Segmenter(
            config.success_rule,
            members=members,
            envs=host.envs,
            item_shape=() if flagged else (k,),
            dtype=torch.int64 if flagged else dtype,
            reward_above=config.reward_above,
            max_steps=config.segment_steps,
        )
        self.retention_streams = MemberStreams(host.seeds, "retention", CPU)
        self.beta_streams = MemberStreams(host.seeds, "beta", device)
        self.reward_runs = None
        if config.paid_end != "goal":
            self.reward_runs = RewardRuns(config.paid_end, host, reward_above=config.reward_above)

    def _make_store(self, host: Host, dtype: torch.dtype) -> StatePool | ReplayFlags:
        if self.config.storage == "own":
            return StatePool(self.width, dtype, CPU)  # read only when sums are rebuilt
        if host.replay is None:
            raise ValueError("storage='flags' marks states in the host's replay buffer, but this host has none to mark")
        return ReplayFlags(host.members, host.replay.capacity, self._read_replay, host.device)

    def _make_counts(self, host: Host) -> Counts:
        config, kernel = self.config, kernel_named(self.config.kernel)
        if config.estimator == "exact":
            return ExactCounts(kernel, self.width, host.members, host.device)
        features = RandomFeatures(
            kernel,
            self.width,
            config.features,
            seeds=host.seeds,
            frequencies=config.frequencies,
            form=config.form,
            device=host.device,
        )
        if config.estimator == "linear":
            return LinearCounts(features)
        return SquaredCounts(features, subtract_floor=config.subtract_floor)

    # ------------------------------------------------- from steps to evidence

    @torch.no_grad()
    def observe(self, step: Transition) -> None:
        """Record one step of every environment; a step with a NaN or a wrong width is refused and nothing changes."""
        # On the CPU, where steps come from: on an accelerator, each read of a value would wait.
        if step.obs.device != CPU:
            step = Transition(**{name: part.to(CPU) for name, part in step._asdict().items() if part is not None})
        self.check(step)
        states = self._states(step.obs, step.action)
        self.evidence.observe(states, step.valid)
        if self.reward_runs is not None:
            self.reward_runs.observe(step)
        items = states if step.slot is None or self.config.storage == "own" else step.slot
        for segment in self.segmenter.add(step, items):
            self._retain(segment)

    @torch.no_grad()
    def add_trajectory(self, states: Tensor, *, success: bool, member: int = 0) -> None:
        """Count a whole trajectory (T, k) that did not come through `observe`: a demonstration, or logged data.

        Under state_action=True each row is a state with its action appended.
        """
        host = self.bound
        if self.config.storage == "flags":
            raise ValueError("storage='flags' can only count states that are in the replay buffer; use storage='own'")
        if not 0 <= member < host.members:
            raise ValueError(f"member={member} is not in this population of {host.members} seeds")
        if len(states) == 0:
            raise ValueError("a trajectory of 0 states can't be counted; give at least one state, shape (T, k)")
        flat = states.flatten(1).to(CPU)
        check_width("trajectory", flat, self.width)
        check_finite("trajectory", flat[None], seeds=(host.seeds[member],), axis="row")
        everyone = torch.zeros((host.members, *flat.shape), dtype=flat.dtype)
        everyone[member] = flat
        valid = torch.zeros(everyone.shape[:2], dtype=torch.bool)
        valid[member] = True
        self.evidence.observe(everyone, valid)
        self._retain(Segment(member, success, flat))

    @torch.no_grad()
    def release(self, slots: Tensor) -> None:
        """Forget replay slots (P, E) that the host is about to overwrite; only needed with storage='flags'."""
        if self.config.storage == "flags":
            for member, released in enumerate(slots.tolist()):
                for slot in released:
                    self.evidence.release(member, slot)

    def interrupt(self, interrupted: Tensor, step: Transition | None) -> Transition | None:
        """Forget the interrupted episodes (P, E) and their last step: whether they would have succeeded is unknown."""
        self.segmenter.drop(interrupted)
        if self.reward_runs is not None:
            self.reward_runs.drop(interrupted)
        if step is None:
            return None
        valid = torch.ones_like(interrupted) if step.valid is None else step.valid
        return step._replace(valid=valid & ~interrupted)

    @torch.no_grad()
    def lose_replay(self) -> None:
        """Forget evidence that was only marked in the replay buffer (storage='flags'); open segments continue."""
        if self.config.storage == "flags":
            self.evidence.forget()
            self.segmenter.length.zero_()

    def _retain(self, segment: Segment) -> None:
        member, steps = segment.member, segment.steps
        keep = RETENTION[self.config.retention_rule]
        kept = keep(len(steps), self.config.retention, self.retention_streams.member(member))
        if not len(kept):
            return
        on_cpu = self.bound.device == CPU  # where there are no launches to save
        outcome = SUCCESS if segment.success else FAILURE
        self.evidence.add(member, outcome, steps[kept], absorb=None if on_cpu else self.absorb)

    def absorb(self, rows: Tensor, place: Tensor) -> None:
        """The tensor work behind `observe` (`Evidence.absorb`), which a learner may capture."""
        self.evidence.absorb(rows, place)

    # ----------------------------------------------- from evidence to rewards

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """λ·f(success rate) of every sampled state, (P, B), to be added to the environment's reward."""
        bonus = self.bonus(self.success_rate(batch), batch)
        if self.config.weight_rule == "failures":
            return self.config.reward_weight * self.evidence.failure_share * bonus
        return self.config.reward_weight * bonus

    def bonus(self, rate: Tensor, batch: Batch) -> Tensor:
        """F of success rates (P, B), with its discounted sum after a true termination."""
        bonus = self.scale(rate)
        return bonus + self._absorbed(bonus, batch) if self.config.absorbing else bonus

    def success_rate(self, batch: Batch) -> Tensor:
        """Success rates (P, B) of the sampled states, from Beta(N_S + 1, N_F + 1) (paper, section 4.1)."""
        counts = self.counts(batch)
        n_success, n_failure = counts[..., SUCCESS], counts[..., FAILURE]
        if self.config.sample == "mean":
            return beta_mean(n_success, n_failure)
        if self.config.sample == "ratio":
            return success_ratio(n_success, n_failure)
        return beta_draw(n_success, n_failure, self.beta_streams)

    def counts(self, batch: Batch) -> Tensor:
        """Ñ_S and Ñ_F of the sampled states, (P, B, 2)."""
        states = self._batch_states(batch)
        return self.evidence.counts(states)

    def scale(self, rate: Tensor) -> Tensor:
        """f: a success rate in [0, 1] mapped linearly to [R_min, R_max]."""
        low, high = self.config.reward_min, self.config.reward_max
        return rate * (high - low) + low

    def _absorbed(self, bonus: Tensor, batch: Batch) -> Tensor:
        """The discounted sum of f in an absorbing state after a true termination: Σ_{t≥1} γᵗ·f = γ/(1 − γ)·f.

        Without it a negative range rewards early failure, and a positive one staying beside the goal.
        """
        gamma = self.bound.discount
        rewarded = batch.reward > self.config.reward_above
        low, high = self.config.reward_min, self.config.reward_max
        goal = high if self.reward_runs is None else self.reward_runs.worth(bonus, low, high)
        forever = torch.where(rewarded, goal, low) * (gamma / (1.0 - gamma))
        return torch.where(batch.terminated.bool(), forever, 0.0)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """Nothing to train; the size of the evidence and what is in force, each (P,)."""
        size = self.evidence.estimator.size
        figures = {
            "retained_success": size[:, SUCCESS].clone(),
            "retained_failure": size[:, FAILURE].clone(),
            "bandwidth": self.evidence.h.clone(),
        }
        if self.reward_runs is not None:
            figures["reward_lasts"] = self.reward_runs.lasting.clone()
        return figures

    @torch.no_grad()
    def inspect(self, batch: Batch) -> Mapping[str, Tensor]:
        """Counts, success rate and share of clamped counts of a batch's states, each (P,); costs as much as `shape`."""
        raw = self.evidence.raw(self._batch_states(batch))
        counts = self.evidence.finish(raw)
        mean = beta_mean(counts[..., SUCCESS], counts[..., FAILURE])
        return {
            "n_success": counts[..., SUCCESS].mean(1),
            "n_failure": counts[..., FAILURE].mean(1),
            "success_rate_mean": mean.mean(1),
            "success_rate_std": mean.std(1, correction=0),
            "clamped": (raw < 0.0).float().mean((1, 2)),
        }

    # -------------------------------------------------------------- borders

    def check(self, step: Transition) -> None:
        """Raise a ValueError that names the entry if a step can't be counted; changes nothing."""
        super().check(step)
        if self.config.storage == "flags":
            self._check_slots(step)

    def _check_slots(self, step: Transition) -> None:
        """Raise a ValueError unless the step and the episodes under way can be marked in the replay buffer."""
        if step.slot is None:
            raise ValueError("storage='flags' needs the replay slot of every step; set Transition.slot")
        host = self.bound
        assert host.replay is not None
        rows = host.replay.capacity // host.envs
        if int(self.segmenter.length.max()) >= rows:
            raise ValueError(
                f"an episode of more than {rows} steps does not fit the replay buffer, whose flags are evidence; "
                "make the buffer larger, or use storage='own'"
            )

    def _batch_states(self, batch: Batch) -> Tensor:
        self.check_batch(batch)
        return self._states(batch.obs, batch.action)

    def _states(self, obs: Tensor, action: Tensor) -> Tensor:
        """Inputs of the kernel, (P, n, k): states, or states with actions."""
        flat = obs.flatten(2)
        if not self.config.state_action:
            return flat
        return torch.cat([flat.float(), self.flat_actions(action)], dim=-1)

    def _read_replay(self, member: int, slots: Tensor) -> Tensor:
        replay = self.bound.replay
        assert replay is not None
        obs, action = replay.read(member, slots)
        return self._states(obs[None], action[None])[0]
