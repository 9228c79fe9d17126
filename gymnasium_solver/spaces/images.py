"""Images in an observation: which spaces are images, and how their axes lie.

    layout = image_layout(spaces.Box(0, 255, (84, 84, 3), np.uint8))   # 3 planes of 84 x 84
    planes = layout.planes(obs)                 # [B, 84, 84, 3] -> [B, 3, 84, 84], a view

This module must not import torch, because environments import it.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from gymnasium import spaces

from gymnasium_solver.spaces.observations import Space

if TYPE_CHECKING:
    from torch import Tensor

MOST_CHANNELS_LAST = 4  # of a frame in a frame stack: greyscale to RGBA
LEAST_PLANE = 32  # a two-dimensional uint8 array is an image from this size on
LEAST_SIDE = 8  # of the images that `policy: auto` recognises


class ImageLayout(NamedTuple):
    """The axes of an image: `order` permutes one observation to [channels, height, width] or, for a
    frame stack, to [frames, channels, height, width]."""

    channels: int  # total over all frames
    height: int
    width: int
    order: tuple[int, ...]

    def planes(self, obs: "Tensor") -> "Tensor":
        """[B, *shape] -> [B, channels, height, width]."""
        if len(self.order) == 2:
            return obs.unsqueeze(1)
        if self.order != tuple(range(len(self.order))):
            obs = obs.permute(0, *(axis + 1 for axis in self.order))
        return obs.flatten(1, 2) if len(self.order) == 4 else obs


def image_layout(space: Space) -> ImageLayout | None:
    """Return the image layout, or None if the space is not an image.

    Three axes: the shorter of the first and the last axis is the channels; if equal, the first.
    Four axes: a frame stack, with channels last if there are at most 4, otherwise channels after
    the stack axis. Two axes, uint8, at least 32 x 32: one greyscale plane.
    """
    shape = space.shape if isinstance(space, spaces.Box) else None
    if shape is None or min(shape, default=0) < 1:
        return None
    if len(shape) == 2 and min(shape) >= LEAST_PLANE and space.dtype == np.uint8:
        return ImageLayout(1, shape[0], shape[1], (0, 1))
    order: tuple[int, ...]
    if len(shape) == 3:
        order = (0, 1, 2) if shape[0] <= shape[2] else (2, 0, 1)
    elif len(shape) == 4:
        order = (0, 3, 1, 2) if shape[3] <= MOST_CHANNELS_LAST else (0, 1, 2, 3)
    else:
        return None
    *stack, height, width = (shape[axis] for axis in order)
    return ImageLayout(int(np.prod(stack)), height, width, order)


def is_image(space: Space) -> bool:
    """Whether a space is taken for an image without being told: pixels (uint8 from 0 to 255) of at
    least 8 x 8. A board of zeros and ones or a small grid of codes is not."""
    layout = image_layout(space)
    if layout is None or space.dtype != np.uint8 or shorter(layout) < LEAST_SIDE:
        return False
    assert isinstance(space, spaces.Box)
    return bool(space.low.min() == 0 and space.high.max() == 255)


def shorter(layout: ImageLayout) -> int:
    return min(layout.height, layout.width)
