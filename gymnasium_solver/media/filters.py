"""What a stack of convolutions consists of: its layers, their receptive fields, activations and the
image patches to which each channel responds most.

    layers = conv_layers(stack)                  # of an nn.Sequential, from the image on
    layers[-1].field.size                        # (36, 36) pixels for cnn_nature
    activations(layers, lambda: stack(planes))   # {"conv 1": [B, channels, height, width], ...}
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

Pair = tuple[int, int]
WINDOWS = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)  # modules that widen the receptive field
ELEMENTWISE = (nn.ReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.LeakyReLU, nn.Softplus)


class ReceptiveField(NamedTuple):
    """The pixels that can influence a unit, as (vertical, horizontal). Unit i sees the pixels from
    `first + i * jump` up to `first + i * jump + size`, without the last one. `first` is negative
    where padding is seen."""

    size: Pair = (1, 1)
    jump: Pair = (1, 1)
    first: Pair = (0, 0)

    def after(self, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> "ReceptiveField":
        """Of the units of a layer that reads units with this field."""
        axes = [
            (
                self.size[i] + dilation[i] * (kernel[i] - 1) * self.jump[i],
                self.jump[i] * stride[i],
                self.first[i] - padding[i] * self.jump[i],
            )
            for i in (0, 1)
        ]
        (size_y, jump_y, first_y), (size_x, jump_x, first_x) = axes
        return ReceptiveField((size_y, size_x), (jump_y, jump_x), (first_y, first_x))

    def centre(self, axis: int, unit: int = 0) -> float:
        return self.first[axis] + unit * self.jump[axis] + (self.size[axis] - 1) / 2


@dataclass(frozen=True)
class ConvLayer:
    """A convolution, or a residual stage, of a stack."""

    name: str
    conv: nn.Conv2d
    """Its first convolution."""
    output: nn.Module
    """The module whose output counts as its activations: after the non-linearity."""
    field: ReceptiveField


def conv_layers(stack: nn.Module) -> list[ConvLayer]:
    """The layers of a stack in order. In a child with several convolutions they count as one layer,
    whose receptive field is that of its longest path."""
    children = list(stack) if isinstance(stack, nn.Sequential) else [stack]
    layers: list[ConvLayer] = []
    field = ReceptiveField()
    for i, child in enumerate(children):
        field = _through(child, field)
        convs = [module for module in child.modules() if isinstance(module, nn.Conv2d)]
        if not convs:
            continue
        follower = children[i + 1] if i + 1 < len(children) else None
        output = follower if isinstance(follower, ELEMENTWISE) else child
        word = "conv" if child is convs[0] else "stage"
        layers.append(ConvLayer(f"{word} {len(layers) + 1}", convs[0], output, field))
    return layers


def _through(module: nn.Module, field: ReceptiveField) -> ReceptiveField:
    for part in module.modules():
        if isinstance(part, WINDOWS):
            dilation = getattr(part, "dilation", 1)
            padding = part.padding
            assert not isinstance(padding, str), "paddings are numbers"
            field = field.after(
                _pair(part.kernel_size), _pair(part.stride), _pair(padding), _pair(dilation)
            )
    return field


def _pair(value: Any) -> Pair:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


@contextmanager
def captured(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Collect the outputs of modules during forward passes, in the order of their calls."""
    outputs: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _module, _given, output: outputs.append(output))
        for module in modules
    ]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def activations(
    layers: Sequence[ConvLayer], forward: Callable[[], object]
) -> dict[str, np.ndarray]:
    """Outputs [B, channels, height, width] of each layer in one forward pass."""
    with captured([layer.output for layer in layers]) as outputs:
        forward()
    named = zip(layers, outputs, strict=True)
    return {layer.name: output.cpu().numpy() for layer, output in named}


# -- maximally activating patches ---------------------------------------------------------------


class Patch(NamedTuple):
    """Where a channel responded: the pixels [top:bottom, left:right] at a step of an episode."""

    activation: float
    step: int
    top: int
    bottom: int
    left: int
    right: int


class TopPatches:
    """Keeps the strongest responses of each channel of a layer, one per step."""

    def __init__(self, field: ReceptiveField, height: int, width: int, n: int = 4) -> None:
        self._field, self._sides, self._n = field, (height, width), n
        self._kept: dict[int, list[Patch]] = {}

    def see(self, step: int, maps: np.ndarray) -> None:
        """`maps` [channels, height, width]: the layer's activations at this step."""
        flat = maps.reshape(len(maps), -1)
        best = flat.argmax(axis=1)
        for channel, index in enumerate(best):
            strength = float(flat[channel, index])
            if strength <= 0:
                continue
            y, x = divmod(int(index), maps.shape[2])
            kept = self._kept.setdefault(channel, [])
            patch = Patch(strength, step, *self._span(0, y), *self._span(1, x))
            if len(kept) < self._n:
                heapq.heappush(kept, patch)
            else:
                heapq.heappushpop(kept, patch)

    def _span(self, axis: int, unit: int) -> Pair:
        start = self._field.first[axis] + unit * self._field.jump[axis]
        return max(0, start), min(self._sides[axis], start + self._field.size[axis])

    def best(self, n_channels: int) -> list[tuple[int, list[Patch]]]:
        """(channel, patches, strongest first) of the channels with the strongest responses."""
        ranked = sorted(self._kept.items(), key=lambda item: (-max(item[1]).activation, item[0]))
        return [(channel, sorted(kept, reverse=True)) for channel, kept in ranked[:n_channels]]
