"""Activations by name, and linear layers with their initial weights."""

import math

import torch
from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "mish": nn.Mish,
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
