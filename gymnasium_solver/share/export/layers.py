"""A small policy as a list of plain layers in NumPy, for the C header.

    program = flat_layers(policy)       # RunError if it is not a small MLP
    program.inputs, program.trunk, program.streams

The observation is one vector: the parts of a Dict side by side, in the order of the space.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from gymnasium_solver.errors import RunError
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.nets.mlp import ACTIVATIONS
from gymnasium_solver.nets.q_network import NoisyLinear, QNetwork
from gymnasium_solver.nets.renorm import EPSILON, BatchRenorm
from gymnasium_solver.share.export.deployed import Deployed
from gymnasium_solver.share.export.wrappers import Affine, Clip, KeepParts, Lookup, MapParts
from gymnasium_solver.spaces.actions import BoxActions
from gymnasium_solver.spaces.observations import part_spaces, unit_scale

MOST_WEIGHTS = 300_000
"""About 4 MB of source text; a larger network is not what a header is for."""


@dataclass(frozen=True)
class Dense:
    weight: np.ndarray  # [n_out, n_in]
    bias: np.ndarray


@dataclass(frozen=True)
class Scaled:
    """x * scale + shift, element by element, then clipped."""

    scale: np.ndarray
    shift: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclass(frozen=True)
class Shifted:
    """(x - shift) * scale, clipped to +-clip: the order of the normaliser."""

    shift: np.ndarray
    scale: np.ndarray
    clip: float


@dataclass(frozen=True)
class Norm:
    """Layer normalisation."""

    weight: np.ndarray
    bias: np.ndarray
    eps: float


@dataclass(frozen=True)
class Activation:
    name: str
    width: int


@dataclass(frozen=True)
class Table:
    """Element 0 is a number that selects a row."""

    table: np.ndarray
    start: int


@dataclass(frozen=True)
class OneHot:
    """Columns of x compared with values."""

    columns: np.ndarray
    values: np.ndarray


Layer = Dense | Scaled | Shifted | Norm | Activation | Table | OneHot


@dataclass
class Part:
    """One part of the observation: where it lies in the input vector, and its own layers."""

    name: str
    start: int
    width: int
    layers: list[Layer] = field(default_factory=list)
    is_number: bool = True
    """Numbers pass the normaliser; one-hot parts do not, and stand after them."""


@dataclass
class Program:
    parts: list[Part]
    n_inputs: int
    trunk: list[Layer]
    """Between the joined parts (numbers first) and the streams."""
    advantage: list[Layer]
    value: list[Layer] | None
    """Of a dueling network."""
    n_atoms: int
    support: np.ndarray
    squash: bool
    """Whether tanh is applied to the outputs."""
    n_outputs: int
    normalizer: Shifted | None


def flat_layers(policy: Deployed) -> Program:
    net: Any = policy.net
    encoder: ObsEncoder = net.encoder
    if not encoder.is_vector:
        raise _refused("its observations are images or indices of a large table")
    if policy.has_memory:
        raise _refused("it has a recurrent core")
    parts, n_inputs = _parts(policy, encoder)
    program = Program(parts, n_inputs, [], [], None, 1, np.zeros(1), False, 0, None)
    mode = encoder.normalizer
    if mode.mode and any(part.is_number for part in parts):
        program.normalizer = Shifted(_array(mode.shift), _array(mode.scale), float(mode.clip))
    if isinstance(net, ActorCritic):
        _check_plain(net.actor_features)
        if not isinstance(net.actor_torso, nn.Sequential):
            raise _refused("it has output layers by task")
        program.trunk = _layers(net.actor_torso)
        program.advantage = _layers([net.actor_head])
    elif isinstance(net, QNetwork):
        _check_plain(net.q.features)
        program.trunk = _layers(net.q.torso)
        program.advantage = _layers(net.q.advantage)
        program.value = None if net.q.value is None else _layers(net.q.value)
        program.n_atoms, program.support = net.q.n_atoms, _array(net.support)
    elif isinstance(net, ActorCritics):
        _check_plain(net.actor.features)
        program.advantage = _layers(net.actor.layers)
        program.squash = isinstance(policy.kind, BoxActions)
    else:
        raise _refused(f"its network is a {type(net).__name__}")
    program.n_outputs = policy.kind.n_outputs
    layers = (*program.trunk, *program.advantage, *(program.value or ()))
    n_weights = sum(layer.weight.size for layer in layers if isinstance(layer, Dense))
    if n_weights > MOST_WEIGHTS:
        raise _refused(f"it has {n_weights:,} weights, and C is limited to {MOST_WEIGHTS:,}")
    return program


def _check_plain(features: Any) -> None:
    if features.torso is not None:
        raise _refused("its network comes from a plugin")
    if len(features.own_layers):
        raise _refused("parts of the observation have layers of their own")


def _refused(why: str) -> RunError:
    return RunError(
        f"--format c writes small MLPs; this policy cannot be one: {why}. Use --format onnx."
    )


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float32)


# -- layers -----------------------------------------------------------------------------------


def _layers(modules: Iterable[nn.Module]) -> list[Layer]:
    found: list[Layer] = []
    width = 0
    for module in modules:
        layer = _layer(module, width)
        if isinstance(layer, Dense):
            width = len(layer.bias)
        if layer is not None:
            found.append(layer)
    return found


def _layer(module: nn.Module, width: int) -> Layer | None:
    if isinstance(module, nn.Linear | NoisyLinear):
        return Dense(_array(module.weight), _array(module.bias))
    if isinstance(module, nn.LayerNorm):
        return Norm(_array(module.weight), _array(module.bias), module.eps)
    if isinstance(module, BatchRenorm):
        scale = (module.running_var + EPSILON).rsqrt() * module.weight
        shift = module.bias - module.running_mean * scale
        return Scaled(_array(scale).reshape(-1), _array(shift).reshape(-1))
    if isinstance(module, nn.Identity):
        return None
    for name, kind in ACTIVATIONS.items():
        if type(module) is kind:
            return Activation(name, width)
    raise _refused(f"it has a layer {type(module).__name__}")


# -- observations -----------------------------------------------------------------------------


def _parts(policy: Deployed, encoder: ObsEncoder) -> tuple[list[Part], int]:
    """The parts that the network reads, numbers before one-hot ones, with their wrappers."""
    raw, start = {}, 0
    for name, space in part_spaces(policy.raw_space).items():
        width = int(np.prod(space.shape or (), dtype=int))
        raw[name] = Part(name, start, width)
        start += width
    for wrapper in policy.maps:
        raw = _wrapped(raw, wrapper)
    parts = []
    for vector in encoder.vectors:
        part = raw[vector.name]
        part.layers += _unit_scale(encoder.parts[vector.name], part)
        parts.append(part)
    for one_hot in encoder.one_hots:
        part = raw[one_hot.name]
        columns, values = one_hot.columns.numpy(), one_hot.values.numpy()
        part.layers.append(OneHot(columns, values.astype(np.float32)))
        part.is_number = False
        parts.append(part)
    return parts, start


def _wrapped(parts: dict[str, Part], wrapper: nn.Module) -> dict[str, Part]:
    if isinstance(wrapper, KeepParts):
        if wrapper.is_plain:
            return {"": parts[wrapper.names[0]]}
        return {name: parts[name] for name in wrapper.names}
    assert isinstance(wrapper, MapParts)
    for name, function in zip(wrapper.names, wrapper.maps, strict=True):
        part = parts[name]
        width = _width(part)
        if isinstance(function, Lookup):
            part.layers.append(Table(_array(function.table), function.start))
        elif isinstance(function, Affine):
            limits: tuple[np.ndarray | None, ...] = (None, None)
            if function.low is not None and function.high is not None:
                limits = np.full(width, function.low), np.full(width, function.high)
            scale, shift = _tiled(function.scale, width), _tiled(function.shift, width)
            part.layers.append(Scaled(scale, shift, *limits))
        else:
            assert isinstance(function, Clip)
            bounds = _tiled(function.low, width), _tiled(function.high, width)
            part.layers.append(Scaled(np.ones(width), np.zeros(width), *bounds))
    return parts


def _width(part: Part) -> int:
    """After its layers."""
    for layer in reversed(part.layers):
        if isinstance(layer, Table):
            return layer.table.shape[1]
    return part.width


def _tiled(values: torch.Tensor, width: int) -> np.ndarray:
    """One value for each component; wrappers may give one for all, or one for the last axis."""
    flat = _array(values).reshape(-1)
    return np.tile(flat, width // len(flat))


def _unit_scale(space: Any, part: Part) -> list[Layer]:
    """The scaling of bytes to [0, 1] by their bounds."""
    scaled = unit_scale(space)
    if scaled is None:
        return []
    low, factor = scaled
    width = _width(part)
    scale, shift = np.broadcast_to(factor, width), np.broadcast_to(-low * factor, width)
    return [Scaled(scale.astype(np.float32), shift.astype(np.float32))]
