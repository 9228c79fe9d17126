"""Batch renormalisation (Ioffe 2017): batch norm that behaves the same in training and inference.

In training, a batch is normalised by its own statistics and then corrected towards the running ones
by `r` and `d`. No gradient flows through `r` and `d`. Both are bounded; with bounds of 1 and 0 it
is plain batch norm. In inference only the running statistics are used.

A loss must not modify the network, so a training pass returns the batch statistics, and the learner
applies them after its optimiser step:

    y, moments = train_pass(layers, x, r_max, d_max)
    take_moments(layers, moments)
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

MOMENTUM, EPSILON = 0.01, 1e-3  # as in the authors' code of CrossQ (Bhatt et al. 2024)


class BatchRenorm(nn.Module):
    """Normalises over the second-last axis: [B, width] with `shape` (1, width), or [n, B, width]
    with (n, 1, width), where each of the n networks has its own statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the running statistics."""
        scale = (self.running_var + EPSILON).rsqrt() * self.weight
        return (x - self.running_mean) * scale + self.bias

    def train_pass(self, x: Tensor, r_max: Tensor, d_max: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise by the corrected batch statistics; also return these statistics, detached."""
        mean = x.mean(dim=-2, keepdim=True)
        centred = x - mean
        var = centred.square().mean(dim=-2, keepdim=True)
        std = (var + EPSILON).sqrt()
        running_std = (self.running_var + EPSILON).sqrt()
        r = (std.detach() / running_std).clamp(1 / r_max, r_max)
        d = ((mean.detach() - self.running_mean) / running_std).clamp(-d_max, d_max)
        y = centred * (self.weight * r / std) + (self.weight * d + self.bias)
        return y, mean.detach(), var.detach()

    @torch.no_grad()
    def take(self, mean: Tensor, var: Tensor) -> None:
        """Update the running statistics with those of a batch."""
        self.running_mean.lerp_(mean, MOMENTUM)
        self.running_var.lerp_(var, MOMENTUM)


def train_pass(
    layers: Iterable[nn.Module], x: Tensor, r_max: Tensor, d_max: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Forward pass with batch statistics. Returns the output, and the mean and variance of each
    BatchRenorm in order."""
    moments: list[Tensor] = []
    for layer in layers:
        if isinstance(layer, BatchRenorm):
            x, *seen = layer.train_pass(x, r_max, d_max)
            moments += seen
        else:
            x = layer(x)
    return x, moments


def take_moments(layers: Iterable[nn.Module], moments: Sequence[Tensor]) -> None:
    """Update the running statistics with those of a training pass."""
    renorms = [layer for layer in layers if isinstance(layer, BatchRenorm)]
    for layer, mean, var in zip(renorms, moments[::2], moments[1::2], strict=True):
        layer.take(mean, var)
