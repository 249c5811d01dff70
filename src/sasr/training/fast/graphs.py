"""CUDA graphs around functions of tensors: what they compute stays the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from sasr.randomness import MemberStreams

_WARM_UP = 3  # calls before a capture: libraries set themselves up, and that can't be captured

T = TypeVar("T")


def generators_of(parts: Iterable[Any]) -> list[torch.Generator]:
    """The generators that modules draw from; a graph must know them, or it would draw the same numbers every time."""
    modules = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
    return [g for module in modules if isinstance(module, MemberStreams) for g in module.generators]


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
                return self._eagerly(given, tuple(tensor.to("cuda") for tensor in inputs))
            self.graphs[key] = self._capture(given, inputs)
        graph, crossing, result = self.graphs[key]
        crossing.send(inputs)
        graph.replay()
        return result

    def forget(self) -> None:
        """Drop the graphs: tensors they read may have moved."""
        self.graphs.clear()

    def _eagerly(self, given: tuple[Any, ...], inputs: tuple[Tensor, ...]) -> T:
        side, current = torch.cuda.Stream(), torch.cuda.current_stream()
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
            self.landing = tuple(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in result)
            return tuple(tensor.cpu() for tensor in result)
        torch.cuda.current_stream().synchronize()
        return tuple(tensor.clone() for tensor in result)  # the next call lands in the same place

    def _call(self, given: tuple[Any, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        result, landing = super()._call(given, inputs), self.landing
        return tuple(place.copy_(tensor, non_blocking=True) for place, tensor in zip(landing, result, strict=True))


class Crossing:
    """Several small tensors that go from the CPU to the device side by side, in one copy from pinned memory."""

    def __init__(self, like: tuple[Tensor, ...]) -> None:
        spans, size = [], 0
        for tensor in like:
            spans.append(slice(size, size + tensor.nbytes))
            size += -(-tensor.nbytes // 16) * 16  # aligned for every type
        self.staged = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.device = torch.empty(size, dtype=torch.uint8, device="cuda")
        leaving, arrived = [], []
        for span, tensor in zip(spans, like, strict=True):
            leaving.append(self.staged[span].view(tensor.dtype).view(tensor.shape).numpy())
            arrived.append(self.device[span].view(tensor.dtype).view(tensor.shape))
        self.leaving, self.arrived = leaving, tuple(arrived)
        self.left = torch.cuda.Event()

    def send(self, inputs: tuple[Tensor, ...]) -> None:
        """Put these in the place of what was sent before."""
        if not inputs:
            return
        self.left.synchronize()  # the copy before may still be reading what is staged
        for place, tensor in zip(self.leaving, inputs, strict=True):
            place[...] = tensor.numpy()
        self.device.copy_(self.staged, non_blocking=True)
        self.left.record()


class SideStream:
    """Lets one function run beside another in a captured graph: neither needs what the other computes."""

    def __init__(self) -> None:
        self.stream: torch.cuda.Stream | None = None

    def begin(self, function: Callable[..., T]) -> Callable[..., T]:
        """The function, run on a stream of its own; its result may be used after what `join` wraps was called."""

        def begun(*inputs: Any) -> T:
            if not torch.cuda.is_current_stream_capturing():
                return function(*inputs)
            self.stream = torch.cuda.Stream()
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                return function(*inputs)

        return begun

    def join(self, function: Callable[..., T]) -> Callable[..., T]:
        """The function; what comes after it waits for what was begun before."""

        def joined(*inputs: Any) -> T:
            result = function(*inputs)
            if self.stream is not None:
                torch.cuda.current_stream().wait_stream(self.stream)
                self.stream = None
            return result

        return joined
