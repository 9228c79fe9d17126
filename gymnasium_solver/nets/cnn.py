"""Convolutional torsos for images.

    layers, n_features = convolutions(Cnn(layout, "cnn_nature"), gain, generator)

    cnn_small    16, 32, 64 channels of 3 x 3, strides 1, 2, 2        any size; then 128 units
    cnn_nature   32 of 8 x 8 / 4, 64 of 4 x 4 / 2, 64 of 3 x 3        from 36 x 36; then 512 units
                 (Mnih et al. 2015)
    cnn_impala   16, 32, 32 channels: each a convolution, a pooling by 2 and two residual blocks
                 (Espeholt et al. 2018)                               any size; then 256 units
    cnn_large    cnn_impala twice as wide: 32, 64, 64 (x2 in Cobbe et al. 2020); then 512 units

ReLU throughout, as in the papers. The dense units after the convolutions belong to the network that
uses them (actor_critic.py, q_network.py): a dueling head has them twice, a noisy head makes them
noisy.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gymnasium_solver.config.layer_list import Layer
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.layers import conv, conv_layers, flattened
from gymnasium_solver.spaces.observations import ImageLayout, shorter

N_BLOCKS = 2  # residual blocks per stage


class Preset(NamedTuple):
    channels: tuple[int, ...]
    hidden_dims: tuple[int, ...]  # after the convolutions
    plain: tuple[tuple[int, int, int], ...] = ()  # size, stride, padding; empty: residual stages


PRESETS: dict[str, Preset] = {
    "cnn_small": Preset((16, 32, 64), (128,), ((3, 1, 1), (3, 2, 1), (3, 2, 1))),
    "cnn_nature": Preset((32, 64, 64), (512,), ((8, 4, 0), (4, 2, 0), (3, 1, 0))),
    "cnn_impala": Preset((16, 32, 32), (256,)),
    "cnn_large": Preset((32, 64, 64), (512,)),
}


def default_preset(layout: ImageLayout) -> str:
    """cnn_nature if the image is large enough for it, otherwise cnn_small."""
    return "cnn_nature" if smallest_side(PRESETS["cnn_nature"]) <= shorter(layout) else "cnn_small"


def smallest_side(preset: Preset) -> int:
    """Smallest image side of a preset, so that at least one pixel remains after its
    convolutions."""
    side = 1
    for size, stride, padding in reversed(preset.plain):
        side = max(1, (side - 1) * stride + size - 2 * padding)
    return side


class Cnn(NamedTuple):
    """A convolutional torso and the layout of its images."""

    layout: ImageLayout
    preset_id: str = "cnn_nature"
    channels: tuple[int, ...] | None = None  # overrides the width of each layer or stage
    layers: tuple[Layer, ...] | None = None  # in place of the preset


def convolutions(
    cnn: Cnn, gain: float | None, generator: torch.Generator
) -> tuple[nn.Sequential, int]:
    """Build the convolutions with a flattened output; return them and the number of outputs.
    `gain` of the initial weights: see `conv`."""
    layout, preset_id, channels, layers_given = cnn
    if layers_given:
        return conv_layers(layers_given, layout[:3], generator)
    preset = PRESETS[preset_id]
    widths = tuple(channels or preset.channels)
    if preset.plain and len(widths) != len(preset.plain):
        raise ConfigError(
            f"cnn_channels: {list(widths)} with {preset_id}, which has {len(preset.plain)} "
            f"layers: give one width per layer, e.g. {list(preset.channels)}."
        )
    least = smallest_side(preset)
    if shorter(layout) < least:
        raise ConfigError(
            f"model_id: {preset_id} needs images of at least {least} x {least} pixels, but these "
            f"are {layout.height} x {layout.width}: use cnn_small or cnn_impala, which take any "
            "size."
        )
    sizes = (layout.channels, *widths)
    layers: list[nn.Module] = []
    if preset.plain:
        for (n_in, n_out), shape in zip(pairwise(sizes), preset.plain, strict=True):
            layers += [conv(n_in, n_out, *shape, gain=gain, generator=generator), nn.ReLU()]
    else:
        n_blocks = N_BLOCKS * len(widths)
        layers += [Stage(a, b, n_blocks, gain, generator) for a, b in pairwise(sizes)]
        layers.append(nn.ReLU())
    return flattened(layers, layout[:3])


class Stage(nn.Module):
    """A convolution, max pooling by 2, and residual blocks: [B, a, h, w] -> [B, b, h / 2, w / 2]"""

    def __init__(
        self, n_in: int, n_out: int, n_blocks: int, gain: float | None, generator: torch.Generator
    ):
        """`n_blocks`: number in the whole torso."""
        super().__init__()
        self.first = conv(n_in, n_out, 3, padding=1, gain=gain, generator=generator)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.blocks = nn.Sequential(
            *(ResidualBlock(n_out, n_blocks, gain, generator) for _ in range(N_BLOCKS))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.pool(self.first(x)))


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))"""

    def __init__(self, n: int, n_blocks: int, gain: float | None, generator: torch.Generator):
        super().__init__()
        self.one = conv(n, n, 3, padding=1, gain=gain, generator=generator)
        # Residual branches add up, so their initial weights are scaled down; otherwise the variance
        # would double with each block.
        last_gain = None if gain is None else gain * n_blocks**-0.5
        self.two = conv(n, n, 3, padding=1, gain=last_gain, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(torch.relu(self.one(torch.relu(x))))
