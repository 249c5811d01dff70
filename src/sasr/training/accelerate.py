"""Speed around plain functions of tensors: compiled, or captured as CUDA graphs; what they compute stays the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from sasr.errors import unknown_name
from sasr.randomness import MemberStreams

Mode = Literal["auto", "eager", "compile", "graph"]
MODES: tuple[Mode, ...] = ("auto", "eager", "compile", "graph")
_WARM_UP = 3  # calls before a capture: libraries set themselves up, and that can't be captured

T = TypeVar("T")


def resolve(mode: Mode, device: torch.device) -> Mode:
    """The mode that runs: `auto` is graph on CUDA and eager elsewhere.

    >>> resolve("auto", torch.device("cpu"))
    'eager'
    """
    if mode not in MODES:
        raise unknown_name("way to accelerate", mode, MODES)
    if mode == "graph" and device.type != "cuda":
        raise ValueError(f"accelerate='graph' captures CUDA graphs, but the device is {device}; use auto or compile")
    if mode == "auto":
        return "graph" if device.type == "cuda" else "eager"
    return mode


def compile_parts(module: Any) -> None:
    """Compile the functions that a module lists in `compilable`; their random numbers are passed in."""
    for name in getattr(module, "compilable", ()):
        setattr(module, name, torch.compile(getattr(module, name), dynamic=False))


def generators_of(parts: Iterable[Any]) -> list[torch.Generator]:
    """The generators that modules draw from; a graph must know them, or it would draw the same numbers every time."""
    modules = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
    return [g for module in modules if isinstance(module, MemberStreams) for g in module.generators]


class Captured(Generic[T]):
    """A function of tensors, run as a CUDA graph once it is warm; one graph for each key.

    The first calls run eagerly and count like any other. Arguments are copied to where the graph reads them; what it
    returns is overwritten by the next call.
    """

    def __init__(self, function: Callable[..., T], generators: Iterable[torch.Generator] = ()) -> None:
        self.function = function
        self.generators = [g for g in generators if g.device.type == "cuda"]
        self.calls: dict[Hashable, int] = {}
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], T]] = {}
        self.pool: Any = None

    def __call__(self, key: Hashable, *inputs: Tensor, given: tuple[Any, ...] = ()) -> T:
        """`function(*given, *inputs)`; `given` is part of what the key stands for."""
        if key not in self.graphs:
            self.calls[key] = self.calls.get(key, 0) + 1
            if self.calls[key] <= _WARM_UP:
                return self._eagerly(given, tuple(own.to("cuda", non_blocking=True) for own in inputs))
            self.graphs[key] = self._capture(given, inputs)
        graph, places, result = self.graphs[key]
        for place, own in zip(places, inputs, strict=True):
            place.copy_(own, non_blocking=True)
        graph.replay()
        return result

    def forget(self) -> None:
        """Drop the graphs: tensors they read may have moved."""
        self.graphs.clear()

    def _eagerly(self, given: tuple[Any, ...], inputs: tuple[Tensor, ...]) -> T:
        side, current = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            result = self.function(*given, *inputs)
        current.wait_stream(side)
        return result

    def _capture(
        self, given: tuple[Any, ...], inputs: tuple[Tensor, ...]
    ) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], T]:
        places = tuple(torch.empty(own.shape, dtype=own.dtype, device="cuda") for own in inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self.pool):
            result = self.function(*given, *places)
        self.pool = self.pool or graph.pool()
        return graph, places, result
