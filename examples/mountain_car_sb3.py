"""SASR inside Stable-Baselines3 on MountainCarContinuous; needs pip install "sasr[sb3]" matplotlib.

The car is paid only at the top of the hill, and every push costs: plain SAC learns to stand still. The one line that
changes that is `replay_buffer_class`. Ends with a picture of what SASR has learned about the state space.
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
from sasr.integrations.sb3 import SASRCallback, SASRReplayBuffer
from sasr.shaping.beta import beta_mean

matplotlib.use("Agg")
from matplotlib import pyplot as plt

POSITION, VELOCITY = np.linspace(-1.2, 0.6, 121), np.linspace(-0.07, 0.07, 121)


def make_model(shaper: SASR | None, seed: int) -> SAC:
    """SAC on MountainCarContinuous with its return divided by 100; without a shaper, plain SAC."""
    env = gym.make("MountainCarContinuous-v0")
    env = Monitor(gym.wrappers.TransformReward(env, lambda reward: 0.01 * float(reward)))
    buffer: dict[str, Any] = {
        "replay_buffer_class": SASRReplayBuffer,
        "replay_buffer_kwargs": {"shaper": shaper, "seed": seed},
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


def success_rates(shaper: SASR) -> np.ndarray:
    """Expected success rate on a grid of velocity (rows) × position (columns)."""
    grid = np.stack(np.meshgrid(POSITION, VELOCITY), axis=-1).reshape(1, -1, 2)
    obs = torch.tensor(grid, dtype=torch.float32)
    nothing = torch.zeros(obs.shape[:2])
    counts = shaper.counts(Batch(obs, nothing[..., None], nothing, obs, nothing.bool()))
    return beta_mean(counts[..., 0], counts[..., 1]).reshape(len(VELOCITY), len(POSITION)).numpy()


def draw(shaper: SASR, ends: np.ndarray, returns: np.ndarray, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    left.plot(ends, returns, ".-", color="tab:blue", linewidth=1)
    left.axhline(0.9, color="grey", linewidth=0.8, linestyle="--")
    left.annotate("solved", (0.02, 0.9), xycoords=("axes fraction", "data"), va="bottom", color="grey")
    left.set(title="return of each episode (environment's, ÷ 100)", xlabel="steps", ylabel="return")
    image = right.pcolormesh(POSITION, VELOCITY, success_rates(shaper), vmin=0, vmax=1, cmap="viridis", shading="auto")
    right.axvline(0.45, color="white", linestyle="--", linewidth=1)
    right.annotate("goal", (0.46, 0.062), color="white")
    right.set(title="success rate as SASR sees it", xlabel="position", ylabel="velocity")
    figure.colorbar(image, ax=right, label="(N_S + 1) / (N_S + N_F + 2)")
    figure.savefig(path, dpi=120)


def main(steps: int = 16_000, seed: int = 0, preset: str = "auto", out: Path = Path("runs/demo")) -> None:
    """Train, then draw.

    Args:
        steps: environment steps.
        seed: seed of everything.
        preset: SASR's settings: auto, paper or authors.
        out: folder for the picture.
    """
    torch.set_num_threads(2)
    shaper = SASR(preset)
    model = make_model(shaper, seed)
    print(f"SAC with SASR ({preset}) on MountainCarContinuous-v0, {steps:,} steps")
    model.learn(steps, callback=SASRCallback(), progress_bar=True)
    (monitor,) = cast(DummyVecEnv, model.get_env()).envs
    assert isinstance(monitor, Monitor)
    returns, lengths = np.array(monitor.get_episode_rewards()), np.array(monitor.get_episode_lengths())
    out.mkdir(parents=True, exist_ok=True)
    path = out / "success_rate_map.png"
    draw(shaper, lengths.cumsum(), returns, path)
    reached = np.flatnonzero(returns > 0)
    when = f"first at step {lengths.cumsum()[reached[0]]:,}" if len(reached) else "never"
    print(f"goal reached in {len(reached)} of {len(returns)} episodes, {when}")
    print(f"mean return of the last 5 episodes: {returns[-5:].mean():.2f} (solved from 0.9)")
    print(f"picture: {path}")


if __name__ == "__main__":
    tyro.cli(main)
