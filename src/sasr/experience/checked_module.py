"""Registered buffers that grow, and a loader that refuses a foreign state before it touches anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class CheckedModule(nn.Module):
    """A module that takes a saved state whole or not at all."""

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        """Raise a ValueError that names the first entry that does not fit; changes nothing."""
        current = self.state_dict()
        missing, unknown = sorted(current.keys() - state_dict.keys()), sorted(state_dict.keys() - current.keys())
        fix = f"make this {type(self).__name__} with the same spaces, seeds and settings as the saved one first"
        if missing or unknown:
            entries = f"missing {missing[:3]}, unknown {unknown[:3]}"
            raise ValueError(f"this state_dict is of something else: {entries}; {fix}")
        modules = {f"{path}." if path else "": module for path, module in self.named_modules()}
        growing = {prefix: module for prefix, module in modules.items() if isinstance(module, GrowingModule)}
        axes = {prefix + name: axis for prefix, module in growing.items() for name, axis in module.growing.items()}
        for key, tensor in current.items():
            if key.endswith("_extra_state"):
                continue
            expected, saved = tuple(tensor.shape), tuple(state_dict[key].shape)
            axis = axes.get(key)
            if axis is not None and len(saved) == len(expected):
                expected = (*expected[:axis], saved[axis], *expected[axis + 1 :])
            if expected != saved:
                raise ValueError(f"state_dict entry {key!r} has shape {saved}, expected {expected}; {fix}")
        for prefix, module in growing.items():
            entries_of_module = {k.removeprefix(prefix): state_dict[k] for k in current if k.startswith(prefix)}
            if reason := module.why_not(entries_of_module):
                raise ValueError(f"state_dict of {prefix[:-1] or type(module).__name__}: {reason}; {fix}")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Continue from a saved state; one that does not fit is refused before anything changes."""
        self.check_state(state_dict)
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


class GrowingModule(CheckedModule):
    """A module some of whose buffers double along one axis as data arrives; `state_dict` keeps their size."""

    def __init__(self) -> None:
        super().__init__()
        self.growing: dict[str, int] = {}

    def register_growing(self, name: str, tensor: Tensor, axis: int) -> None:
        """Register a buffer that may be longer along `axis` in a saved state than here."""
        self.register_buffer(name, tensor)
        self.growing[name] = axis

    def grow(self, name: str, needed: int) -> None:
        """Make room for `needed` entries along the buffer's axis, doubling so that appends cost O(1) on average."""
        old: Tensor = getattr(self, name)
        axis = self.growing[name]
        if needed <= old.shape[axis]:
            return
        shape = list(old.shape)
        shape[axis] = max(needed, 2 * old.shape[axis])
        new = torch.zeros(shape, dtype=old.dtype, device=old.device)
        new.narrow(axis, 0, old.shape[axis]).copy_(old)
        setattr(self, name, new)

    def why_not(self, saved: Mapping[str, Any]) -> str:
        """Why this module's own entries of a saved state can't be taken, beyond their names and shapes."""
        return ""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self.growing:
            saved, buffer = state_dict.get(prefix + name), getattr(self, name)
            if saved is not None and saved.shape != buffer.shape:
                setattr(self, name, torch.zeros(saved.shape, dtype=buffer.dtype, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
