"""Speed around plain functions of tensors: compiled, or captured as CUDA graphs; what they compute stays the same."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, get_args

import torch
from torch import Tensor, nn

from sasr.errors import unknown_name
from sasr.randomness import MemberStreams
from sasr.settings import Mode
from sasr.shaping.base import Shaper

_WARM_UP = 3  # calls before a capture: libraries set themselves up, and that can't be captured

T = TypeVar("T")
U = TypeVar("U")


def resolve(mode: Mode, device: torch.device) -> Mode:
    """The mode that runs: `auto` is graph on CUDA and eager elsewhere.

    >>> resolve("auto", torch.device("cpu"))
    'eager'
    """
    if mode not in get_args(Mode):
        raise unknown_name("way to accelerate", mode, get_args(Mode))
    if mode == "graph" and device.type != "cuda":
        raise ValueError(f"accelerate='graph' captures CUDA graphs, but the device is {device}; use auto or compile")
    if mode == "auto":
        return "graph" if device.type == "cuda" else "eager"
    return mode


def compile_parts(parts: Iterable[Any]) -> None:
    """Compile the functions that modules list in `compilable`; their random numbers are passed in."""
    from torch._dynamo import config as compiler  # here, because it takes a second to import

    # Each optimiser and each function under no_grad is one more version of the same code, and torch gives up after 8.
    compiler.recompile_limit = max(64, compiler.recompile_limit)
    for module in _modules(parts):
        for name in getattr(module, "compilable", ()):
            setattr(module, name, torch.compile(getattr(module, name), dynamic=False))


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile has what it needs for a device."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (7, 0)
    return shutil.which("g++") is not None or shutil.which("clang++") is not None


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Matrix products of the networks in TF32 on an accelerator; nothing else here may lose digits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def generators_of(parts: Iterable[Any]) -> list[torch.Generator]:
    """The generators that modules draw from; a graph must know them, or it would draw the same numbers every time."""
    return [g for module in _modules(parts) if isinstance(module, MemberStreams) for g in module.generators]


def _modules(parts: Iterable[Any]) -> list[nn.Module]:
    return [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]


class Captured(Generic[T]):
    """A function of tensors, run as a CUDA graph once it is warm; one graph for each key.

    The first calls run eagerly and count like any other. Arguments come from the CPU and cross in one copy to where the
    graph reads them; what it returns is overwritten by the next call.
    """

    def __init__(self, function: Callable[..., T], generators: Iterable[torch.Generator] = ()) -> None:
        self.function = function
        self.generators = [g for g in generators if g.device.type == "cuda"]
        self.calls: dict[Hashable, int] = {}
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Crossing, T]] = {}
        self.pool: Any = None

    def __call__(self, key: Hashable, *inputs: Tensor, given: tuple[Any, ...] = ()) -> T:
        """`function(*given, *inputs)`; `given` is part of what the key stands for."""
        if key not in self.graphs:
            self.calls[key] = self.calls.get(key, 0) + 1
            if self.calls[key] <= _WARM_UP:
                return self._eagerly(given, tuple(own.to("cuda") for own in inputs))
            self.graphs[key] = self._capture(given, inputs)
        graph, crossing, result = self.graphs[key]
        crossing.send(inputs)
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

    def _capture(self, given: tuple[Any, ...], inputs: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, Crossing, T]:
        crossing = Crossing(inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self.pool):
            result = self._call(given, crossing.arrived)
        self.pool = self.pool or graph.pool()
        return graph, crossing, result

    def _call(self, given: tuple[Any, ...], inputs: tuple[Tensor, ...]) -> T:
        return self.function(*given, *inputs)


class Fetched(Captured[tuple[Tensor, ...]]):
    """A captured function whose results are wanted on the CPU: its graph takes them there, into pinned memory."""

    def __call__(self, key: Hashable, *inputs: Tensor, given: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """`function(*given, *inputs)`, once it is there."""
        result = super().__call__(key, *inputs, given=given)
        if key not in self.graphs:
            self.landing = tuple(torch.empty(own.shape, dtype=own.dtype, pin_memory=True) for own in result)
            return tuple(own.cpu() for own in result)
        torch.cuda.current_stream().synchronize()
        return tuple(own.clone() for own in result)  # the next call lands in the same place

    def _call(self, given: tuple[Any, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        result, landing = super()._call(given, inputs), self.landing
        return tuple(place.copy_(own, non_blocking=True) for place, own in zip(landing, result, strict=True))


def side_by_side(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """What two functions return that need nothing of each other; in a captured graph they run at the same time."""
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return first(), second()
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
    side.wait_stream(current)
    with torch.cuda.stream(side):
        one = first()
    two = second()
    current.wait_stream(side)
    return one, two


def capture_absorb(shaper: Shaper) -> Captured[None]:
    """Put the tensor work that a shaper does for each step into a CUDA graph."""
    captured = Captured(shaper.absorb, generators_of([shaper]))
    shaper.absorb = functools.partial(captured, "absorb")  # type: ignore[method-assign]
    return captured


class Crossing:
    """Several small tensors that go from the CPU to the device side by side, in one copy from pinned memory."""

    def __init__(self, like: tuple[Tensor, ...]) -> None:
        starts, size = [], 0
        for own in like:
            starts.append(size)
            size += -(-own.nbytes // 16) * 16  # aligned for every type
        self.staged = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.device = torch.empty(size, dtype=torch.uint8, device="cuda")
        spans = [slice(start, start + own.nbytes) for start, own in zip(starts, like, strict=True)]
        self.leaving = [
            self.staged[span].view(own.dtype).view(own.shape).numpy() for span, own in zip(spans, like, strict=True)
        ]
        self.arrived = tuple(
            self.device[span].view(own.dtype).view(own.shape) for span, own in zip(spans, like, strict=True)
        )
        self.left = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def send(self, inputs: tuple[Tensor, ...]) -> None:
        """Put these in the place of what was sent before."""
        if not inputs:
            return
        self.left.synchronize()  # the copy before may still be reading what is staged
        for place, own in zip(self.leaving, inputs, strict=True):
            place[...] = own.numpy()
        self.device.copy_(self.staged, non_blocking=True)
        self.left.record()
