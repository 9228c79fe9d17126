"""Convolutions of DreamerV3: images to tokens, and the state of a model back to images.

    encode = ImageEncoder(3, (64, 64), depth=16, generator=g)
    encode(images)                              # [N, 3, 64, 64] -> [N, encode.width]
    decode = ImageDecoder(3, (64, 64), 16, 256, 2048, 512, 8, g)
    decode(deter, latent)                       # [N, 3, 64, 64], between 0 and 1

Four stages, each a convolution of 5 x 5, a halving of the sides by the largest value, RMS norm over
the channels, SiLU. The decoder does the same backwards, and doubles the sides by repeating.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.rssm_scan import NORM_EPS

STAGES = (2, 3, 4, 4)  # channels of each stage, in units of the depth
FACTOR = 2 ** len(STAGES)
KERNEL = 5
LEAST_SIDE, LARGEST_SIDE = 3, 16  # after the last stage


@torch.no_grad()
def initialise(weight: Tensor, fan_in: int, generator: torch.Generator, scale: float = 1.0) -> None:
    """A normal cut off at two deviations, with a variance of scale^2 / fan_in after the cut."""
    std = 1.1368 / math.sqrt(fan_in)
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)
    weight.mul_(scale)


def linear(n_in: int, n_out: int, generator: torch.Generator, scale: float = 1.0) -> nn.Linear:
    """A layer with weights by `initialise` and biases of 0."""
    layer = nn.Linear(n_in, n_out)
    initialise(layer.weight, n_in, generator, scale)
    nn.init.zeros_(layer.bias)
    return layer


def dense(n_in: int, n_out: int, generator: torch.Generator) -> list[nn.Module]:
    """A hidden layer: linear, RMS norm, SiLU."""
    return [linear(n_in, n_out, generator), RMSNorm(n_out), nn.SiLU()]


class RMSNorm(nn.RMSNorm):
    """Torch's, by fewer operations on a CPU, where it has no kernel of its own."""

    def __init__(self, width: int):
        super().__init__(width, eps=NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            return super().forward(x)
        return x * (x.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt() * self.weight


class BlockLinear(nn.Module):
    """A linear layer whose weights are g blocks on the diagonal: [N, g, n_in / g] to [N, g, n_out /
    g]. Initial weights are those of a full layer: the fan-in is n_in, not that of a block."""

    def __init__(self, n_in: int, n_out: int, n_blocks: int, generator: torch.Generator):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_blocks, n_in // n_blocks, n_out // n_blocks))
        self.bias = nn.Parameter(torch.zeros(n_blocks, n_out // n_blocks))
        initialise(self.weight, n_in, generator)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x.transpose(0, 1), self.weight).transpose(0, 1) + self.bias


class ChannelNorm(nn.Module):
    """RMS norm over the channels of [N, C, H, W]."""

    def __init__(self, n_channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * ((x.square().mean(1, keepdim=True) + NORM_EPS).rsqrt() * self.weight)


def _convolution(n_in: int, n_out: int, generator: torch.Generator) -> nn.Conv2d:
    layer = nn.Conv2d(n_in, n_out, KERNEL, padding=KERNEL // 2)
    initialise(layer.weight, n_in * KERNEL**2, generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def smallest_sides(sides: tuple[int, int]) -> tuple[int, int]:
    """The sides after the last stage; ConfigError for images that the stages do not fit."""
    height, width = (side // FACTOR for side in sides)
    fits = all(side % FACTOR == 0 for side in sides)
    if not fits or min(height, width) < LEAST_SIDE or max(height, width) > LARGEST_SIDE:
        raise ConfigError(
            f"dreamerv3 reads images with sides that are multiples of {FACTOR}, from "
            f"{LEAST_SIDE * FACTOR} to {LARGEST_SIDE * FACTOR} pixels, not {sides[0]} x {sides[1]};"
            " resize them (resize_obs: [64, 64])"
        )
    return height, width


class ImageEncoder(nn.Module):
    def __init__(
        self, n_channels: int, sides: tuple[int, int], depth: int, generator: torch.Generator
    ):
        super().__init__()
        height, width = smallest_sides(sides)
        layers: list[nn.Module] = []
        for stage in STAGES:
            n_out = depth * stage
            layers += [_convolution(n_channels, n_out, generator), nn.MaxPool2d(2)]
            layers += [ChannelNorm(n_out), nn.SiLU()]
            n_channels = n_out
        self.layers = nn.Sequential(*layers)
        self.width = n_channels * height * width

    def forward(self, images: Tensor) -> Tensor:
        """Tokens [N, width] of images between 0 and 1."""
        tokens: Tensor = self.layers(images - 0.5).flatten(1)
        return tokens


class ImageDecoder(nn.Module):
    def __init__(
        self, n_channels: int, sides: tuple[int, int], depth: int, units: int, n_deter: int,
        n_latent: int, n_blocks: int, generator: torch.Generator,
    ):  # fmt: skip
        super().__init__()
        depths = [depth * stage for stage in STAGES]
        self.sides, self.n_blocks = smallest_sides(sides), n_blocks
        n_small = depths[-1] * math.prod(self.sides)
        self.deter = BlockLinear(n_deter, n_small, n_blocks, generator)
        self.latent = nn.Sequential(
            *dense(n_latent, 2 * units, generator), linear(2 * units, n_small, generator)
        )
        self.norm = ChannelNorm(depths[-1])
        self.stages = nn.ModuleList()
        for n_in, n_out in zip(depths[:0:-1], depths[-2::-1], strict=True):
            layers = (_convolution(n_in, n_out, generator), ChannelNorm(n_out), nn.SiLU())
            self.stages.append(nn.Sequential(*layers))
        self.stages.append(_convolution(depths[0], n_channels, generator))

    def forward(self, deter: Tensor, latent: Tensor) -> Tensor:
        height, width = self.sides
        blocks = self.deter(deter.unflatten(1, (self.n_blocks, -1))).flatten(1, 2)
        x = (blocks + self.latent(latent)).view(len(deter), -1, height, width)
        x = functional.silu(self.norm(x))
        for stage in self.stages:
            x = stage(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return torch.sigmoid(x)
