"""Dense layers: a torso is an `nn.Sequential` of Linear, optional LayerNorm and an activation."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from gymnasium_solver.nets.network import Network

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "identity": nn.Identity,
}
# Gain of orthogonal initialisation for hidden layers (Andrychowicz et al. 2021).
HIDDEN_GAIN = math.sqrt(2.0)


def linear(n_in: int, n_out: int, gain: float | None, generator: torch.Generator) -> nn.Linear:
    """Orthogonal weights times `gain` and zero bias; None: both uniform in +-1/sqrt(n_in).

    The latter is torch's default, for which value-based methods are tuned.
    """
    layer = nn.Linear(n_in, n_out)
    if gain is None:
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
    else:
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        nn.init.zeros_(layer.bias)
    return layer


def output_layer(
    network: Network, n_in: int, n_out: int, gain: float | None, generator: torch.Generator
) -> nn.Module:
    """A linear layer, or a plugin's head."""
    if network.head is not None:
        return network.head(n_in, n_out, generator)
    return linear(n_in, n_out, gain, generator)


def mlp_torso(
    n_in: int,
    hidden_dims: Sequence[int],
    activation: str,
    generator: torch.Generator,
    *,
    gain: float | None = HIDDEN_GAIN,
    layer_norm: bool = False,
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise([n_in, *hidden_dims]):
        layers.append(linear(a, b, gain, generator))
        if layer_norm:
            layers.append(nn.LayerNorm(b))
        layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)
