"""Class activation maps: where the channels of a convolution support a score.

    map_ = cam("gradcam", score, layer, planes)          # [H, W] of the image, at least 0

`score` maps planes [B, C, H, W] to numbers [B]; `layer` is one of `filters.conv_layers`. With
activations A [K, h, w] and gradients G = d score / d A:

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

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.media.filters import ConvLayer, ReceptiveField, captured
from gymnasium_solver.media.saliency import ROWS_AT_ONCE, Score

EPSILON = 1e-12


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


def weighted(weights: Tensor, maps: Tensor) -> Tensor:
    return torch.relu((weights[:, None, None] * maps).sum(0))


def gradcam(maps: Tensor, gradients: Tensor) -> Tensor:
    return weighted(gradients.mean((1, 2)), maps)


def gradcam_plus_plus(maps: Tensor, gradients: Tensor) -> Tensor:
    """alpha = G^2 / (2 G^2 + sum(A) G^3), with G^2 cancelled against underflow."""
    below = 2 + maps.sum((1, 2), keepdim=True) * gradients
    alpha = torch.where(below > EPSILON, 1 / below, 0.0)
    return weighted((alpha * torch.relu(gradients)).sum((1, 2)), maps)


def xgradcam(maps: Tensor, gradients: Tensor) -> Tensor:
    totals = maps.sum((1, 2))
    shares = (gradients * maps).sum((1, 2))
    return weighted(torch.where(totals.abs() > EPSILON, shares / totals, 0.0 * totals), maps)


def layercam(maps: Tensor, gradients: Tensor) -> Tensor:
    return torch.relu((torch.relu(gradients) * maps).sum(0))


def hirescam(maps: Tensor, gradients: Tensor) -> Tensor:
    return torch.relu((gradients * maps).sum(0))


def eigencam(maps: Tensor) -> Tensor:
    """The activations projected on their first right singular vector, with the sign that makes the
    sum positive."""
    units = maps.flatten(1).t()  # [h w, K]
    _, _, directions = torch.linalg.svd(units, full_matrices=False)
    projected = units @ directions[0]
    projected = projected if float(projected.sum()) >= 0 else -projected
    return torch.relu(projected.view(maps.shape[1:]))


@torch.no_grad()
def scorecam(score: Score, layer: ConvLayer, planes: Tensor, maps: Tensor) -> Tensor:
    height, width = planes.shape[2:]
    large = spread(maps, layer.field, height, width)
    low, high = large.amin((1, 2), keepdim=True), large.amax((1, 2), keepdim=True)
    masks = (large - low) / (high - low).clamp_min(EPSILON)
    parts = [
        score(planes * masks[start : start + ROWS_AT_ONCE, None])
        for start in range(0, len(masks), ROWS_AT_ONCE)
    ]
    return weighted(torch.softmax(torch.cat(parts), dim=0), maps)


def spread(maps: Tensor, field: ReceptiveField, height: int, width: int) -> Tensor:
    """[..., h, w] at the size of the image: linear between the centres of the receptive fields,
    constant outside of them."""
    rows = _weights(field, 0, maps.shape[-2], height).to(maps)
    columns = _weights(field, 1, maps.shape[-1], width).to(maps)
    return rows @ maps @ columns.t()


def _weights(field: ReceptiveField, axis: int, n_units: int, n_pixels: int) -> Tensor:
    """[n_pixels, n_units] of linear interpolation."""
    place = (np.arange(n_pixels) - field.centre(axis)) / field.jump[axis]
    place = np.clip(place, 0, n_units - 1)
    below = np.minimum(place.astype(int), max(0, n_units - 2))
    weights = np.zeros((n_pixels, n_units), np.float32)
    pixels = np.arange(n_pixels)
    weights[pixels, below] = 1 - (place - below)
    weights[pixels, np.minimum(below + 1, n_units - 1)] += place - below
    return torch.from_numpy(weights)


BY_GRADIENT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gradcam": gradcam,
    "gradcam++": gradcam_plus_plus,
    "xgradcam": xgradcam,
    "layercam": layercam,
    "hirescam": hirescam,
}
TITLES = {
    "gradcam": "Grad-CAM",
    "gradcam++": "Grad-CAM++",
    "xgradcam": "XGrad-CAM",
    "layercam": "LayerCAM",
    "hirescam": "HiResCAM",
    "scorecam": "Score-CAM",
    "eigencam": "EigenCAM",
}


def cam(method: str, score: Score, layer: ConvLayer, planes: Tensor) -> np.ndarray:
    """The map of one of TITLES at the size of the image [H, W], not scaled."""
    maps, gradients = activations_and_gradients(score, layer, planes)
    if method in BY_GRADIENT:
        small = BY_GRADIENT[method](maps, gradients)
    elif method == "eigencam":
        small = eigencam(maps)
    else:
        small = scorecam(score, layer, planes, maps)
    height, width = planes.shape[2:]
    result: np.ndarray = spread(small, layer.field, height, width).cpu().numpy()
    return result
