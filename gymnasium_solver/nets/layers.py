"""Builds the layers that a config lists one by one, or as a graph (config/layer_list.py)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from gymnasium_solver.config.layer_list import ON_IMAGES, Layer
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.blocks import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    NoisyLinear,
    Residual,
    factor_noise,
    linear,
)
from gymnasium_solver.nets.renorm import BatchRenorm
from gymnasium_solver.suggest import did_you_mean

RENORM_R_MAX, RENORM_D_MAX = 3.0, 5.0  # as in CrossQ


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


class Noisy(NoisyLinear):
    """A noisy layer that draws noise of its own where gradients are computed, and only there.

    As with `Dropout`, its random numbers depend on a seed and on how often it was used."""

    uses: Tensor

    def __init__(self, n_in: int, n_out: int, sigma0: float, generator: torch.Generator):
        super().__init__(n_in, n_out, sigma0, generator)
        self.seed = int(torch.randint(2**31, (1,), generator=generator))
        self.register_buffer("uses", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return nn.functional.linear(x, self.weight, self.bias)
        self.uses += 1
        rng = np.random.default_rng((self.seed, int(self.uses)))
        # Not the buffers: a loss may use the layer twice, each time with noise of its own.
        to, at = (
            torch.from_numpy(factor_noise(rng, like.shape)).to(x.device)
            for like in (self.noise_out, self.noise_in)
        )
        weight = self.weight + self.weight_sigma * (to.unsqueeze(1) * at)
        return nn.functional.linear(x, weight, self.bias + self.bias_sigma * to)


class BatchNorm(BatchRenorm):
    """Normalises by the batch where gradients are computed, and takes it into the running
    statistics; elsewhere by these. A target network has the statistics of its network.

    `warmup`: passes of plain batch norm before batch renormalisation; None: it stays batch norm."""

    uses: Tensor
    copied_to_targets = ("running_mean", "running_var")

    def __init__(self, width: int, warmup: int | None = None):
        super().__init__((1, width))
        self.warmup = warmup
        self.register_buffer("uses", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or len(x) < 2:  # one row has no deviation
            return super().forward(x)
        self.uses += 1
        is_plain = self.warmup is None or int(self.uses) <= self.warmup
        bounds = (1.0, 0.0) if is_plain else (RENORM_R_MAX, RENORM_D_MAX)
        y, mean, var = self.train_pass(x, *(torch.tensor(b, device=x.device) for b in bounds))
        self.take(mean, var)
        return y


class Graph(nn.Module):
    """Named nodes on the parts of an observation: {part: [B, width] or an image} -> [B, width]."""

    def __init__(
        self,
        nodes: Mapping[str, Any],
        widths: Mapping[str, int],
        images: Mapping[str, tuple[int, int, int]],
        generator: torch.Generator,
    ):
        """`widths` of the parts that are vectors, `images`: shapes of those that are images."""
        super().__init__()
        self.joins = [(name, node["join"], node["inputs"]) for name, node in nodes.items()]
        self.nodes = nn.ModuleList()
        known = dict(widths)
        for name, node in nodes.items():
            module, width = self._node(name, node, known, images, generator)
            self.nodes.append(module)
            known[name] = width
        self.width = width

    def _node(
        self, name: str, node: Mapping[str, Any], widths: Mapping[str, int],
        images: Mapping[str, tuple[int, int, int]], generator: torch.Generator,
    ) -> tuple[nn.Module, int]:  # fmt: skip
        inputs, (on_images, dense) = node["inputs"], split(node["layers"])
        for source in inputs:
            if source not in widths and source not in images:
                there = [*widths, *images]
                hint = did_you_mean(source, there) or f"There are {', '.join(there)}."
                raise ConfigError(
                    f"layers: node {name} takes {source!r}, which is not there. {hint}"
                )
        seen = [source for source in inputs if source not in widths]
        if bool(on_images) != bool(seen) or (seen and len(inputs) > 1):
            raise ConfigError(
                f"layers: node {name}: convolutions take one image; images here: "
                f"{', '.join(images) or 'none'}"
            )
        if seen:
            first, width = conv_layers(on_images, images[seen[0]], generator)
            rest, width = dense_layers(dense, width, generator)
            return nn.Sequential(*first, *rest), width
        found = [widths[source] for source in inputs]
        if node["join"] == "add" and len(set(found)) > 1:
            pairs = ", ".join(f"{a} {b}" for a, b in zip(inputs, found, strict=True))
            raise ConfigError(f"layers: node {name} adds inputs of different widths: {pairs}")
        return dense_layers(dense, found[0] if node["join"] == "add" else sum(found), generator)

    def forward(self, parts: Mapping[str, Tensor]) -> Tensor:
        known = dict(parts)
        for (name, join, inputs), layers in zip(self.joins, self.nodes, strict=True):
            given = [known[source] for source in inputs]
            x = given[0]
            if join == "concat":
                x = torch.cat(given, dim=1)
            for other in given[1:] if join == "add" else ():
                x = x + other
            known[name] = layers(x)
        return known[name]


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
        layer["kind"] in ("dropout", "noisy", "batch_norm", "batch_renorm")
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
    kind, width = layer["kind"], layer.get("width", n_in)
    if kind == "simnorm" and n_in % layer["groups_of"]:
        raise ConfigError(
            f"layers: simnorm in groups of {layer['groups_of']} does not divide {n_in} units"
        )
    if kind == "residual":
        inner, width = dense_layers(layer["layers"], n_in, generator)
        if width != n_in:
            raise ConfigError(f"layers: a residual block must keep its width {n_in}, not {width}")
        return Residual(inner), n_in
    make: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: _linear(layer, n_in, generator),
        "noisy": lambda: Noisy(n_in, width, layer["sigma"], generator),
        "batch_norm": lambda: BatchNorm(n_in),
        "batch_renorm": lambda: BatchNorm(n_in, layer["warmup"]),
        "layer_norm": lambda: nn.LayerNorm(n_in),
        "rms_norm": lambda: nn.RMSNorm(n_in),
        "dropout": lambda: Dropout(layer["share"], generator),
        "simnorm": lambda: SimNorm(layer["groups_of"]),
    }
    return (make.get(kind) or ACTIVATIONS[kind])(), width


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
            shape_of = [
                layer[name] for name in ("width", "kernel", "stride", "padding", "dilation")
            ]
            modules.append(conv(channels, *shape_of, gain=HIDDEN_GAIN, generator=generator))
            channels = layer["width"]
        elif kind == "pool":
            modules.append(nn.MaxPool2d(layer["size"]))
        elif kind in ACTIVATIONS:
            modules.append(ACTIVATIONS[kind]())
        elif kind in ("layer_norm", "rms_norm"):
            modules.append(nn.GroupNorm(1, channels))
        else:
            raise ConfigError(f"layers: {kind} cannot stand between convolutions")
    try:
        return flattened(modules, shape)
    except RuntimeError:
        raise ConfigError(
            f"layers: the convolutions do not fit images of {shape[1]} x {shape[2]} pixels"
        ) from None


@torch.no_grad()
def flattened(layers: Sequence[nn.Module], shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    """The layers with a flattened output, and the number of outputs for an image of this shape."""
    module = nn.Sequential(*layers, nn.Flatten())
    return module, int(module(torch.zeros(1, *shape)).shape[1])


def conv(
    n_in: int, n_out: int, size: int, stride: int = 1, padding: int = 0, dilation: int = 1, *,
    gain: float | None, generator: torch.Generator,
) -> nn.Conv2d:  # fmt: skip
    """Initialised like blocks.linear: orthogonal times `gain`, or uniform in +-1/sqrt(fan_in)."""
    module = nn.Conv2d(n_in, n_out, size, stride, padding, dilation)
    assert module.bias is not None
    if gain is None:
        bound = (n_in * size**2) ** -0.5
        for parameter in (module.weight, module.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
    else:
        nn.init.orthogonal_(module.weight, gain, generator=generator)
        nn.init.zeros_(module.bias)
    return module
