"""What shapers do to hindsight replay: Stable-Baselines3's own test, in which DQN flips ten bits, on several seeds.

python -m benchmarks.hindsight   writes benchmarks/results/hindsight.json
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from benchmarks.machine import save
from sasr.integrations.sb3 import ShapedHerReplayBuffer

SHAPERS = ('"sasr"', '{"reward_min": -1, "reward_max": 0, "reward_weight": 1}', '{"preset": "paper"}', '"rnd"')
ENVIRONMENTS = 2
PLAIN = "Stable-Baselines3's own buffer"


def successes(shaper: Any, *, seed: int, steps: int) -> float:
    """Share of successes among the last 50 episodes; without a shaper, of the plain buffer."""
    options: dict[str, Any] = {"n_sampled_goal": 5, "goal_selection_strategy": "future"}
    buffer: type[HerReplayBuffer] = HerReplayBuffer
    if shaper is not None:
        buffer, options["shaper"] = ShapedHerReplayBuffer, shaper
    model = DQN(
        "MultiInputPolicy",
        make_vec_env(lambda: BitFlippingEnv(n_bits=10, continuous=False), ENVIRONMENTS),
        replay_buffer_class=buffer,
        replay_buffer_kwargs=options,
        learning_rate=2e-3,
        train_freq=1,
        gradient_steps=ENVIRONMENTS,
        learning_starts=20,
        exploration_final_eps=0.02,
        target_update_interval=100,
        seed=seed,
        batch_size=32,
        buffer_size=100_000,
        stats_window_size=50,
        device="cpu",
    )
    model.learn(total_timesteps=steps)
    assert model.ep_success_buffer is not None
    return float(np.mean(model.ep_success_buffer))


def main(shapers: tuple[str, ...] = SHAPERS, seeds: int = 3, steps: int = 1500) -> None:
    """Print a table and store it.

    Args:
        shapers: What `replay_buffer_kwargs={"shaper": …}` gets, as JSON.
        seeds: Seeds 0, 1, … of each.
        steps: Environment steps; the test has 1,500.
    """
    torch.set_num_threads(1)
    rows = []
    columns = ("shaper", *(f"seed {seed}" for seed in range(seeds)))
    table = Table(*columns, title=f"Successes among the last 50 episodes of {steps:,} steps")
    for text in ("null", *shapers):
        shares = [successes(json.loads(text), seed=seed, steps=steps) for seed in range(seeds)]
        name = PLAIN if text == "null" else f"`{text}`"
        rows.append({"shaper": name, "successes": shares})
        table.add_row(name, *(f"{share:.2f}" for share in shares))
    Console().print(table)
    print(save("hindsight", {"steps": steps, "rows": rows}))


if __name__ == "__main__":
    tyro.cli(main)
