"""How a number that a network computes depends on its input, and what its convolutions respond to.

    score = lambda planes: net(planes)[:, action]           # [B, ...] -> [B]
    gradient_saliency(score, planes)                        # [C, H, W], at least 0
    occlusion(score, planes, groups=[[0], [1]], size=8)     # [2, H, W]
    gradient_times_input(score, vector)                     # [width]
    cam("gradcam", score, conv_layers(stack)[-1], planes)   # [H, W], at least 0
    activations(layers, lambda: stack(planes))              # {"conv 1": [B, K, h, w], ...}

`planes` and `vector` are one observation with a batch axis of 1; `stack` is an nn.Sequential of
convolutions. Class activation maps, with activations A [K, h, w] of a layer and gradients
G = d score / d A:

    gradcam      relu(sum_k mean(G_k) A_k)                     Selvaraju et al. 2017
    gradcam++    mean(G_k) replaced by a sum over positive     Chattopadhay et al. 2018
                 gradients, weighted by alpha
    xgradcam     gradients weighted by the activations         Fu et al. 2020
    layercam     relu(sum_k relu(G_k) * A_k), per position     Jiang et al. 2021
    hirescam     relu(sum_k G_k * A_k), per position           Draelos and Carin 2020
    scorecam     channels weighted by the score that is left   Wang et al. 2020
                 if the image is masked by the channel
    eigencam     first principal component of A; without the   Muhammad and Yeasin 2020
                 score

A map of the layer is brought to the size of the image by the centres of the receptive fields.
Stretching it, which is usual, is wrong by up to 12 of 84 pixels for cnn_nature, which does not pad.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

Score = Callable[[Tensor], Tensor]
"""A batch of inputs [B, ...] -> the explained number of each [B]."""
Pair = tuple[int, int]
ROWS_AT_ONCE = 128
EPSILON = 1e-12
WINDOWS = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)  # modules that widen the receptive field
ELEMENTWISE = (nn.ReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.LeakyReLU, nn.Softplus)


# -- gradients and occlusion --------------------------------------------------------------------


def input_gradient(score: Score, given: Tensor) -> np.ndarray:
    """Derivative of the score by each input of one row; zeros if it does not depend on them."""
    given = given.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        total = score(given).sum()
    gradient = None
    if total.requires_grad:
        (gradient,) = torch.autograd.grad(total, given, allow_unused=True)
    if gradient is None:
        return np.zeros(given.shape[1:], np.float32)
    return np.asarray(gradient[0].cpu())


def gradient_saliency(score: Score, planes: Tensor) -> np.ndarray:
    """|gradient| of each pixel of each plane (Simonyan et al. 2014)."""
    return np.abs(input_gradient(score, planes))


def gradient_times_input(score: Score, vector: Tensor) -> np.ndarray:
    """What each component contributes to a linear score; a first-order estimate for others."""
    return np.asarray(input_gradient(score, vector) * vector[0].detach().cpu().numpy())


@torch.no_grad()
def occlusion(
    score: Score, planes: Tensor, groups: Sequence[Sequence[int]], size: int | None = None
) -> np.ndarray:
    """How much the score falls if a square around a pixel is covered (Zeiler and Fergus 2014).

    Returns [len(groups), H, W]; a group is the planes of one frame, which are covered together. The
    square, by default of a tenth of the shorter side, takes the median of its plane and moves by
    half of its side. A pixel gets the mean over all squares that cover it."""
    _, _, height, width = planes.shape
    size = size or max(1, round(min(height, width) / 10))
    step = max(1, size // 2)
    fill = planes[0].flatten(1).median(dim=1).values
    places = [(y, x) for y in _starts(height, size, step) for x in _starts(width, size, step)]
    base = float(score(planes)[0])
    falls, covers = np.zeros((len(groups), height, width)), np.zeros((height, width))
    for y, x in places:
        covers[y : y + size, x : x + size] += 1
    for index, group in enumerate(groups):
        for start in range(0, len(places), ROWS_AT_ONCE):
            chunk = places[start : start + ROWS_AT_ONCE]
            rows = planes.repeat(len(chunk), 1, 1, 1)
            for row, (y, x) in zip(rows, chunk, strict=True):
                for plane in group:
                    row[plane, y : y + size, x : x + size] = fill[plane]
            for (y, x), value in zip(chunk, score(rows).tolist(), strict=True):
                falls[index, y : y + size, x : x + size] += base - value
    return (falls / covers).astype(np.float32)


def _starts(side: int, size: int, step: int) -> list[int]:
    """First pixels of squares that cover the whole side."""
    last = max(0, side - size)
    return sorted({*range(0, last + 1, step), last})


# -- layers and their receptive fields ------------------------------------------------------------


class ReceptiveField(NamedTuple):
    """The pixels that can influence a unit, as (vertical, horizontal). Unit i sees the pixels from
    `first + i * jump` up to `first + i * jump + size`, without the last one. `first` is negative
    where padding is seen."""

    size: Pair = (1, 1)
    jump: Pair = (1, 1)
    first: Pair = (0, 0)

    def after(self, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> "ReceptiveField":
        """The field of the units of a layer that reads units with this one."""
        (y, x), (down, right) = self.size, self.jump
        return ReceptiveField(
            (y + dilation[0] * (kernel[0] - 1) * down, x + dilation[1] * (kernel[1] - 1) * right),
            (down * stride[0], right * stride[1]),
            (self.first[0] - padding[0] * down, self.first[1] - padding[1] * right),
        )

    def centre(self, axis: int) -> float:
        """The centre of the first unit's field."""
        return self.first[axis] + (self.size[axis] - 1) / 2

    def span(self, axis: int, unit: int, side: int) -> Pair:
        """The pixels of an image of this side that a unit sees: the first, and the one after."""
        start = self.first[axis] + unit * self.jump[axis]
        return max(0, start), min(side, start + self.size[axis])


@dataclass(frozen=True)
class ConvLayer:
    """A convolution, or a residual stage, of a stack."""

    name: str
    conv: nn.Conv2d  # its first convolution
    output: nn.Module  # the module whose output counts as its activations: after the non-linearity
    field: ReceptiveField


def conv_layers(stack: nn.Module) -> list[ConvLayer]:
    """The layers of a stack in order. In a child with several convolutions they count as one layer,
    whose receptive field is that of its longest path."""
    children = list(stack) if isinstance(stack, nn.Sequential) else [stack]
    layers: list[ConvLayer] = []
    field = ReceptiveField()
    for child, follower in zip(children, [*children[1:], None], strict=True):
        for part in child.modules():
            if isinstance(part, WINDOWS):
                dilation = getattr(part, "dilation", 1)
                sides = (part.kernel_size, part.stride, part.padding, dilation)
                field = field.after(*map(_pair, sides))
        convs = [module for module in child.modules() if isinstance(module, nn.Conv2d)]
        if convs:
            output = follower if isinstance(follower, ELEMENTWISE) else child
            word = "conv" if child is convs[0] else "stage"
            layers.append(ConvLayer(f"{word} {len(layers) + 1}", convs[0], output, field))
    return layers


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


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
        self._field, self._height, self._width, self._n = field, height, width, n
        self._kept: dict[int, list[Patch]] = {}

    def see(self, step: int, maps: np.ndarray) -> None:
        """`maps` [channels, height, width]: the layer's activations at this step."""
        for channel, map_ in enumerate(maps):
            y, x = np.unravel_index(int(map_.argmax()), map_.shape)
            if map_[y, x] <= 0:
                continue
            rows = self._field.span(0, int(y), self._height)
            columns = self._field.span(1, int(x), self._width)
            kept = self._kept.setdefault(channel, [])
            heapq.heappush(kept, Patch(float(map_[y, x]), step, *rows, *columns))
            if len(kept) > self._n:
                heapq.heappop(kept)

    def best(self, n_channels: int) -> list[tuple[int, list[Patch]]]:
        """(channel, patches, strongest first) of the channels with the strongest responses."""
        ranked = sorted(self._kept.items(), key=lambda item: (-max(item[1]).activation, item[0]))
        return [(channel, sorted(kept, reverse=True)) for channel, kept in ranked[:n_channels]]


# -- class activation maps ------------------------------------------------------------------------


def cam(method: str, score: Score, layer: ConvLayer, planes: Tensor) -> np.ndarray:
    """The map of one of TITLES at the size of the image [H, W], not scaled."""
    maps, gradients = activations_and_gradients(score, layer, planes)
    if method == "scorecam":
        small = _scorecam(score, layer, planes, maps)
    else:
        small = _MAPS[method](maps, gradients)
    height, width = planes.shape[2:]
    return np.asarray(spread(small, layer.field, height, width).cpu())


def activations_and_gradients(
    score: Score, layer: ConvLayer, planes: Tensor
) -> tuple[Tensor, Tensor]:
    """A and G of one image, [K, h, w] each; G is 0 if the score does not depend on the layer."""
    with torch.enable_grad(), captured([layer.output]) as outputs:
        # The planes need a gradient so that frozen weights do not cut the graph.
        total = score(planes.detach().clone().requires_grad_(True)).sum()
    (maps,) = outputs
    gradient = torch.autograd.grad(total, maps, allow_unused=True)[0]
    return maps[0].detach(), torch.zeros_like(maps[0]) if gradient is None else gradient[0]


def _weighted(weights: Tensor, maps: Tensor) -> Tensor:
    return torch.relu((weights[:, None, None] * maps).sum(0))


def _gradcam_plus_plus(maps: Tensor, gradients: Tensor) -> Tensor:
    """alpha = G^2 / (2 G^2 + sum(A) G^3), with G^2 cancelled against underflow."""
    below = 2 + maps.sum((1, 2), keepdim=True) * gradients
    alpha = torch.where(below > EPSILON, 1 / below, 0.0)
    return _weighted((alpha * torch.relu(gradients)).sum((1, 2)), maps)


def _xgradcam(maps: Tensor, gradients: Tensor) -> Tensor:
    totals, shares = maps.sum((1, 2)), (gradients * maps).sum((1, 2))
    return _weighted(torch.where(totals.abs() > EPSILON, shares / totals, 0.0 * totals), maps)


def _eigencam(maps: Tensor, gradients: Tensor) -> Tensor:
    """The activations along their first right singular vector, with a positive sum."""
    units = maps.flatten(1).t()  # [h w, K]
    _, _, directions = torch.linalg.svd(units, full_matrices=False)
    projected = units @ directions[0]
    projected = projected if float(projected.sum()) >= 0 else -projected
    return torch.relu(projected.view(maps.shape[1:]))


@torch.no_grad()
def _scorecam(score: Score, layer: ConvLayer, planes: Tensor, maps: Tensor) -> Tensor:
    height, width = planes.shape[2:]
    large = spread(maps, layer.field, height, width)
    low, high = large.amin((1, 2), keepdim=True), large.amax((1, 2), keepdim=True)
    masks = (large - low) / (high - low).clamp_min(EPSILON)
    parts = [score(planes * some[:, None]) for some in masks.split(ROWS_AT_ONCE)]
    return _weighted(torch.softmax(torch.cat(parts), dim=0), maps)


_MAPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gradcam": lambda maps, gradients: _weighted(gradients.mean((1, 2)), maps),
    "gradcam++": _gradcam_plus_plus,
    "xgradcam": _xgradcam,
    "layercam": lambda maps, gradients: torch.relu((torch.relu(gradients) * maps).sum(0)),
    "hirescam": lambda maps, gradients: torch.relu((gradients * maps).sum(0)),
    "eigencam": _eigencam,
}
_CAMS = "Grad-CAM Grad-CAM++ XGrad-CAM LayerCAM HiResCAM Score-CAM EigenCAM"
TITLES = {title.lower().replace("-", ""): title for title in _CAMS.split()}
"""By name, such as gradcam."""


def spread(maps: Tensor, field: ReceptiveField, height: int, width: int) -> Tensor:
    """[..., h, w] at the size of the image: linear between the centres of the receptive fields."""
    rows = _weights(field, 0, maps.shape[-2], height).to(maps)
    columns = _weights(field, 1, maps.shape[-1], width).to(maps)
    return rows @ maps @ columns.t()


def _weights(field: ReceptiveField, axis: int, n_units: int, n_pixels: int) -> Tensor:
    """[n_pixels, n_units] of linear interpolation."""
    place = (np.arange(n_pixels) - field.centre(axis)) / field.jump[axis]
    distance = np.abs(np.clip(place, 0, n_units - 1)[:, None] - np.arange(n_units))
    return torch.from_numpy(np.maximum(0.0, 1.0 - distance).astype(np.float32))
