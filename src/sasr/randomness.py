"""Random streams that belong to a seed of a population, one for each purpose."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn


def stream_seed(seed: int, purpose: str) -> int:
    """Seed of the stream that `seed` has for `purpose`; other seeds and purposes are independent of it.

    >>> stream_seed(0, "beta") == stream_seed(0, "beta") != stream_seed(1, "beta")
    True
    """
    entropy = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
    return int(entropy.generate_state(1, np.uint64)[0] >> np.uint64(1))


class MemberStreams(nn.Module):
    """The generators of P seeds for one purpose; their states travel in the `state_dict`.

    On a CPU each seed has a generator of its own, so a seed draws the same numbers alone and in a population.
    On an accelerator one generator serves all seeds: P small kernels for each draw would cost more than the update.
    """

    def __init__(self, seeds: Sequence[int], purpose: str, device: torch.device) -> None:
        super().__init__()
        self.members = len(seeds)
        stream_seeds = [stream_seed(seed, purpose) for seed in seeds]
        if device.type != "cpu":
            stream_seeds = [stream_seed(zlib.crc32(repr(stream_seeds).encode()), purpose)]
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in stream_seeds]

    def member(self, index: int) -> torch.Generator:
        """The generator that seed `index` draws from."""
        return self.generators[index % len(self.generators)]

    def draw(self, sampler: Callable[[Tensor, torch.Generator], Tensor], parameter: Tensor) -> Tensor:
        """Apply `sampler(parameter, generator)` to a (P, …) tensor, each seed with its own stream."""
        if len(self.generators) == 1:
            return sampler(parameter, self.generators[0])
        return torch.stack([sampler(rows, g) for rows, g in zip(parameter, self.generators, strict=True)])

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers of the shape of a (P, …) tensor, on its device."""
        return self.draw(lambda row, g: torch.randn(row.shape, generator=g, device=row.device), like)

    def uniform(self, like: Tensor) -> Tensor:
        """Uniform numbers in [0, 1) of the shape and type of a (P, …) tensor, on its device."""
        return self.draw(lambda row, g: torch.rand(row.shape, generator=g, device=row.device, dtype=row.dtype), like)

    def get_extra_state(self) -> Tensor:
        """Generator states, (G, bytes) uint8: a tensor, so that a checkpoint needs no pickle."""
        return torch.stack([g.get_state().cpu() for g in self.generators])

    def set_extra_state(self, state: Any) -> None:
        """Continue where the saved streams stood."""
        saved = cast(Tensor, state).cpu()
        if saved.shape == self.get_extra_state().shape:
            for generator, position in zip(self.generators, saved, strict=True):
                generator.set_state(position.clone())  # torch reads a view from the start of its storage, and crashes
            return
        # A state saved on another kind of device can't be continued there; start a stream that depends on it instead.
        for index, generator in enumerate(self.generators):
            generator.manual_seed(stream_seed(zlib.crc32(saved.numpy().tobytes()), str(index)))

    def __getstate__(self) -> dict[str, Any]:
        # Generators on CUDA can't be pickled or deep-copied; their states can.
        kept = self.__dict__.copy()
        generators = kept.pop("generators")
        return kept | {"_saved": [(g.device, g.get_state()) for g in generators]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.generators = [torch.Generator(device) for device, _ in saved]
        for generator, (_, position) in zip(self.generators, saved, strict=True):
            generator.set_state(position)
