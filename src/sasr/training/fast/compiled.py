"""Compiled parts and fast matrix products: speed around functions of tensors."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_args

import torch
from torch import nn

from sasr.errors import unknown_name
from sasr.randomness import MemberStreams
from sasr.settings import Precision

T = TypeVar("T")


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile has what it needs for a device."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (7, 0)
    return shutil.which("g++") is not None or shutil.which("clang++") is not None


def compile_parts(parts: Iterable[Any]) -> None:
    """Compile the functions that modules and learners list in `compilable`, in pieces where they draw numbers."""
    from torch._dynamo import config as compiler  # here, because it takes a second to import

    # Each optimiser and each function under no_grad is one more version of the same code, and torch gives up after 8.
    compiler.recompile_limit = max(64, compiler.recompile_limit)
    for part in parts:
        for module in part.modules() if isinstance(part, nn.Module) else [part]:
            for name in getattr(module, "compilable", ()):
                setattr(module, name, torch.compile(getattr(module, name), dynamic=False))
            if isinstance(module, MemberStreams):  # a compiler knows nothing of generators
                module.draw = torch.compiler.disable(module.draw)  # type: ignore[method-assign]


def products(precision: Precision, device: torch.device) -> str:
    """What torch calls a precision of float32 products; one that this processor or device lacks is a ValueError.

    >>> products("auto", torch.device("cpu")), products("auto", torch.device("cuda"))
    ('highest', 'high')
    """
    if precision not in get_args(Precision):
        raise unknown_name("precision", precision, get_args(Precision))
    if precision == "auto":
        return "high" if device.type == "cuda" else "highest"
    if device.type != "cpu":
        raise ValueError(f"precision='bf16' is for CPUs, but the device is {device}; use auto, or device='cpu'")
    if not has_bf16():
        raise ValueError(
            "precision='bf16' needs a processor with avx512_bf16 or amx_bf16, which this one lacks; use auto"
        )
    return "medium"


def has_bf16() -> bool:
    """Whether this processor multiplies in bfloat16, and PyTorch was built to let it."""
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return native and torch.backends.mkldnn.is_available()


def use_fast_products(agent: Any, precision: str) -> None:
    """Let the agent's networks learn with matrix products of a precision; nothing else may lose digits.

    Inputs and results stay float32, and sums are made in float32.
    """
    if precision != "highest":
        for name in ("bootstrap", "learn", "estimate"):
            if hasattr(agent, name):
                setattr(agent, name, _with_fast_products(getattr(agent, name), precision))


def _with_fast_products(function: Callable[..., T], precision: str) -> Callable[..., T]:
    @functools.wraps(function)
    def fast(*inputs: Any) -> T:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            return function(*inputs)
        finally:
            torch.set_float32_matmul_precision(before)

    return fast
