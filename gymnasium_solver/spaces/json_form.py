"""Spaces as JSON, so that a checkpoint can be loaded without its environment's package."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Space

MOST_VALUES = 100_000_000  # in one observation; a damaged file may say anything


def space_to_json(space: Space) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Box):
        return {
            "kind": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": _bound_to_json(space.low),
            "high": _bound_to_json(space.high),
        }
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "kind": "MultiDiscrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
        }
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        parts = [[name, space_to_json(part)] for name, part in space.spaces.items()]
        return {"kind": "Dict", "parts": parts}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [space_to_json(part) for part in space.spaces]}
    raise EnvError(f"a space of type {type(space).__name__} cannot be saved: {space}.")


def space_from_json(data: dict[str, Any]) -> Space:
    kind = data["kind"]
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "Box":
        return _box_from_json(data)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
    if kind == "MultiBinary":
        shape = tuple(data["shape"])  # Gymnasium takes a number for one axis
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Dict":
        return spaces.Dict([(name, space_from_json(part)) for name, part in data["parts"]])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(part) for part in data["parts"]])
    raise EnvError(
        f"the saved space has the unknown kind {kind!r}; was it written by a newer version?"
    )


def _bound_to_json(bound: np.ndarray) -> list[float | None]:
    """JSON has no infinity, so it becomes null. A constant bound is written once."""
    flat = bound.reshape(-1)
    flat = flat[:1] if len(flat) and (flat == flat[0]).all() else flat
    return [float(x) if np.isfinite(x) else None for x in flat]


def _box_from_json(data: dict[str, Any]) -> spaces.Box:
    dtype, n = np.dtype(data["dtype"]), math.prod(data["shape"])
    if n > MOST_VALUES:
        raise EnvError(f"the saved space has shape {data['shape']}, {n:,} values: it is damaged.")

    def bound(values: list[float | None], missing: float) -> np.ndarray:
        filled = np.array([missing if x is None else x for x in values], dtype)
        return np.resize(filled, data["shape"])

    low, high = bound(data["low"], -np.inf), bound(data["high"], np.inf)
    return spaces.Box(low, high, tuple(data["shape"]), dtype.type)
