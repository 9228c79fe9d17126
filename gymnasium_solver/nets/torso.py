"""The dense layers after the features: an MLP."""

import torch
from torch import nn

from gymnasium_solver.nets.mlp import mlp_torso
from gymnasium_solver.nets.network import Network


def dense_torso(
    network: Network, n_in: int, gain: float | None, generator: torch.Generator
) -> tuple[nn.Module, int]:
    """The layers, and the width of their output."""
    layers = mlp_torso(n_in, network.hidden_dims, network.activation, generator, gain=gain)
    return layers, network.hidden_dims[-1] if network.hidden_dims else n_in
