"""Batch normalisation for actors and critics, plain or as batch renormalisation (Ioffe 2017).

In training a batch is normalised by its own statistics. Renormalisation then corrects it towards
the running statistics by `r` and `d`, so that training and inference agree. No gradient flows
through `r` and `d`. Both are bounded; with bounds of 1 and 0 it is plain batch norm. In inference
only the running statistics are used.

A loss must not modify the network, so a training pass returns the batch statistics, and the learner
applies them after its optimiser step:

    with batch_statistics(net) as moments:
        y = net(x)
    take_moments(net, moments)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

MOMENTUM = 0.01
EPSILON = 1e-3  # as in the authors' code of CrossQ (Bhatt et al. 2024) and XQC


class BatchRenorm(nn.Module):
    """Normalises over the second-last axis: [B, width] with `shape` (1, width), or [n, B, width]
    with (n, 1, width), where each of the n networks has its own statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, shape: tuple[int, ...], epsilon: float = EPSILON, is_unit: bool = False):
        """`is_unit`: weight and bias together have the length sqrt(width), where the optimiser
        scales weights (`unit_norm`)."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))
        self.epsilon, self.is_unit = epsilon, is_unit
        self.seen: list[Tensor] | None = None  # in a training pass: statistics of the layers so far
        self.bounds: tuple[Tensor, Tensor] | None = None  # of r and d; None: plain batch norm

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the running statistics, or in a training pass by those of the batch."""
        if self.seen is not None:
            y, mean, var = self.train_pass(x, *(self.bounds or (None, None)))
            self.seen += [mean, var]
            return y
        scale = (self.running_var + self.epsilon).rsqrt() * self.weight
        return (x - self.running_mean) * scale + self.bias

    def train_pass(
        self, x: Tensor, r_max: Tensor | None, d_max: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise by the batch statistics, corrected if there are bounds; also return these
        statistics, detached."""
        mean = x.mean(dim=-2, keepdim=True)
        centred = x - mean
        var = centred.square().mean(dim=-2, keepdim=True)
        if r_max is None or d_max is None:
            y = centred * ((var + self.epsilon).rsqrt() * self.weight) + self.bias
            return y, mean.detach(), var.detach()
        std = (var + self.epsilon).sqrt()
        running_std = (self.running_var + self.epsilon).sqrt()
        r = (std.detach() / running_std).clamp(1 / r_max, r_max)
        d = ((mean.detach() - self.running_mean) / running_std).clamp(-d_max, d_max)
        y = centred * (self.weight * r / std) + (self.weight * d + self.bias)
        return y, mean.detach(), var.detach()

    def projected(self) -> tuple[nn.Parameter, tuple[int, int, int, int], int] | None:
        """See fast/optimizer.py. The bias follows the weight in the flat vector."""
        if not self.is_unit:
            return None
        width = self.weight.shape[-1]
        return self.weight, (2, self.weight.numel() // width, width, 1), width

    @torch.no_grad()
    def take(self, mean: Tensor, var: Tensor) -> None:
        """Update the running statistics with those of a batch."""
        self.running_mean.lerp_(mean, MOMENTUM)
        self.running_var.lerp_(var, MOMENTUM)


def batch_norms(module: nn.Module) -> list[BatchRenorm]:
    """Those whose statistics are taken after a step, not in a forward pass (nets/layers.py)."""
    return [layer for layer in module.modules() if type(layer) is BatchRenorm]


@contextmanager
def batch_statistics(
    module: nn.Module, bounds: tuple[Tensor, Tensor] | None = None
) -> Iterator[list[Tensor]]:
    """A training pass: the batch norms of a module use the statistics of the batch. Yields a list
    that gets the mean and variance of each in order. `bounds`: of r and d."""
    seen: list[Tensor] = []
    layers = batch_norms(module)
    for layer in layers:
        layer.seen, layer.bounds = seen, bounds
    try:
        yield seen
    finally:
        for layer in layers:
            layer.seen = None


def take_moments(module: nn.Module, moments: Sequence[Tensor], momentum: float = MOMENTUM) -> None:
    """Update the running statistics with those of a training pass."""
    layers = batch_norms(module)
    if not layers:
        return
    running = [t for layer in layers for t in (layer.running_mean, layer.running_var)]
    with torch.no_grad():
        given = [m.expand_as(own) for m, own in zip(moments, running, strict=True)]
        torch._foreach_lerp_(running, given, momentum)
