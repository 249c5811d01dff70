"""Compiled parts and fast matrix products: speed around functions of tensors."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import nn

T = TypeVar("T")


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile has what it needs for a device."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (7, 0)
    return shutil.which("g++") is not None or shutil.which("clang++") is not None


def compile_parts(parts: Iterable[Any]) -> None:
    """Compile the functions that modules list in `compilable`; their random numbers are passed in."""
    from torch._dynamo import config as compiler  # here, because it takes a second to import

    # Each optimiser and each function under no_grad is one more version of the same code, and torch gives up after 8.
    compiler.recompile_limit = max(64, compiler.recompile_limit)
    for part in parts:
        if isinstance(part, nn.Module):
            for module in part.modules():
                for name in getattr(module, "compilable", ()):
                    setattr(module, name, torch.compile(getattr(module, name), dynamic=False))


def use_fast_products(agent: Any, device: torch.device) -> None:
    """Let the agent's networks learn with matrix products in TF32, on CUDA; nothing else may lose digits."""
    if device.type == "cuda":
        for name in ("bootstrap", "learn", "estimate"):
            if hasattr(agent, name):
                setattr(agent, name, _with_fast_products(getattr(agent, name)))


def _with_fast_products(function: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(function)
    def fast(*inputs: Any) -> T:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return function(*inputs)
        finally:
            torch.set_float32_matmul_precision(before)

    return fast
