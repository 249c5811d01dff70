"""Numbers that are not finite stop a run with the step and the seeds, and never reach a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sasr.agents import SacConfig
from sasr.agents.ppo import PpoConfig
from sasr.agents.sac_discrete import SacDiscreteConfig
from sasr.agents.td3 import Td3Config
from sasr.envs.population import Population
from sasr.training import TrainConfig, Trainer
from sasr.training.base import DivergedError
from sasr.training.trainer import CHECKPOINTS

from .runs import Everything, checkpoint_in, config_of, run

SMALL: dict[str, Any] = {"hidden": (8, 8), "burn_in": 30, "batch_size": 16}
HUGE_STEPS = {
    "sac": SacConfig(critic_lr=1e30, **SMALL),
    "td3": Td3Config(critic_lr=1e30, **SMALL),
    "sac_discrete": SacDiscreteConfig(critic_lr=1e30, **SMALL),
    "ppo": PpoConfig(rollout=28, minibatches=2, epochs=2, hidden=(8, 8), lr=1e35),
}


class Poison(Everything):
    """Puts a number into the second member's row of a tensor of the agent, once."""

    def __init__(self, tensor: str, row: int, number: float) -> None:
        super().__init__()
        self.tensor, self.row, self.number = tensor, row, number

    def turned(self, steps: int) -> None:
        if steps == 100:
            self.trainer.learner.agent.state_dict()[self.tensor][self.row].view(-1)[0] = self.number


@pytest.mark.parametrize("agent", HUGE_STEPS)
@pytest.mark.parametrize("log_every", [7, 10_000])  # without a log, it is an action or the checkpoint that finds it
def test_every_agent_that_diverges_says_so(agent: Any, log_every: int, tmp_path: Path) -> None:
    task = "CartPole-v1" if agent == "sac_discrete" else "Line-v0"
    config = config_of(
        task=task, agent=agent, agent_config=HUGE_STEPS[agent], shaper="none", eval_every=0, log_every=log_every
    )
    with (
        Trainer(config, folder=tmp_path, recorder=Everything()) as trainer,
        pytest.raises(DivergedError, match=r"learning diverged at step \d+ \(seeds 0, 1\)"),
    ):
        trainer.run()


@pytest.mark.parametrize("log_every", [7, 10_000])
@pytest.mark.parametrize(
    ("tensor", "row", "number"),
    [
        ("actor.net.layers.0.weight", 1, math.nan),
        ("critic.net.layers.1.bias", 2 + 1, math.inf),  # the second critic of the second member
        ("log_alpha", 1, math.nan),
        ("critic_adam.square_0", 1, math.inf),  # moments from which nothing is learned any more
    ],
)
def test_a_population_names_who_diverged_and_its_last_good_checkpoint_stays(
    tensor: Any, row: Any, number: int, log_every: int, tmp_path: Path
) -> None:
    config = config_of(shaper="none", eval_every=0, log_every=log_every)
    run(config, tmp_path, stop_at=60)
    recorder = Poison(tensor, row, number)
    with Trainer(config, folder=tmp_path, recorder=recorder) as trainer:
        assert trainer.resume()
        with pytest.raises(DivergedError, match=r"diverged at step 1\d\d \(seed 1\)"):
            trainer.run()
    assert any("learning diverged" in text for text in recorder.notices)
    found = checkpoint_in(tmp_path / CHECKPOINTS)
    assert found.facts["steps"] == 60
    assert all(own.isfinite().all() for own in found.read("agent").values())


def test_looking_for_it_costs_nothing_between_two_lines_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(shaper="none", eval_every=0, steps=100, log_every=20)
    looks = 0
    with Trainer(config) as trainer:
        finite = trainer.learner.finite

        def counted() -> Any:
            nonlocal looks
            looks += 1
            return finite()

        monkeypatch.setattr(trainer.learner, "finite", counted)
        trainer.run()
    assert looks == 5


def test_another_error_stays_the_error_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with Trainer(config_of(shaper="none")) as trainer:
        monkeypatch.setattr(trainer.loop, "turn", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trainer.run()


def test_an_action_that_is_no_number_is_the_agents_doing() -> None:
    with Population("Pendulum-v1", seeds=[0], workers=0) as population:
        population.reset()
        with pytest.raises(ValueError, match=r"is nan .*the agent has diverged"):
            population.step(np.full((1, 1, 1), math.nan, np.float32))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"discount": math.nan}, "discount=nan"),
        ({"checkpoint_minutes": math.inf}, "checkpoint_minutes=inf"),
        ({"agent": "sac", "agent_config": SacConfig(critic_lr=math.inf)}, "agent.critic_lr=inf"),
        ({"agent": "ppo", "agent_config": PpoConfig(clip=math.inf)}, "agent.clip=inf"),
        ({"task_settings": {"g": math.inf}}, "task.g=inf"),
    ],
)
def test_settings_are_finite(settings: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is not a finite number"):
        TrainConfig(task="Pendulum-v1", **settings)
