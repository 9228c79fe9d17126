"""The run's observation wrappers in torch, for an exported policy.

`envs/treatment.py` says which wrappers an agent applies itself: those that map each observation
alone. Each has its map here; a wrapper without one (of a plugin) cannot be exported.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.envs.treatment import Treatment, applied_layers
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers.encode import (
    DiscreteEncoder,
    ObservationClip,
    ObservationMap,
    ObservationParts,
    ObservationRescale,
    ObservationScale,
)
from gymnasium_solver.envs.wrappers.restrict_actions import ValidActions
from gymnasium_solver.errors import RunError
from gymnasium_solver.spaces.observations import Space, part_spaces

Parts = dict[str, Tensor]


class Affine(nn.Module):
    """clip(x * scale + shift), in float32 as the NumPy wrapper computes it."""

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: np.ndarray, shift: np.ndarray, low: float | None, high: float | None):
        super().__init__()
        self.register_buffer("scale", torch.from_numpy(np.asarray(scale, np.float32).copy()))
        self.register_buffer("shift", torch.from_numpy(np.asarray(shift, np.float32).copy()))
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        y = x.float() * self.scale + self.shift
        return y if self.low is None else y.clamp(self.low, self.high)


class Clip(nn.Module):
    low: Tensor
    high: Tensor

    def __init__(self, low: np.ndarray, high: np.ndarray):
        super().__init__()
        self.register_buffer("low", torch.from_numpy(np.asarray(low).copy()))
        self.register_buffer("high", torch.from_numpy(np.asarray(high).copy()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, self.low), self.high)


class Lookup(nn.Module):
    """Row `x - start` of a table."""

    table: Tensor

    def __init__(self, table: np.ndarray, start: int):
        super().__init__()
        self.register_buffer("table", torch.from_numpy(table.astype(np.float32)))
        self.start = start

    def forward(self, x: Tensor) -> Tensor:
        return self.table[x.long() - self.start if self.start else x.long()]


class MapParts(nn.Module):
    """A map for some parts of an observation; {"": ...} of a plain one."""

    def __init__(self, maps: dict[str, nn.Module]):
        super().__init__()
        self.names = list(maps)
        self.maps = nn.ModuleList(maps.values())

    def forward(self, parts: Parts) -> Parts:
        mapped = zip(self.names, self.maps, strict=True)
        return parts | {name: function(parts[name]) for name, function in mapped}


class KeepParts(nn.Module):
    def __init__(self, names: list[str], is_plain: bool):
        super().__init__()
        self.names, self.is_plain = names, is_plain

    def forward(self, parts: Parts) -> Parts:
        if self.is_plain:
            return {"": parts[self.names[0]]}
        return {name: parts[name] for name in self.names}


def observation_maps(treatment: Treatment, action_space: Space) -> nn.Sequential:
    """The wrappers of a run as modules on observations in parts, innermost first."""
    layers = applied_layers(treatment, action_space)
    maps = [_module(layer) for layer in layers if not isinstance(layer, ValidActions)]
    return nn.Sequential(*maps)


def legal_actions(treatment: Treatment, action_space: Space) -> np.ndarray | None:
    """bool[A]: the actions that the run allows, where its config restricts them."""
    layers = applied_layers(treatment, action_space)
    masks = [layer.legal for layer in layers if isinstance(layer, ValidActions)]
    return np.logical_and.reduce(masks) if masks else None


def _module(layer: VectorWrapper) -> nn.Module:
    if isinstance(layer, ObservationParts):
        names = layer.names
        return KeepParts(names, len(names) == 1)
    build = _BUILDERS.get(type(layer))
    if build is None or not isinstance(layer, ObservationMap):
        raise RunError(
            f"the wrapper {type(layer).__name__} of this run cannot be exported. Wrappers with an "
            f"exported form: {', '.join(kind.__name__ for kind in _BUILDERS)}, ObservationParts."
        )
    parts = part_spaces(layer.env.observation_space)
    return MapParts({name: build(layer, parts[name]) for name in layer.mapped_parts})


def _scale(layer: ObservationScale, space: spaces.Box) -> Affine:
    return Affine(*layer.coefficients(space), None, None)


def _rescale(layer: ObservationRescale, space: spaces.Box) -> Affine:
    return Affine(*layer.coefficients(space), float(layer.low), float(layer.high))


def _clip(layer: ObservationClip, space: spaces.Box) -> Clip:
    return Clip(*layer.limits(space))


def _lookup(layer: DiscreteEncoder, space: spaces.Discrete) -> Lookup:
    return Lookup(layer.table(space), int(space.start))


_BUILDERS: dict[type, Callable[[Any, Any], nn.Module]] = {
    DiscreteEncoder: _lookup,
    ObservationScale: _scale,
    ObservationRescale: _rescale,
    ObservationClip: _clip,
}
