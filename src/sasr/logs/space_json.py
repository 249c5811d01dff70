"""Observation and action spaces as plain data, so that a run's policy needs no environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """What a space is, in a form that `space_from_json` reads.

    >>> space_to_json(spaces.Box(-1.0, np.inf, (3,)))
    {'kind': 'Box', 'shape': [3], 'dtype': 'float32', 'low': -1.0, 'high': 'inf'}
    """
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"kind": "Box", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    raise TypeError(f"a run can't describe the space {space}; use Box, Discrete, MultiDiscrete or MultiBinary")


def space_from_json(data: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that plain data describes.

    >>> space_from_json({"kind": "Discrete", "n": 4, "start": 0})
    Discrete(4)
    """
    kind = data.get("kind")
    if kind == "Box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_bound_from_json(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(data["nvec"], start=data["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    raise ValueError(f"space {data!r} is of no kind that this version of sasr knows; it was written by another one")


def _bound_to_json(bound: NDArray[Any]) -> Any:
    """One number where all are the same: an image has thousands; infinities as words, which JSON lacks."""
    flat = [value if np.isfinite(value) else str(value) for value in bound.ravel().tolist()]
    return flat[0] if len(set(flat)) == 1 else flat


def _bound_from_json(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    flat = np.array(value if isinstance(value, list) else [value], np.float64).astype(dtype)
    return np.broadcast_to(flat, shape) if flat.size == 1 else flat.reshape(shape)
