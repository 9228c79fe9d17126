"""How much a number that a network computes depends on each pixel or component of its input.

    score = lambda planes: net(planes)[:, action]           # [B, ...] -> [B]
    gradient_saliency(score, planes)                        # [C, H, W], at least 0
    occlusion(score, planes, groups=[[0], [1]], size=8)     # [2, H, W]
    gradient_times_input(score, vector)                     # [width]

`planes` and `vector` are one observation with a batch axis of 1.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

Score = Callable[[Tensor], Tensor]
"""A batch of inputs [B, ...] -> the explained number of each [B]."""
ROWS_AT_ONCE = 128


def input_gradient(score: Score, given: Tensor) -> np.ndarray:
    """Derivative of the score by each input of one row, without the batch axis."""
    given = given.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        total = score(given).sum()
    if not total.requires_grad:  # the score does not depend on this input
        return np.zeros(given.shape[1:], np.float32)
    (gradient,) = torch.autograd.grad(total, given, allow_unused=True)
    if gradient is None:
        return np.zeros(given.shape[1:], np.float32)
    result: np.ndarray = gradient[0].cpu().numpy()
    return result


def gradient_saliency(score: Score, planes: Tensor) -> np.ndarray:
    """|gradient| of each pixel of each plane (Simonyan et al. 2014)."""
    return np.abs(input_gradient(score, planes))


def gradient_times_input(score: Score, vector: Tensor) -> np.ndarray:
    """What each component contributes to a linear score; a first-order estimate for others."""
    product: np.ndarray = input_gradient(score, vector) * vector[0].detach().cpu().numpy()
    return product


def patch_size(height: int, width: int) -> int:
    """Side of the covered square: a tenth of the shorter side."""
    return max(1, round(min(height, width) / 10))


@torch.no_grad()
def occlusion(
    score: Score, planes: Tensor, groups: Sequence[Sequence[int]], size: int | None = None
) -> np.ndarray:
    """By how much the score falls if a square around a pixel is covered (Zeiler and Fergus 2014).

    Returns [len(groups), H, W]; a group is the planes of one frame, which are covered together. The
    square takes the median of its plane, which in most games is the background, and moves by half
    of its side. A pixel gets the mean over all squares that cover it.
    """
    _, _, height, width = planes.shape
    size = size or patch_size(height, width)
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
