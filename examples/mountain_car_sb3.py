"""Reward shaping inside Stable-Baselines3 on MountainCarContinuous; needs pip install "sasr[sb3]" matplotlib.

The car is rewarded only at the top of the hill, and every push costs: plain SAC learns to stand still. The one line
that changes that is `replay_buffer_class`. Ends with the learning curves of both, and what SASR has learned about
the states.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import matplotlib
import numpy as np
import torch
import tyro
from stable_baselines3 import SAC
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from sasr import SASR, Batch
from sasr.integrations.sb3 import ShapedReplayBuffer, ShapingCallback
from sasr.shaping.beta import beta_mean

matplotlib.use("Agg")
from matplotlib import pyplot as plt

POSITION, VELOCITY = np.linspace(-1.2, 0.6, 121), np.linspace(-0.07, 0.07, 121)


def make_model(shaper: SASR | None, seed: int) -> SAC:
    """SAC on MountainCarContinuous with its return divided by 100; without a shaper, plain SAC."""
    env = gym.make("MountainCarContinuous-v0")
    env = Monitor(gym.wrappers.TransformReward(env, lambda reward: 0.01 * float(reward)))
    buffer: dict[str, Any] = {
        "replay_buffer_class": ShapedReplayBuffer,
        "replay_buffer_kwargs": {"shaper": shaper},
    }
    return SAC(
        "MlpPolicy",
        env,
        device="cpu",  # networks this small are faster there
        learning_starts=2000,
        train_freq=32,
        gradient_steps=32,
        seed=seed,
        **(buffer if shaper else {}),
    )


def learning_curve(model: SAC) -> tuple[np.ndarray, np.ndarray]:
    """Steps at which episodes ended, and the environment's return of each."""
    (monitor,) = cast(DummyVecEnv, model.get_env()).envs
    assert isinstance(monitor, Monitor)
    return np.cumsum(monitor.get_episode_lengths()), np.array(monitor.get_episode_rewards())


def success_rates(shaper: SASR) -> np.ndarray:
    """Expected success rate on a grid of velocity (rows) × position (columns)."""
    grid = np.stack(np.meshgrid(POSITION, VELOCITY), axis=-1).reshape(1, -1, 2)
    obs = torch.tensor(grid, dtype=torch.float32)
    nothing = torch.zeros(obs.shape[:2])
    counts = shaper.counts(Batch(obs, nothing[..., None], nothing, obs, nothing.bool()))
    return beta_mean(counts[..., 0], counts[..., 1]).reshape(len(VELOCITY), len(POSITION)).numpy()


def draw(curves: dict[str, tuple[np.ndarray, np.ndarray]], shaper: SASR, path: Path) -> None:
    """Learning curves on the left, the success rate map on the right."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, (ends, returns) in curves.items():
        left.plot(ends, returns, ".-", linewidth=1, label=name)
    left.axhline(0.9, color="grey", linewidth=0.8, linestyle="--")
    left.annotate("solved", (0.02, 0.9), xycoords=("axes fraction", "data"), va="bottom", color="grey")
    left.set(title="return of each episode (environment's, ÷ 100)", xlabel="steps", ylabel="return")
    left.legend()
    image = right.pcolormesh(POSITION, VELOCITY, success_rates(shaper), vmin=0, vmax=1, cmap="viridis", shading="auto")
    right.axvline(0.45, color="white", linestyle="--", linewidth=1)
    right.annotate("goal", (0.46, 0.062), color="white")
    right.set(title="success rate as SASR estimates it", xlabel="position", ylabel="velocity")
    figure.colorbar(image, ax=right, label="(N_S + 1) / (N_S + N_F + 2)")
    figure.savefig(path, dpi=120)


def main(steps: int = 16_000, seed: int = 0, preset: str = "auto", out: Path = Path("runs/sb3")) -> None:
    """Train with and without shaping, then draw.

    Args:
        steps: environment steps of each.
        seed: seed of everything.
        preset: SASR's settings: auto, paper or authors.
        out: folder for the picture.
    """
    torch.set_num_threads(2)
    models = {f"SAC + SASR ({preset})": make_model(SASR(preset), seed), "SAC": make_model(None, seed)}
    curves = {}
    for name, model in models.items():
        print(f"{name} on MountainCarContinuous-v0, {steps:,} steps")
        model.learn(steps, callback=ShapingCallback() if "SASR" in name else None, progress_bar=True)
        ends, returns = curves[name] = learning_curve(model)
        reached = np.flatnonzero(returns > 0)
        when = f"first at step {ends[reached[0]]:,}" if len(reached) else "never"
        print(f"goal reached in {len(reached)} of {len(returns)} episodes, {when}")
        print(f"mean return of the last 5 episodes: {returns[-5:].mean():.2f} (solved from 0.9)")
    out.mkdir(parents=True, exist_ok=True)
    shaped, _ = models.values()
    buffer = cast(ShapedReplayBuffer, shaped.replay_buffer)
    draw(curves, cast(SASR, buffer.shaper), out / "mountain_car.png")
    print(f"picture: {out / 'mountain_car.png'}")


if __name__ == "__main__":
    tyro.cli(main)
