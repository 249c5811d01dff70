"""SASR: a state's success rate, drawn from a Beta distribution over kernel counts, added to the reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from sasr.evidence.flagged import FlaggedEvidence, check_slots
from sasr.evidence.on_device import EvidenceInBlocks
from sasr.experience.flatten import action_width, state_dtype
from sasr.experience.retained import FAILURE, SUCCESS
from sasr.experience.retention import RETENTION
from sasr.experience.segments import Segment, Segmenter
from sasr.experience.types import Batch, Host, Transition
from sasr.randomness import MemberStreams
from sasr.shaping.assembly import make_evidence
from sasr.shaping.base import CPU, Shaper, check_trajectory
from sasr.shaping.beta import beta_draw, beta_mean, success_ratio
from sasr.shaping.presets import SasrConfig, preset_config, refuse_removed
from sasr.shaping.reward_watch import RewardRuns
from sasr.shaping.settings import settings_from


class SASR(Shaper):
    """Self-adaptive success-rate reward shaping for a population of P seeds.

    >>> shaper = SASR(preset="paper", reward_weight=0.3)
    >>> shaper.config.bandwidth
    0.2

    A host binds it (`bind`), reports every step (`observe`) and asks for bonuses when it learns (`shape`).
    """

    compilable = ("draw_rate", "bonus")

    def __init__(self, preset: str = "auto", *, config: SasrConfig | None = None, **overrides: Any) -> None:
        super().__init__()
        refuse_removed(overrides)
        self.config = settings_from(SasrConfig, config, overrides) if config else preset_config(preset, **overrides)
        self.truncation_is_terminal = self.config.truncation_is_terminal
        self.flagged = self.config.storage == "flags"

    def make(self, host: Host) -> None:
        """Make the evidence, the segmenter and the random streams."""
        config = self.config
        self.width, dtype = self.obs_width, state_dtype(host.observation_space)
        if config.state_action:
            self.width += action_width(host.action_space)
            dtype = torch.float32
        self.evidence = make_evidence(config, host, width=self.width, dtype=dtype, states_of=self._states)
        self.capturable = self.evidence.estimator.capturable
        item_shape: tuple[int, ...] = (self.width,)
        if self.flagged:  # slots of the replay buffer stand for states
            item_shape, dtype = (), torch.int64
        self.segmenter = Segmenter(
            config.success_rule,
            members=host.members,
            envs=host.envs,
            item_shape=item_shape,
            dtype=dtype,
            reward_above=config.reward_above,
            max_steps=config.segment_steps,
        )
        self.retention_streams = MemberStreams(host.seeds, "retention", CPU)
        self.beta_streams = MemberStreams(host.seeds, "beta", host.device)
        self.reward_runs: RewardRuns | None = None
        if config.paid_end != "goal":
            self.reward_runs = RewardRuns(config.paid_end, host, reward_above=config.reward_above)

    # ------------------------------------------------- from steps to evidence

    def observe(self, step: Transition) -> None:
        """Record a step of every environment; one with a NaN or a wrong width is refused and changes nothing."""
        # On the CPU, where steps come from: on an accelerator, each read of a value would wait.
        if step.obs.device != CPU:
            step = Transition(**{name: part.to(CPU) for name, part in step._asdict().items() if part is not None})
        self.check(step)
        states = self._states(step.obs, step.action)
        self.evidence.observe(states, step.valid)
        if self.reward_runs is not None:
            self.reward_runs.observe(step)
        items = step.slot if self.flagged and step.slot is not None else states
        if closed := self.segmenter.add(step, items):
            self._retain(closed)

    @torch.no_grad()
    def _retain(self, segments: Sequence[Segment]) -> None:
        """Keep a share φ of finished segments' states as evidence."""
        keep = RETENTION[self.config.retention_rule]
        for segment in segments:
            kept = keep(len(segment.steps), self.config.retention, self.retention_streams.member(segment.member))
            if len(kept):
                outcome = SUCCESS if segment.success else FAILURE
                self.evidence.add(segment.member, outcome, segment.steps[kept])
        self.evidence.flush(self.absorb)

    def absorb(self, rows: Tensor, which: Tensor) -> None:
        """The tensor work behind `observe` on an accelerator, which a learner may capture."""
        cast(EvidenceInBlocks, self.evidence).count_block(rows, which)

    @torch.no_grad()
    def add_trajectory(self, states: Tensor, *, success: bool, member: int = 0) -> None:
        """Count a trajectory (T, k) that did not come through `observe`: a demonstration, or logged data.

        Under state_action=True each row is a state with its action appended.
        """
        if self.flagged:
            raise ValueError("storage='flags' can only count states in the replay buffer; use storage='own'")
        flat = states.flatten(1).to(CPU)
        check_trajectory(flat, self.width, self.bound.seeds, member)
        padded = torch.zeros((self.bound.members, *flat.shape), dtype=flat.dtype)
        padded[member] = flat
        valid = torch.zeros(padded.shape[:2], dtype=torch.bool)
        valid[member] = True
        self.evidence.observe(padded, valid)
        self._retain([Segment(member, success, flat)])

    # ----------------------------------------------- from evidence to rewards

    @torch.no_grad()
    def shape(self, batch: Batch) -> Tensor:
        """λ·f(success rate) of every sampled state, (P, B), to be added to the environment's reward."""
        return self.bonus(self.success_rate(batch), batch)

    def success_rate(self, batch: Batch) -> Tensor:
        """Success rates (P, B) of the sampled states, from Beta(N_S + 1, N_F + 1) (paper, section 4.1)."""
        n_success, n_failure = self.counts(batch).unbind(-1)
        if self.config.sample == "ratio":
            return success_ratio(n_success, n_failure)
        return self.draw_rate(n_success, n_failure)

    def draw_rate(self, n_success: Tensor, n_failure: Tensor) -> Tensor:
        """Draws (P, B) from Beta(N_S + 1, N_F + 1)."""
        return beta_draw(n_success, n_failure, self.beta_streams)

    def counts(self, batch: Batch) -> Tensor:
        """Ñ_S and Ñ_F of the sampled states, (P, B, 2)."""
        states = self._batch_states(batch)
        return self.evidence.counts(states)

    def bonus(self, rate: Tensor, batch: Batch) -> Tensor:
        """λ·f: success rates (P, B) mapped to [R_min, R_max], with the discounted sum after a true termination."""
        low, high = self.config.reward_min, self.config.reward_max
        bonus = rate * (high - low) + low
        if self.config.absorbing:
            bonus = bonus + self._absorbed(bonus, batch)
        if self.config.weight_rule == "failures":
            return self.config.reward_weight * self.evidence.failure_share * bonus
        return self.config.reward_weight * bonus

    def _absorbed(self, bonus: Tensor, batch: Batch) -> Tensor:
        """The discounted sum of f in an absorbing state after a true termination: Σ_{t≥1} γᵗ·f = γ/(1 − γ)·f.

        Without it a negative range rewards early failure, and a positive one staying beside the goal.
        """
        low, high = self.config.reward_min, self.config.reward_max
        goal = high if self.reward_runs is None else self.reward_runs.worth(bonus, low, high)
        gamma = self.bound.discount
        succeeded = batch.reward > self.config.reward_above
        if batch.success is not None:
            succeeded = succeeded | batch.success
        forever = torch.where(succeeded, goal, low) * (gamma / (1.0 - gamma))
        return torch.where(batch.terminated.bool(), forever, 0.0)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """Train what maps images; how wrong it was, the size of the evidence and what is in force, each (P,)."""
        success, failure = self.evidence.estimator.size.clone().unbind(1)
        figures = {"retained_success": success, "retained_failure": failure, "bandwidth": self.evidence.h.clone()}
        if self.reward_runs is not None:
            figures["reward_lasts"] = self.reward_runs.lasting.clone()
        return figures | self.evidence.estimator.learn(batch, self.evidence.normaliser)

    @torch.no_grad()
    def inspect(self, batch: Batch) -> Mapping[str, Tensor]:
        """Counts, success rate and share of clamped counts of a batch, (P,); costs as much as `shape`."""
        states = self._batch_states(batch)
        raw = self.evidence.raw(states)
        n_success, n_failure = self.evidence.finish(raw).unbind(-1)
        mean = beta_mean(n_success, n_failure)
        return {
            "n_success": n_success.mean(1),
            "n_failure": n_failure.mean(1),
            "success_rate_mean": mean.mean(1),
            "success_rate_std": mean.std(1, correction=0),
            "clamped": (raw < 0.0).float().mean((1, 2)),
        }

    # ------------------------------------- interruptions and the host's replay

    def interrupt(self, interrupted: Tensor, step: Transition | None) -> Transition | None:
        """Forget interrupted episodes (P, E) and their last step: whether they would have succeeded is unknown."""
        self.segmenter.drop(interrupted)
        if self.reward_runs is not None:
            self.reward_runs.drop(interrupted)
        if step is None:
            return None
        return step._replace(valid=step.valid_mask() & ~interrupted)

    @torch.no_grad()
    def release(self, slots: Tensor) -> None:
        """Forget replay slots (P, E) that the host is about to overwrite: evidence under storage='flags'."""
        if isinstance(self.evidence, FlaggedEvidence):
            self.evidence.release(slots)

    @torch.no_grad()
    def lose_replay(self) -> None:
        """Forget evidence that was only marked in the replay buffer; open segments go on."""
        if isinstance(self.evidence, FlaggedEvidence):
            self.evidence.forget()
            self.segmenter.length.zero_()

    # ----------------------------------------------------------- what comes in

    def check(self, step: Transition) -> None:
        """Raise a ValueError that names the entry if a step can't be counted; changes nothing."""
        self._check_images(step.obs)
        super().check(step)
        if self.flagged:
            check_slots(step, self.segmenter.length, self.bound)

    def _batch_states(self, batch: Batch) -> Tensor:
        self._check_images(batch.obs)
        self.check_batch(batch)
        return self._states(batch.obs, batch.action)

    def _check_images(self, obs: Tensor) -> None:
        """Raise a ValueError for images of another size, or whose channels stand elsewhere; flat ones are taken."""
        expected = tuple(self.bound.observation_space.shape or ())
        shape = tuple(obs.shape[2:])
        if len(expected) > 1 and len(shape) > 1 and shape != expected:
            raise ValueError(f"obs has images of shape {shape}, but this shaper was bound to images of {expected}")

    def _states(self, obs: Tensor, action: Tensor) -> Tensor:
        """Inputs of the kernel, (P, n, k): states, or states with actions."""
        flat = obs.flatten(2)
        if not self.config.state_action:
            return flat
        return torch.cat([flat.float(), self.flat_actions(action)], dim=-1)
