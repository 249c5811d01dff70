"""Estimates of a run: its memory, from its parts before the first step, and its time, from a short trial."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec
from torch import Tensor

from sasr.api import complete
from sasr.experience.replay import Replay
from sasr.experience.retained import OUTCOMES
from sasr.experiments.plan import GridRun, json_text
from sasr.settings import TrainConfig
from sasr.shaping.presets import SasrConfig
from sasr.shaping.sasr import SASR
from sasr.tasks.catalogue import VARIANTS, find, full_id
from sasr.tasks.environment import resolve
from sasr.training.trainer import Trainer

_OVERHEAD = 2**30  # of a process with torch, or of a context on a GPU
_EVIDENCE = 1.25  # shapers keep some of the steps besides
_TRIAL_CAPACITY = 10_000
_TRIAL_SECONDS = 0.3
_SLOW = 0.5  # seconds; turns that take longer need no warm-up
_SOME_STATES = 1_000
_TURNS_WITHOUT_LEARNING = 30
_SEED_ON_GPU = 0.065
"""Share of one seed's time that each further seed adds on a GPU: 1,623 steps a second for one, 10,250 for ten
(docs/engine.md, throughput-h200). On a CPU networks run one after the other, so each adds all of it."""


class Footprint(NamedTuple):
    """Memory of one seed of a run, in bytes."""

    learned: int
    """Networks, optimizers and counts."""
    per_step: float
    """Each step in the replay buffer."""

    def bytes_of(self, run: GridRun) -> int:
        """Estimated memory of a run."""
        return math.ceil(_OVERHEAD + len(run.seeds) * self._bytes_of_a_seed(run))

    def seeds_within(self, memory: int, run: GridRun) -> int:
        """How many seeds of a run fit into so much memory, at least one."""
        return max(1, int((memory - _OVERHEAD) / max(1.0, self._bytes_of_a_seed(run))))

    def _bytes_of_a_seed(self, run: GridRun) -> float:
        # Twice what is learned: gradients and what lies between layers.
        return 2 * self.learned + _EVIDENCE * self.per_step * run.config(device="cpu").steps_kept


class Trial(NamedTuple):
    """Measurements of one seed of a run."""

    footprint: Footprint
    burn_in: int
    """Random steps at the start of a run."""
    retained: int
    """States that SASR had retained at its start."""
    random_step: float
    """Seconds of a step without learning, such as the random ones at the start of a run."""
    learning_step: float
    """Seconds of a step with learning."""
    evaluation_step: float
    """Seconds of a step of an evaluation."""
    device: str

    def seconds(self, run: GridRun, *, final_episodes: int) -> float:
        """Seconds of a whole run, if every episode of its evaluations lasts until the time limit."""
        config = run.config(device="cpu")
        at_random = min(config.steps, self.burn_in)
        episodes = final_episodes
        if config.evaluation_period:
            episodes += config.steps // config.evaluation_period * config.eval_episodes
        seconds = self.random_step * at_random
        seconds += self.learning_step * (config.steps - at_random)
        seconds += self.evaluation_step * episodes * _time_limit(config)
        further_seed = _SEED_ON_GPU if self.device.startswith("cuda") else 1.0
        return seconds * (1.0 + further_seed * (len(run.seeds) - 1))


def cost_class(run: GridRun) -> str:
    """Equal for runs whose steps cost the same: one method, tasks of one simulator with equal spaces."""
    config = run.config(device="cpu")
    task: Any = full_id(run.task)
    if task in VARIANTS:
        action: Any = find(run.task).action
        variant = VARIANTS[task]
        simulator = variant.entry_point.partition(":")[0]
        if isinstance(action, int):
            action = "discrete"
        task = [simulator, variant.observation, action]
    content = [task, run.task_settings, run.method.content(), _states_in_trial(config)]
    return hashlib.sha256(json_text(content, sort_keys=True).encode()).hexdigest()


def examine(run: GridRun) -> Footprint:
    """Build one seed of a run on the CPU, without a step: what cannot work raises here, not hours later."""
    config = complete(run.config(device="cpu", workers=0))
    with Trainer(_smaller(config, accelerate="eager")) as trainer:
        return _footprint(trainer)


def try_out(run: GridRun, *, device: str, threads: int) -> Trial:
    """Train one seed of a run for a moment, with as many retained states as the run will have.

    Args:
        run: The run.
        device: Where it will run.
        threads: Threads of torch.
    """
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        config = complete(run.config(device=device, workers=0))
        with Trainer(_smaller(config)) as trainer:
            retained = _add_evidence(trainer, _states_in_trial(config))
            footprint = _footprint(trainer)
            random_step, learning_step = _seconds_of_steps(trainer)
            evaluation_step = random_step + _seconds_of_acting(trainer)
            return Trial(
                footprint,
                burn_in=int(getattr(config.agent_config, "burn_in", 0)),
                retained=retained,
                random_step=random_step,
                learning_step=learning_step,
                evaluation_step=evaluation_step,
                device=str(trainer.device),
            )
    finally:
        torch.set_num_threads(threads_before)


def _states_in_trial(config: TrainConfig) -> int:
    """States that the shaper has retained when a trial begins.

    Exact sums take time in proportion to the retained states. A trial of theirs has as many as the run has halfway,
    which is the mean over the run. Other sums take the same time for any number.
    """
    if config.shaper != "sasr":
        return 0
    shaper_config: SasrConfig = config.sasr_config()
    if shaper_config.storage == "flags":
        return 0  # they are in the replay buffer, which a trial has not filled
    halfway = int(shaper_config.retention * config.steps / 2)
    if shaper_config.estimator == "exact":
        return halfway
    return min(halfway, _SOME_STATES)


def _add_evidence(trainer: Trainer, states: int) -> int:
    """Add random states to SASR's evidence, half of them as successes; returns how many it has then."""
    shaper = trainer.shaper
    if not isinstance(shaper, SASR):
        return 0
    generator = torch.Generator().manual_seed(0)
    for number, start in enumerate(range(0, states, _SOME_STATES)):
        count = min(_SOME_STATES, states - start)
        rows = torch.randn((count, shaper.width), generator=generator)
        shaper.evidence.observe(rows[None])
        shaper.evidence.add(0, OUTCOMES[number % len(OUTCOMES)], rows)
    shaper.evidence.flush(shaper.absorb)
    return int(shaper.evidence.estimator.size.sum())


def _time_limit(config: TrainConfig) -> int:
    """Steps after which an episode ends; 1,000 where no limit is known."""
    if config.max_episode_steps is not None:
        return config.max_episode_steps
    spec = resolve(config.task)
    if isinstance(spec, str):
        spec = gym.spec(spec)
    if isinstance(spec, EnvSpec) and spec.max_episode_steps:
        return spec.max_episode_steps
    return 1_000


def _seconds_of_steps(trainer: Trainer) -> tuple[float, float]:
    """Of a step without learning, and of a step with it."""
    learner = trainer.learner
    # In turns, each a step of every environment: of a rollout, and from one update to the next.
    rollout = int(getattr(learner.agent, "steps_per_rollout", 0)) // learner.envs
    cycle = -(-learner.update_every // learner.envs)
    random_step = _seconds_of_turns(trainer, _TURNS_WITHOUT_LEARNING)
    _fill_replay(trainer)

    # An agent that learns from rollouts does nothing in between: whole rollouts are measured.
    first_step = _seconds_of_turns(trainer, max(rollout + 1, cycle))
    if first_step < _SLOW:
        _seconds_of_turns(trainer, cycle)
    elif not rollout and trainer.device.type == "cpu":  # on a GPU the first turn compiles and captures
        return random_step, (first_step + _seconds_of_turns(trainer, cycle)) / 2
    if rollout:
        return random_step, _seconds_of_turns(trainer, rollout)
    # TD3's actor learns at every second update.
    return random_step, _seconds_of_turns(trainer, 2 * cycle, at_least=_TRIAL_SECONDS)


def _fill_replay(trainer: Trainer) -> None:
    """Store the newest step repeatedly until a batch can be sampled, and end the random steps."""
    learner = trainer.learner
    experience, step = learner.experience, learner.unobserved
    while isinstance(experience, Replay) and step is not None and 0 < len(experience) < learner.burn_in:
        learner.store(step._replace(slot=None))
    learner.burn_in = 0


def _seconds_of_turns(trainer: Trainer, turns: int, *, at_least: float = 0.0) -> float:
    """Mean seconds of a step, over so many turns of the loop, repeated for at least so many seconds."""
    loop, began = trainer.loop, time.monotonic()
    first = loop.steps
    while loop.steps == first or time.monotonic() - began < at_least:
        for _ in range(turns):
            loop.turn()
    return (time.monotonic() - began) / (loop.steps - first)


def _seconds_of_acting(trainer: Trainer) -> float:
    """Seconds of an action in an evaluation, where a batch has one observation of each episode."""
    obs = trainer.learner.seen(torch.from_numpy(trainer.loop.obs))[:, :1]
    obs = obs.expand(obs.shape[0], trainer.config.eval_episodes, *obs.shape[2:])
    trainer.learner.act_best(obs)
    began = time.monotonic()
    trainer.learner.act_best(obs)
    return (time.monotonic() - began) / trainer.config.eval_episodes


def _footprint(trainer: Trainer) -> Footprint:
    saved = trainer.learner.save(replay=False)
    learned = 0
    for part in saved.values():
        learned += sum(map(_bytes, part.values()))
    return Footprint(learned, _bytes_of_a_step(trainer))


def _bytes_of_a_step(trainer: Trainer) -> float:
    """Bytes of one seed's step in the replay buffer; 0 without one."""
    replay = trainer.learner.experience
    if not isinstance(replay, Replay):
        return 0.0
    return sum(map(_bytes, replay.buffers())) / (replay.members * replay.capacity)


def _smaller(config: TrainConfig, **changes: Any) -> TrainConfig:
    """Settings for one seed, a small replay buffer, few random steps, and rollouts of one minibatch."""
    agent = config.agent_config
    batch = int(getattr(agent, "batch_size", 0))
    if hasattr(agent, "burn_in"):
        agent = dataclasses.replace(agent, burn_in=min(agent.burn_in, max(batch, config.envs)))
    if hasattr(agent, "minibatches") and agent.rollout // agent.minibatches >= config.envs:
        agent = dataclasses.replace(agent, rollout=agent.rollout // agent.minibatches, minibatches=1)
    least = max(_TRIAL_CAPACITY, 2 * batch, 4 * config.envs)
    capacity = min(config.capacity, least)
    return dataclasses.replace(config, seeds=config.seeds[:1], capacity=capacity, agent_config=agent, **changes)


def _bytes(tensor: Any) -> int:
    return tensor.nbytes if isinstance(tensor, Tensor) else 0
