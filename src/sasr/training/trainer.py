"""A run from its settings: the loop, evaluations, checkpoints, and stopping when asked to."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.agents.registry import agent_named
from sasr.envs.population import Population
from sasr.experience.frames import picture_axes, stack_depth
from sasr.experience.types import Host
from sasr.settings import TrainConfig, choose_device
from sasr.shaping.base import RewardShaper, adapt
from sasr.shaping.registry import CUSTOM, shaper_named
from sasr.shaping.reward_watch import SuccessWatch
from sasr.shaping.sasr import SASR
from sasr.tasks.environment import TaskLike
from sasr.training import checkpoint
from sasr.training.base import DivergedError, Learner
from sasr.training.evaluate import SCORE, Evaluation, evaluate
from sasr.training.fast import speed_up
from sasr.training.loop import Episode, Loop
from sasr.training.off_policy import OffPolicy
from sasr.training.on_policy import OnPolicy
from sasr.training.pace import ImagePace
from sasr.training.signals import InterruptedBySignal, StopSignals

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints in a run's folder."""


class Recorder:
    """Called with what happens in a run; this one does nothing. Steps are those of each seed."""

    def begin(self, trainer: Trainer) -> None:
        """The run starts, or goes on at `trainer.loop.steps`."""

    def turned(self, steps: int) -> None:
        """Another turn is done; called very often."""

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        """Episodes of training ended."""

    def figures(self, steps: int, figures: Mapping[str, NDArray[np.float64]]) -> None:
        """Figures of the agent and the shaper, each (P,)."""

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """The agents were evaluated."""

    def notice(self, steps: int, text: str) -> None:
        """Something a person should know."""

    def save(self) -> dict[str, Any]:
        """Plain data to go on from, as a part of a checkpoint."""
        return {}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on from saved data: what was recorded after it is taken back."""

    def close(self, steps: int) -> None:
        """The run has ended at `steps`, also after an error; called once, by whoever made the recorder."""


class Trainer:
    """One run of P seeds: `run` goes on to the last step, or until a signal asks it to stop."""

    def __init__(
        self,
        config: TrainConfig,
        *,
        folder: Path | None = None,
        recorder: Recorder | None = None,
        shaper: RewardShaper | None = None,
        task: TaskLike | None = None,
    ) -> None:
        """Make everything; nothing has happened yet.

        Args:
            config: Settings of the run.
            folder: Where checkpoints go; None writes none.
            recorder: Called with what happens.
            shaper: The shaper itself, where the caller has made it; needed where the settings say shaper="custom".
            task: The task itself, where the settings have only a text for it.
        """
        self.task = config.task if task is None else task
        self.config, self.folder = config, folder
        self.recorder = recorder or Recorder()
        self.device = choose_device(config.device)
        self.signals = StopSignals()
        self._evaluation_due = False  # at the step where the run is
        self._warned = False  # of what holds for every evaluation
        self.news: list[str] = []
        """What `resume` found that a person should know; the recorder gets it when the run goes on."""
        with ExitStack() as stack:
            self.population = stack.enter_context(self._population(config.envs, self._workers()))
            self.shaper = make_shaper(config) if shaper is None else shaper
            self.learner = make_learner(config, self.population, self.shaper, self.device)
            # A checkpoint says what was chosen.
            self.config = config = dataclasses.replace(
                config, environments=config.envs, frame_stack=self.learner.frame_stack
            )
            self.graphs = speed_up(self.learner, config.accelerate, config.precision)
            if config.steps < self.learner.burn_in:
                raise ValueError(
                    f"steps={config.steps} is less than burn_in={self.learner.burn_in}: the agent would never learn; "
                    "train for more steps, or set a shorter burn-in (--set agent.burn_in=…)"
                )
            self.loop = Loop(self.population, self.learner)
            if isinstance(self.shaper, SASR):
                self.loop.watch = SuccessWatch(self.shaper.config.reward_above)
            self.pace: ImagePace | None = None
            if picture_axes(self.population.observation_space) is not None:
                self.pace = ImagePace(
                    steps=config.steps,
                    cycle=getattr(self.learner.agent, "steps_per_rollout", self.learner.update_every),
                    device=self.device,
                    burn_in=self.learner.burn_in,
                )
            self._evaluation_population: Population | None = None
            self._stack = stack.pop_all()

    def _population(self, environments: int, workers: int | None, *, info_keys: tuple[str, ...] = ()) -> Population:
        return Population(
            self.task,
            seeds=self.config.seeds,
            environments=environments,
            workers=workers,
            info_keys=info_keys,
            **self.config.task_options,
        )

    def _workers(self) -> int | None:
        config = self.config
        # One environment steps in this process, unless an accelerator learns meanwhile.
        if config.workers is None and len(config.seeds) * config.envs == 1 and self.device.type == "cuda":
            return 1
        return config.workers

    def close(self) -> None:
        """End the environments' processes."""
        self._close_evaluation()
        self._stack.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def stopped_by(self) -> int | None:
        """The number of the signal that asked the run to end."""
        return self.signals.received

    @property
    def finished(self) -> bool:
        """Whether all steps have been taken, and the evaluation after the last one was made."""
        return self.loop.steps >= self.config.steps and not self._evaluation_due

    def run(self) -> bool:
        """Go on; True when all steps have been taken, False when a signal came first."""
        loop, recorder = self.loop, self.recorder
        recorder.begin(self)
        for text in self.news:
            recorder.notice(loop.steps, text)
        self.news.clear()
        period = 60.0 * self.config.checkpoint_minutes
        next_save = time.monotonic() + period
        with self.signals.handled(), self._naming_divergence():
            while not self.finished and self.stopped_by is None:
                if not self._evaluation_due:
                    self._turn()
                if self._evaluation_due and not self._evaluated():
                    break  # it is made when the run goes on
                recorder.turned(loop.steps)
                if period and time.monotonic() >= next_save:
                    self.save()
                    next_save = time.monotonic() + period
            self.save()  # within, because clusters and grids send a signal twice
        return self.finished

    def _turn(self) -> None:
        config, loop = self.config, self.loop
        before = loop.steps
        began = time.perf_counter()
        ended = loop.turn()
        if self.pace is not None:
            seconds, steps = time.perf_counter() - began, loop.steps - before
            text = self.pace.turned(seconds, steps, at=loop.steps, learning=bool(loop.figures))
            if text:
                self.recorder.notice(loop.steps, text)
        if ended:
            self.recorder.episodes(loop.steps, ended)
        if loop.warning:
            self.recorder.notice(loop.steps, loop.warning)
            loop.warning = ""
        if _passed(before, loop.steps, config.log_every):
            self._log()
        last = loop.steps >= config.steps and config.eval_every != 0
        self._evaluation_due = last or _passed(before, loop.steps, config.evaluation_period)

    def _evaluated(self) -> bool:
        """Evaluate; a signal breaks that off at once, however long an episode or a step may take: then False."""
        try:
            with self.signals.interruptible():
                result = self.evaluate()
        except InterruptedBySignal:
            self._close_evaluation()  # in the middle of a step
            return False
        self.recorder.evaluation(self.loop.steps, result)
        self._evaluation_due = False
        return True

    def evaluate(self) -> Evaluation:
        """How good the agents are now."""
        if self._evaluation_population is None:
            config = self.config
            self._evaluation_population = self._population(config.eval_episodes, config.workers, info_keys=(SCORE,))
        return evaluate(
            self._evaluation_population,
            self.learner.act_best,
            frame_stack=self.learner.frame_stack,
            warn=self._warn_once,
        )

    def _close_evaluation(self) -> None:
        if self._evaluation_population is not None:
            self._evaluation_population.close()
            self._evaluation_population = None

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self.recorder.notice(self.loop.steps, text)

    def _log(self) -> None:
        figures = self.loop.figures
        if figures:
            figures = figures | self.learner.inspect()
        columns = [value.to(self.device).double() for value in (self.learner.finite(), *figures.values())]
        finite, *values = torch.stack(columns).cpu().numpy()  # at once: a device is waited for once
        if figures:
            self.recorder.figures(self.loop.steps, dict(zip(figures, values, strict=True)))
        self._check(finite > 0.0)

    # ------------------------------------------------------------ divergence

    def _check(self, finite: NDArray[np.bool_], because: Exception | None = None) -> None:
        """Raise where a seed has numbers that are not finite, by `finite` (P,); older checkpoints stay as they are."""
        if finite.all():
            return
        diverged = [str(seed) for seed, is_finite in zip(self.config.seeds, finite, strict=True) if not is_finite]
        who = "seed" if len(diverged) == 1 else "seeds"
        text = (
            f"learning diverged at step {self.loop.steps:,} ({who} {', '.join(diverged)}): weights or moments of the "
            "agent are not finite; checkpoints from before stay; take smaller step sizes (--set agent.critic_lr=1e-4), "
            "or smaller rewards"
        )
        self.recorder.notice(self.loop.steps, text)
        raise DivergedError(text) from because

    @contextmanager
    def _naming_divergence(self) -> Iterator[None]:
        """Whatever goes wrong where numbers are not finite, divergence is the reason to report."""
        try:
            yield
        except DivergedError:
            raise
        except Exception as error:
            with suppress(RuntimeError):  # a CUDA device that has failed answers nothing any more
                self._check(self.learner.finite().cpu().numpy(), because=error)
            raise

    # ----------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Write a checkpoint, but never of an agent that diverged; a full disk is reported and does not end the run."""
        if self.folder is None:
            return
        self._check(self.learner.finite().cpu().numpy())
        config, steps = self.config, self.loop.steps
        parts: dict[str, dict[str, Tensor]] = {
            **self.learner.save(replay=config.checkpoint_replay),
            "loop": _tensors(self.loop.save()),
            "environments": _tensors(self.population.save()),
        }
        facts = {
            "steps": steps,
            "evaluation_due": self._evaluation_due,
            "left_out": [] if config.checkpoint_replay else ["replay"],
            "config": config.to_json(),
            "recorder": self.recorder.save(),
        }
        try:
            checkpoint.write(self.folder / CHECKPOINTS, parts, facts)
        except OSError as error:
            self.recorder.notice(steps, f"no checkpoint was written ({error}); the run goes on, and older ones stay")

    def resume(self) -> bool:
        """Go back to the newest checkpoint that can be used; False if there is none, not even a damaged one."""
        if self.folder is None:
            return False
        unusable: list[tuple[Path, str]] = []
        tried: list[Path] = []

        def use(saved: checkpoint.Checkpoint) -> None:
            tried.append(saved.path)
            self._go_back_to(saved)

        saved = checkpoint.newest(self.folder / CHECKPOINTS, lambda *problem: unusable.append(problem), use=use)
        if saved is None and tried:  # what they left behind is no start
            causes = "; ".join(f"{path.name}: {why}" for path, why in unusable)
            raise ValueError(f"no checkpoint of {self.folder} can be used: {causes}")
        since = "there is no other one"
        if saved is not None:
            since = f"going on from {saved.path.name}, after {self.loop.steps:,} steps"
        for path, why in unusable:
            self.news.append(f"checkpoint {path} can't be used: {why}; {since}")
            if saved is not None and path.suffix == "":
                with suppress(OSError):
                    checkpoint.retire(path)
        return saved is not None

    def _go_back_to(self, saved: checkpoint.Checkpoint) -> None:
        steps = checkpoint.steps_of(saved)
        _check_same_run(self.config.to_json(), saved)
        parts = {name: saved.read(name) for name in saved.parts}
        loop, environments = _arrays(parts.pop("loop")), _arrays(parts.pop("environments"))
        if int(loop["steps"]) != steps:
            raise checkpoint.DamagedError(f"it is of step {int(loop['steps']):,}, but says {steps:,}")
        self.learner.load(parts)
        restarted = self.population.restore(environments)
        self.loop.load(loop, restarted)
        self.learner.interrupt(torch.from_numpy(restarted))
        self._evaluation_due = bool(saved.facts.get("evaluation_due", False))
        self.recorder.load(saved.facts["recorder"])
        for p, e in np.argwhere(restarted).tolist():
            self.news.append(
                f"the episode of seed {self.config.seeds[p]}, environment {e} restarts: played again, it went another "
                "way than before"
            )


def make_shaper(config: TrainConfig) -> RewardShaper | None:
    """The shaper that the settings name."""
    if config.shaper == CUSTOM:
        raise ValueError("this run was trained with a shaper of your own; give it: sasr.resume(run, shaper=MyShaper())")
    entry = shaper_named(config.shaper)
    if entry is None:
        return None
    if entry.make is SASR:
        return entry.make(config=config.sasr_config())
    return entry.make(config=config.shaper_config or entry.config())


def make_learner(
    config: TrainConfig, population: Population, shaper: RewardShaper | None, device: torch.device
) -> Learner:
    """Agent, experience and shaper as one."""
    shaper = None if shaper is None else adapt(shaper)
    space = population.observation_space
    _, entry = agent_named(config.agent, population.action_space)
    host = Host(
        observation_space=space,
        action_space=population.action_space,
        seeds=population.seeds,
        envs=population.environments,
        device=device,
        discount=config.discount,
        frame_stack=stack_depth(space, config.frame_stack, time_limit=population.time_limit),
        separate_stream=shaper is not None and shaper.separate_stream and entry.separates,
    )
    terminal = config.truncation_is_terminal
    if terminal is None:
        terminal = shaper is not None and shaper.truncation_is_terminal
    agent = entry.make(host, config.agent_config or entry.settings_for(space))
    if not entry.on_policy:
        return OffPolicy(host, agent, shaper=shaper, capacity=config.steps_kept, truncation_is_terminal=terminal)
    if config.steps <= agent.steps_per_rollout:
        raise ValueError(
            f"steps={config.steps} ends before anything is learned from a first rollout of "
            f"{agent.steps_per_rollout}; train for more steps, or set a shorter rollout (--set agent.rollout=…)"
        )
    return OnPolicy(host, agent, shaper=shaper, truncation_is_terminal=terminal)


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _check_same_run(config: Mapping[str, Any], saved: checkpoint.Checkpoint) -> None:
    names = ("task", "agent", "shaper", "preset", "seeds", "environments", "agent_config", "shaper_config")
    saved_config = {"task_settings": {}, "frame_stack": 1, **saved.facts["config"]}  # older runs have neither
    for name in (*names, "max_episode_steps", "task_settings", "frame_stack"):
        current, before = json.loads(json.dumps(config[name])), saved_config.get(name)
        if current != before:
            raise ValueError(
                f"{name} is {current}, but {saved.path} is of a run with {before}; go on with its own settings"
            )


def _passed(before: int, now: int, period: int) -> bool:
    """Whether a multiple of `period` was reached since `before`; 0 is never."""
    return period > 0 and now // period > before // period
