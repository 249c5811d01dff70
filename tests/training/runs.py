"""A small task with short episodes and some successes, and a recorder that keeps everything."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from sasr.agents import SacConfig
from sasr.shaping.presets import preset_config
from sasr.training import TrainConfig, Trainer
from sasr.training.checkpoint import Checkpoint, newest
from sasr.training.evaluate import Evaluation
from sasr.training.loop import Episode
from sasr.training.trainer import Recorder

TINY = SacConfig(hidden=(8, 8), burn_in=30, batch_size=16)


class Line(gym.Env[Any, Any]):
    """Walk along a line to where a random goal is; a random wind blows."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1.0, 1.0, 2)
        return self._told(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 0.3 * float(action[0]) + 0.05 * self.np_random.normal()
        won = abs(self.place - self.goal) < 0.15
        return self._told(), float(won), bool(won), False, {}

    def _told(self) -> Any:
        return np.array([self.place, self.goal], np.float32)


class Forgetful(Line):
    """Line, but with a wind that no generator can bring back."""

    wind = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.goal = 100.0  # out of reach, so that every episode is as long
        return self._told(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 0.1 * float(self.wind.normal())
        return super().step(action)


class Pictures(gym.Env[Any, Any]):
    """A dot on a small image goes left or right; the right border succeeds."""

    observation_space = gym.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(2, 7))
        return self._drawn(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = max(0, self.place + 2 * int(action) - 1)
        won = self.place >= 8
        return self._drawn(), float(won), won, False, {}

    def _drawn(self) -> Any:
        image = self.np_random.integers(100, size=(36, 36), dtype=np.uint8)
        image[16:20, 4 * self.place : 4 * self.place + 4] = 255
        return image


gym.register("Pictures-v0", f"{__name__}:Pictures", max_episode_steps=25)
gym.register("Line-v0", f"{__name__}:Line", max_episode_steps=25)
gym.register("Forgetful-v0", f"{__name__}:Forgetful", max_episode_steps=25)


def config_of(**settings: Any) -> TrainConfig:
    """A run of some hundred steps, of two seeds."""
    given: dict[str, Any] = {
        "task": "Line-v0",
        "seeds": (0, 1),
        "steps": 180,
        "workers": 0,
        "device": "cpu",
        "capacity": 100,
        "eval_every": 60,
        "eval_episodes": 2,
        "log_every": 7,
        "checkpoint_minutes": 0.0,
        "agent_config": TINY,
        "agent": "sac",
    }
    return TrainConfig(**(given | settings))


def shaped(preset: str, **options: Any) -> dict[str, Any]:
    """Settings of a run with SASR, its evidence in force from the first states on."""
    config = preset_config(preset, **({"features": 40, "burn_in": 5, "retention": 0.5} | options))
    return {"shaper": "sasr", "preset": preset, "shaper_config": config}


class Ended(Trainer):
    """A trainer that remembers how its run ended."""

    state: dict[str, torch.Tensor]


class Everything(Recorder):
    """Keeps what it is told, and stops the run at some step as a signal would."""

    def __init__(self, stop_at: int | None = None, events: list[Any] | None = None) -> None:
        self.events: list[Any] = [] if events is None else events
        self.notices: list[str] = []
        self.stop_at = stop_at

    def begin(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def turned(self, steps: int) -> None:
        if self.stop_at is not None and steps >= self.stop_at:
            self.trainer.signals.received = signal.SIGTERM

    def episodes(self, steps: int, ended: Sequence[Episode]) -> None:
        self.events.append(("episodes", steps, [tuple(one) for one in ended]))

    def figures(self, steps: int, figures: Mapping[str, Any]) -> None:
        self.events.append(("figures", steps, [(name, own.tolist()) for name, own in figures.items()]))

    def evaluation(self, steps: int, result: Evaluation) -> None:
        self.events.append(("evaluation", steps, [part.tolist() for part in result]))

    def notice(self, steps: int, text: str) -> None:
        self.notices.append(text)

    def save(self) -> dict[str, Any]:
        return {"events": len(self.events)}

    def load(self, saved: Mapping[str, Any]) -> None:
        del self.events[saved["events"] :]


def checkpoint_in(folder: Path) -> Checkpoint:
    """The newest checkpoint there, which has to be one."""
    found = newest(folder)
    assert found is not None
    return found


def state_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Everything that decides how a run goes on."""
    parts: dict[str, Mapping[str, Any]] = {
        **trainer.learner.save(),
        "loop": trainer.loop.save(),
        "environments": trainer.population.save(),
    }
    return {
        f"{part}.{name}": own.cpu().clone() if isinstance(own, torch.Tensor) else torch.from_numpy(own.copy())
        for part, held in parts.items()
        for name, own in held.items()
    }


def differences(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of what is not the same bit for bit; NaNs are the same as themselves."""
    return [
        name
        for name in sorted(one.keys() | other.keys())
        if name not in one or name not in other or one[name].numpy().tobytes() != other[name].numpy().tobytes()
    ]


def run(config: TrainConfig, folder: Path | None = None, **options: Any) -> tuple[Everything, Ended]:
    """Start a run, or go on with the one in `folder`, until it ends or is stopped."""
    recorder = Everything(**options)
    trainer = Ended(config, folder=folder, recorder=recorder)
    with trainer:
        trainer.resume()
        trainer.run()
        trainer.state = state_of(trainer)  # before the environments are closed
    return recorder, trainer
