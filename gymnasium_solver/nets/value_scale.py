"""Normalised value targets (PopArt, van Hasselt et al. 2016).

The critic's head predicts (return - mean) / deviation; `forward` gives values in the units of the
return. When the statistics change, the head's weights are rescaled so that every value stays
exactly what it was.
"""

from typing import Any

import torch
from torch import Tensor, nn

SMALLEST_STD = 1e-2
LEAST_WEIGHT = 0.05  # of the newest rollout in the running moments


class ValueScale(nn.Module):
    mean: Tensor
    std: Tensor
    moments: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        # Running mean and variance of the returns. Single precision, or the mean of squares, would
        # lose a deviation that is small compared with the mean.
        self.register_buffer("moments", torch.tensor([0.0, 1.0], dtype=torch.float64))
        self.register_buffer("count", torch.zeros(()))  # rollouts seen

    def forward(self, output: Tensor) -> Tensor:
        return output * self.std + self.mean

    @torch.no_grad()
    def update(self, returns: Tensor, head: nn.Linear) -> None:
        """Take the returns of a rollout into the moments, and rescale the head."""
        weight = (1.0 / (self.count + 1.0)).clamp(min=LEAST_WEIGHT).double()
        exact = returns.double()
        mean, variance = self.moments
        step = exact.mean() - mean
        variance = torch.lerp(variance, exact.var(correction=0), weight)
        variance = variance + weight * (1.0 - weight) * step.square()
        mean = mean + weight * step
        std = variance.sqrt().clamp(min=SMALLEST_STD)
        old_mean, old_std = self.mean.clone(), self.std.clone()
        self.mean.copy_(mean)
        self.std.copy_(std)
        head.weight.mul_(old_std / self.std)
        head.bias.copy_((old_std * head.bias + old_mean - self.mean) / self.std)
        self.moments.copy_(torch.stack([mean, variance]))
        self.count.add_(1.0)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Also read a checkpoint of version 0.1, which has the mean of squares."""
        if state.pop(f"{prefix}square", None) is not None:
            mean, std = state[f"{prefix}mean"].double(), state[f"{prefix}std"].double()
            state[f"{prefix}moments"] = torch.stack([mean, std.square()])
        super()._load_from_state_dict(state, prefix, *args)
