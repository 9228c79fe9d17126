"""Pictures of network inputs, heat maps, filters and bars, as uint8 (height, width, 3).

overlay(grey, map_)                heat over an image; black where the map is 0
signed(map_)                       blue below 0, orange above
strip([("frame 1", picture), ...]) tiles with captions, side by side
"""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from gymnasium_solver.media.pictures import (
    BACKGROUND,
    FAINT,
    GAP,
    TEXT,
    cut,
    fit,
    font,
    grid,
    resized,
)
from gymnasium_solver.spaces.images import ImageLayout

TILE = 168  # pixels: images are enlarged to about this height
SMALL_TEXT, LABEL = 12, 16  # size of letters; height of the line below a tile
HEAT = np.array([(8, 8, 24), (96, 18, 110), (190, 52, 84), (246, 130, 38), (252, 250, 170)])
BLUE, WHITE, ORANGE = (0, 114, 178), (245, 245, 245), (213, 94, 0)
OPAQUE = 0.8  # of the strongest heat over a picture
PAGE = 940  # width of a page in pixels
MOST_KERNELS, MOST_INPUTS = 192, 12  # shown of a layer; the inputs of one channel
MOST_MAPS = 64  # activations shown of a layer
BAR_WIDTH, BAR_HEIGHT, NAME_WIDTH = 640, 22, 190


class Group:
    """The planes of an image part that are shown as one picture: a frame, or a plane of its own."""

    def __init__(self, label: str, planes: Sequence[int]) -> None:
        self.label, self.planes = label, list(planes)


def plane_groups(layout: ImageLayout, shape: tuple[int, ...], stacked: int = 1) -> list[Group]:
    """`shape` of the part in its space, `stacked` frames if a stack has no axis of its own. Three
    planes of a frame are one picture in colour; other planes are shown one by one."""
    n_frames = shape[layout.order[0]] if len(layout.order) == 4 else stacked
    if layout.channels % n_frames:
        n_frames = 1
    per_frame = layout.channels // n_frames
    if per_frame not in (1, 3):
        return [Group(f"plane {i + 1}", [i]) for i in range(layout.channels)]
    if n_frames == 1:
        return [Group("image", range(per_frame))]
    return [
        Group(_frame_label(i, n_frames), range(i * per_frame, (i + 1) * per_frame))
        for i in range(n_frames)
    ]


def _frame_label(i: int, n: int) -> str:
    return "newest frame" if i == n - 1 else f"{n - 1 - i} before"


def enlarge(picture: np.ndarray, height: int = TILE) -> np.ndarray:
    """By a whole number, to at most about `height`; large ones are shrunk."""
    if picture.shape[0] > 2 * height or picture.shape[1] > 3 * height:
        factor = min(2 * height / picture.shape[0], 3 * height / picture.shape[1])
        return resized(picture, factor)
    return resized(picture, float(max(1, round(height / picture.shape[0]))))


def image_of(planes: np.ndarray, group: Group, bounds: tuple[float, float]) -> np.ndarray:
    """A group of planes [C, H, W] as a picture; `bounds` become black and white."""
    low, high = bounds
    chosen = (planes[group.planes] - low) / max(high - low, 1e-12)
    if len(chosen) != 3:
        chosen = np.repeat(chosen[:1], 3, axis=0)
    return (255 * np.clip(chosen, 0, 1)).astype(np.uint8).transpose(1, 2, 0)


def bounds_of(planes: np.ndarray) -> tuple[float, float]:
    """(0, 1), which scaled images have, or the extremes of others."""
    low, high = float(planes.min()), float(planes.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def unit(map_: np.ndarray) -> np.ndarray:
    """Divided by its largest magnitude; all zeros stay so."""
    top = float(np.abs(map_).max())
    return map_ / top if top > 0 and math.isfinite(top) else np.zeros_like(map_)


def stretched(map_: np.ndarray) -> np.ndarray:
    """From its lowest value, as 0, to its highest, as 1; a constant map becomes 0."""
    low, high = float(map_.min()), float(map_.max())
    return (map_ - low) / (high - low) if high - low > 1e-6 * abs(high) else np.zeros_like(map_)


def heat(map_: np.ndarray) -> np.ndarray:
    """Values from 0 to 1 as colours."""
    place = np.clip(map_, 0, 1) * (len(HEAT) - 1)
    below = np.minimum(place.astype(int), len(HEAT) - 2)
    part = (place - below)[..., None]
    return (HEAT[below] * (1 - part) + HEAT[below + 1] * part).astype(np.uint8)


def signed(map_: np.ndarray) -> np.ndarray:
    """Values from -1 to 1: blue, white, orange."""
    part = np.clip(np.abs(map_), 0, 1)[..., None]
    ends = np.where((map_ >= 0)[..., None], ORANGE, BLUE)
    return (np.array(WHITE) * (1 - part) + ends * part).astype(np.uint8)


def overlay(picture: np.ndarray, map_: np.ndarray) -> np.ndarray:
    """Heat over a grey version of a picture; `map_` from 0 to 1."""
    part = OPAQUE * np.clip(map_, 0, 1)[..., None] ** 0.7
    grey = picture.mean(axis=2, keepdims=True) * 0.6
    return (grey * (1 - part) + heat(map_) * part).astype(np.uint8)


def signed_overlay(picture: np.ndarray, map_: np.ndarray) -> np.ndarray:
    """Orange where the map is positive, blue where it is negative; `map_` from -1 to 1."""
    part = OPAQUE * np.clip(np.abs(map_), 0, 1)[..., None] ** 0.7
    grey = picture.mean(axis=2, keepdims=True) * 0.6
    ends = np.where((map_ >= 0)[..., None], (255, 140, 40), (60, 160, 255))
    return (grey * (1 - part) + ends * part).astype(np.uint8)


def strip(tiles: Sequence[tuple[str, np.ndarray]], columns: int = 5) -> np.ndarray:
    """Pictures of any size with a caption each, in rows."""
    height = max(picture.shape[0] for _, picture in tiles)
    width = max(96, *(picture.shape[1] for _, picture in tiles))
    labelled = []
    for label, picture in tiles:
        canvas = Image.new("RGB", (width, height + LABEL + 4), BACKGROUND)
        canvas.paste(Image.fromarray(picture), (0, 0))
        ImageDraw.Draw(canvas).text(
            (2, height + 2), cut(label, width - 4, SMALL_TEXT), TEXT, font(SMALL_TEXT)
        )
        labelled.append(np.asarray(canvas))
    columns = max(1, min(columns, len(labelled), (PAGE - GAP) // (width + GAP)))
    return grid(labelled, -(-len(labelled) // columns), columns)


def channel_grid(maps: np.ndarray) -> np.ndarray:
    """Activations [K, h, w] as tiles of heat, all on one scale."""
    scaled = unit(maps[:MOST_MAPS])
    side = max(1, round(64 / max(maps.shape[1:])))
    tiles = [resized(heat(np.maximum(one, 0)), float(side)) for one in scaled]
    columns = min(len(tiles), max(1, min(16, PAGE // (tiles[0].shape[1] + GAP))))
    return grid(tiles, -(-len(tiles) // columns), columns)


def filters_shown(n_out: int, n_in: int) -> tuple[int, int]:
    """How many channels of a layer are shown, and how many inputs of each."""
    inputs = min(n_in, MOST_INPUTS)
    return min(n_out, MOST_KERNELS // inputs), inputs


def filter_grid(weights: np.ndarray) -> np.ndarray:
    """Kernels [out, in, h, w] on one scale: a block per output channel, its inputs in a row."""
    n_out, n_in = filters_shown(*weights.shape[:2])
    shown = unit(weights[:n_out, :n_in])
    factor = float(max(1, round(28 / max(weights.shape[2:]))))
    blocks = [
        grid([resized(signed(kernel), factor) for kernel in channel], 1, len(channel))
        for channel in shown
    ]
    columns = max(1, min(len(blocks), PAGE // (blocks[0].shape[1] + GAP)))
    return grid(blocks, -(-len(blocks) // columns), columns)


def patch_row(patches: Sequence[np.ndarray], largest: int) -> np.ndarray:
    """Patches of one channel side by side, enlarged, in squares for patches of side `largest`."""
    side = largest * max(1, round(60 / largest))
    return grid([fit(patch, side, side) for patch in patches], 1, len(patches))


def bars(names: Sequence[str], numbers: Sequence[float]) -> np.ndarray:
    """Horizontal bars around a middle line, blue below 0, orange above; the number at the right."""
    top = max((abs(number) for number in numbers), default=0.0) or 1.0
    image = Image.new("RGB", (BAR_WIDTH, BAR_HEIGHT * len(names) + 12), BACKGROUND)
    draw = ImageDraw.Draw(image)
    left, right = NAME_WIDTH, BAR_WIDTH - 90
    middle, half = (left + right) // 2, (right - left) / 2 - 4
    for row, (name, number) in enumerate(zip(names, numbers, strict=True)):
        y = 6 + row * BAR_HEIGHT
        draw.text((8, y + 3), cut(name, NAME_WIDTH - 16, SMALL_TEXT), TEXT, font(SMALL_TEXT))
        end = middle + round(half * number / top)
        colour = ORANGE if number >= 0 else BLUE
        draw.rectangle((min(middle, end), y + 4, max(middle, end), y + BAR_HEIGHT - 5), colour)
        draw.text((right + 8, y + 3), f"{number:+.3g}", TEXT, font(SMALL_TEXT))
    draw.line((middle, 4, middle, image.height - 5), FAINT)
    return np.asarray(image)
