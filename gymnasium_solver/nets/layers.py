"""Builds the layers that a config lists one by one (config/layer_list.py)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from gymnasium_solver.config.layer_list import ON_IMAGES, Layer
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.blocks import ACTIVATIONS, HIDDEN_GAIN, Residual, linear


class SimNorm(nn.Module):
    """A softmax over each group of units (TD-MPC2)."""

    def __init__(self, groups_of: int):
        super().__init__()
        self.groups_of = groups_of

    def forward(self, x: Tensor) -> Tensor:
        grouped = x.view(*x.shape[:-1], -1, self.groups_of)
        return torch.softmax(grouped, dim=-1).view(x.shape)


class Dropout(nn.Module):
    """Drops units where gradients are computed, and only there: acting and values are exact.

    Its random numbers depend on a seed and on how often it was used, which is saved with the
    weights, so that a resumed run drops the same units."""

    uses: Tensor

    def __init__(self, share: float, generator: torch.Generator):
        super().__init__()
        self.share = share
        self.seed = int(torch.randint(2**31, (1,), generator=generator))
        self.register_buffer("uses", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or self.share == 0:
            return x
        self.uses += 1
        own = torch.Generator().manual_seed(self.seed + int(self.uses))
        keep = torch.rand(x.shape, generator=own) >= self.share
        return x * keep.to(x.device) / (1.0 - self.share)


def split(layers: Sequence[Layer]) -> tuple[list[Layer], list[Layer]]:
    """The layers on images, and those after them."""
    kinds = [layer["kind"] for layer in layers]
    last = max((i for i, kind in enumerate(kinds) if kind in ON_IMAGES), default=-1)
    while 0 <= last < len(layers) - 1 and kinds[last + 1] in ACTIVATIONS:
        last += 1  # the activation of the last convolution
    return list(layers[: last + 1]), list(layers[last + 1 :])


def needs_torch(layers: Sequence[Layer]) -> bool:
    """Whether these layers change state when they are used, which a recording cannot repeat."""
    return any(
        layer["kind"] == "dropout"
        or layer.get("norm") == "spectral"
        or needs_torch(layer.get("layers", ()))
        for layer in layers
    )


def dense_layers(
    layers: Sequence[Layer], n_in: int, generator: torch.Generator
) -> tuple[nn.Sequential, int]:
    """The layers after the observation's features, and the width of the last."""
    modules: list[nn.Module] = []
    width = n_in
    for layer in layers:
        module, width = _dense(layer, width, generator)
        modules.append(module)
    return nn.Sequential(*modules), width


def _dense(layer: Layer, n_in: int, generator: torch.Generator) -> tuple[nn.Module, int]:
    kind = layer["kind"]
    if kind == "linear":
        return _linear(layer, n_in, generator), layer["width"]
    if kind == "layer_norm":
        return nn.LayerNorm(n_in), n_in
    if kind == "rms_norm":
        return nn.RMSNorm(n_in), n_in
    if kind == "dropout":
        return Dropout(layer["share"], generator), n_in
    if kind == "simnorm":
        if n_in % layer["groups_of"]:
            raise ConfigError(
                f"layers: simnorm in groups of {layer['groups_of']} does not divide {n_in} units"
            )
        return SimNorm(layer["groups_of"]), n_in
    if kind == "residual":
        inner, width = dense_layers(layer["layers"], n_in, generator)
        if width != n_in:
            raise ConfigError(f"layers: a residual block must keep its width {n_in}, not {width}")
        return Residual(inner), n_in
    return ACTIVATIONS[kind](), n_in


def _linear(layer: Layer, n_in: int, generator: torch.Generator) -> nn.Module:
    module: nn.Module = linear(n_in, layer["width"], HIDDEN_GAIN, generator)
    if layer.get("norm") == "weight":
        return parametrizations.weight_norm(module)
    if layer.get("norm") == "spectral":
        return _spectral(module)
    return module


def _spectral(module: nn.Module) -> nn.Module:
    """Spectral norm, with start vectors that do not come from torch's global random stream."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return parametrizations.spectral_norm(module)


def conv_layers(
    layers: Sequence[Layer], shape: tuple[int, int, int], generator: torch.Generator
) -> tuple[nn.Sequential, int]:
    """The layers on an image of [channels, height, width], flattened at the end."""
    modules: list[nn.Module] = []
    channels = shape[0]
    for layer in layers:
        kind = layer["kind"]
        if kind == "conv":
            conv = nn.Conv2d(
                channels, layer["width"], layer["kernel"], layer["stride"], layer["padding"]
            )
            nn.init.orthogonal_(conv.weight, math.sqrt(2.0), generator=generator)
            assert conv.bias is not None
            nn.init.zeros_(conv.bias)
            modules.append(conv)
            channels = layer["width"]
        elif kind == "pool":
            modules.append(nn.MaxPool2d(layer["size"]))
        elif kind in ACTIVATIONS:
            modules.append(ACTIVATIONS[kind]())
        elif kind in ("layer_norm", "rms_norm"):
            modules.append(nn.GroupNorm(1, channels))
        else:
            raise ConfigError(f"layers: {kind} cannot stand between convolutions")
    module = nn.Sequential(*modules, nn.Flatten())
    try:
        with torch.no_grad():
            width = int(module(torch.zeros(1, *shape)).shape[1])
    except RuntimeError:
        raise ConfigError(
            f"layers: the convolutions do not fit images of {shape[1]} x {shape[2]} pixels"
        ) from None
    return module, width
