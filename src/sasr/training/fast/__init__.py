"""Speed around the training step: compiled parts and CUDA graphs. What is computed stays the same."""

from __future__ import annotations

from typing import Any, get_args

import torch

from sasr.errors import unknown_name
from sasr.settings import Mode, Precision
from sasr.training.base import Learner
from sasr.training.fast.captured import capture
from sasr.training.fast.compiled import can_compile, compile_parts, products, use_fast_products
from sasr.training.fast.graphs import Captured

__all__ = ["can_compile", "compile_parts", "resolve", "speed_up"]


def resolve(mode: Mode, device: torch.device) -> Mode:
    """The mode that runs: `auto` is graph on CUDA and eager elsewhere.

    >>> resolve("auto", torch.device("cpu"))
    'eager'
    """
    if mode not in get_args(Mode):
        raise unknown_name("way to accelerate", mode, get_args(Mode))
    if mode == "graph" and device.type != "cuda":
        raise ValueError(f"accelerate='graph' captures CUDA graphs, but the device is {device}; use auto or compile")
    if mode != "auto":
        return mode
    return "graph" if device.type == "cuda" else "eager"


def speed_up(learner: Learner, mode: Mode = "auto", precision: Precision = "auto") -> dict[str, Captured[Any]]:
    """Replace methods of a new learner by faster ones; the graphs that were put around them, by what they do."""
    mode = resolve(mode, learner.device)
    use_fast_products(learner.agent, products(precision, learner.device))
    if mode == "compile" or (mode == "graph" and can_compile(learner.device)):
        compile_parts([learner, learner.agent, learner.experience, learner.shaper])
    return capture(learner) if mode == "graph" else {}
