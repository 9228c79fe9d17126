"""Layers of SimbaV2 (Lee et al. 2025b): features and weights stay on the unit sphere.

Every feature vector has length 1, the optimiser scales the weights of each unit to length 1
(`unit_norm`), and what a network needs of magnitudes is learnt by scales of their own. All layers
take [B, width], or [n, B, width] for n networks in one stack.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

SHIFT = 3.0  # a constant input, without which the length of an observation would be lost
LEAST = 1e-8  # no vector is zero


def on_sphere(x: Tensor) -> Tensor:
    """Scale vectors (the last axis) to length 1."""
    return x * (x.square().sum(dim=-1, keepdim=True) + LEAST**2).rsqrt()


class Scale(nn.Module):
    """Learnt factors that start at `start`. They are stored times `stored / start`, so that their
    learning rate, compared with their size, is that of weights on a sphere."""

    def __init__(self, shape: tuple[int, ...], start: float = 1.0, stored: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full(shape, stored))
        self.factor = start / stored

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight * self.factor)


class ToSphere(nn.Module):
    """The first layer: a constant is appended, the length is made 1, and a linear layer follows."""

    def __init__(self, linear: nn.Module, scale: Scale):
        super().__init__()
        self.linear, self.scale = linear, scale

    def forward(self, x: Tensor) -> Tensor:
        shifted = on_sphere(functional.pad(x, (0, 1), value=SHIFT))
        return on_sphere(self.scale(self.linear(shifted)))


class SphereBlock(nn.Module):
    """x + alpha * (layers(x) - x), back on the sphere."""

    def __init__(self, inner: nn.Module, scale: Scale, outer: nn.Module, alpha: Scale):
        super().__init__()
        self.inner, self.scale, self.outer, self.alpha = inner, scale, outer, alpha

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.scale(self.inner(x))) + LEAST
        return on_sphere(x + self.alpha(on_sphere(self.outer(hidden)) - x))


class SphereHead(nn.Module):
    """The output layer: linear, scale, linear with a bias. An actor has one for the means and one
    for the deviations (`branches`)."""

    def __init__(self, branches: Sequence[tuple[nn.Module, Scale, nn.Module]]):
        super().__init__()
        self.branches = nn.ModuleList(nn.Sequential(*branch) for branch in branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=-1)


def first_scale(width: int) -> float:
    """The first factor of the features of a layer of this width."""
    return math.sqrt(2.0 / width)
