"""Reward shapers inside Stable-Baselines3: replay buffers, and rollout buffers for PPO and A2C.

Stored rewards are the environment's. The shaped reward is added to what is sampled (off-policy), or to what
the advantages are computed from (on-policy), with what the shaper knows at that moment.
"""

from sasr.integrations.sb3.callback import ShapingCallback
from sasr.integrations.sb3.replay import ShapedDictReplayBuffer, ShapedHerReplayBuffer, ShapedReplayBuffer
from sasr.integrations.sb3.rollout import ShapedDictRolloutBuffer, ShapedRolloutBuffer
from sasr.integrations.sb3.shaped import ShaperLike, make_shaper

# The names from when there was one shaper; saved models refer to them.
SASRReplayBuffer = ShapedReplayBuffer
SASRDictReplayBuffer = ShapedDictReplayBuffer
SASRRolloutBuffer = ShapedRolloutBuffer
SASRDictRolloutBuffer = ShapedDictRolloutBuffer
SASRCallback = ShapingCallback

__all__ = [
    "SASRCallback",
    "SASRDictReplayBuffer",
    "SASRDictRolloutBuffer",
    "SASRReplayBuffer",
    "SASRRolloutBuffer",
    "ShapedDictReplayBuffer",
    "ShapedDictRolloutBuffer",
    "ShapedHerReplayBuffer",
    "ShapedReplayBuffer",
    "ShapedRolloutBuffer",
    "ShaperLike",
    "ShapingCallback",
    "make_shaper",
]
