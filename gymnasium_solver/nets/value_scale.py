"""Normalised value targets (PopArt, van Hasselt et al. 2016).

The critic's head predicts (return - mean) / deviation; `forward` gives values in the units of the
return. When the statistics change, the head's weights are rescaled so that every value stays
exactly what it was.
"""

import torch
from torch import Tensor, nn

SMALLEST_STD = 1e-2
LEAST_WEIGHT = 0.05  # of the newest rollout in the running moments


class ValueScale(nn.Module):
    mean: Tensor
    std: Tensor
    square: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        self.register_buffer("square", torch.ones(()))  # running mean of the squared returns
        self.register_buffer("count", torch.zeros(()))  # rollouts seen

    def forward(self, output: Tensor) -> Tensor:
        return output * self.std + self.mean

    @torch.no_grad()
    def update(self, returns: Tensor, head: nn.Linear) -> None:
        """Take the returns of a rollout into the moments, and rescale the head."""
        weight = (1.0 / (self.count + 1.0)).clamp(min=LEAST_WEIGHT)
        mean = torch.lerp(self.mean, returns.mean(), weight)
        square = torch.lerp(self.square, returns.square().mean(), weight)
        std = (square - mean.square()).clamp(min=SMALLEST_STD**2).sqrt()
        head.weight.mul_(self.std / std)
        head.bias.copy_((self.std * head.bias + self.mean - mean) / std)
        for buffer, value in ((self.mean, mean), (self.square, square), (self.std, std)):
            buffer.copy_(value)
        self.count.add_(1.0)
