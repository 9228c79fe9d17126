"""Dense layers: a torso is an `nn.Sequential` of Linear, optional LayerNorm and an activation."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from gymnasium_solver.nets.basic import ACTIVATIONS, HIDDEN_GAIN, linear
from gymnasium_solver.nets.network import Network

__all__ = ["ACTIVATIONS", "HIDDEN_GAIN", "linear", "mlp_torso", "output_layer"]


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
