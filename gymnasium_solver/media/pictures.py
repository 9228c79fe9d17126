"""Arrays of pixels: scaling, captions and grids.

    tile = fit(frame, 320, 240)
    with_caption(frame, ["CartPole-v1", "step 12   return 12"])
    grid([tile_a, tile_b, None], 2, 2)

A caption is a strip below the frame: it hides nothing of the game.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

BACKGROUND = (24, 26, 30)
TEXT, FAINT = (235, 235, 235), (150, 155, 162)
GAP = 4  # pixels between tiles
DIM = 0.35  # brightness of a finished tile


def rgb(frame: np.ndarray) -> np.ndarray:
    """Any image as uint8 (height, width, 3): grey ones get three channels, alpha is dropped."""
    if frame.ndim == 2:
        frame = frame[..., None]
    if frame.dtype != np.uint8:
        frame = (255 * np.clip(frame, 0.0, 1.0)).astype(np.uint8)
    if frame.shape[2] == 1:
        return np.repeat(frame, 3, axis=2)
    return frame[..., :3]


def scale_for(frame_shape: tuple[int, ...], width: float, height: float) -> float:
    """The factor that fits a frame into width x height: a whole number above 1 keeps pixels sharp,
    one over a whole number makes shrinking fast."""
    factor = min(width / frame_shape[1], height / frame_shape[0])
    if factor >= 1:
        return float(int(factor))
    return factor if factor > 0.75 else 1.0 / math.ceil(1.0 / factor)


def resized(frame: np.ndarray, factor: float) -> np.ndarray:
    if factor == 1.0:
        return frame
    if factor > 1 and factor == int(factor):
        return frame.repeat(int(factor), axis=0).repeat(int(factor), axis=1)
    image = Image.fromarray(frame)
    if factor < 1 and (1 / factor).is_integer():
        return np.asarray(image.reduce(int(1 / factor)))
    size = max(1, round(frame.shape[1] * factor)), max(1, round(frame.shape[0] * factor))
    how = Image.Resampling.BOX if factor < 1 else Image.Resampling.BILINEAR
    return np.asarray(image.resize(size, how))


def fit(frame: np.ndarray, width: int, height: int) -> np.ndarray:
    """The frame scaled to fit, in the middle of width x height pixels."""
    small = resized(frame, scale_for(frame.shape, width, height))
    if small.shape[:2] == (height, width):
        return small
    canvas = np.full((height, width, 3), BACKGROUND, np.uint8)
    top, left = (height - small.shape[0]) // 2, (width - small.shape[1]) // 2
    canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
    return canvas


def dimmed(frame: np.ndarray) -> np.ndarray:
    return (frame * DIM).astype(np.uint8)


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font: the same on every machine."""
    return ImageFont.load_default(size)


def caption_height(n_lines: int, size: int) -> int:
    return n_lines * (size + 6) + 6


def with_caption(frame: np.ndarray, lines: Sequence[str], size: int = 14) -> np.ndarray:
    """The frame with lines of text below it, the first one faint; text that is too long is cut."""
    width = frame.shape[1]
    strip = Image.new("RGB", (width, caption_height(len(lines), size)), BACKGROUND)
    draw = ImageDraw.Draw(strip)
    for row, line in enumerate(lines):
        colour = FAINT if row == 0 and len(lines) > 1 else TEXT
        draw.text((8, 4 + row * (size + 6)), cut(line, width - 12, size), colour, font(size))
    return np.concatenate([frame, np.asarray(strip)])


def cut(text: str, width: float, size: int) -> str:
    """The text, shortened with an ellipsis to at most `width` pixels."""
    letters = font(size)
    if letters.getlength(text) <= width:
        return text
    while text and letters.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"


def grid(tiles: Sequence[np.ndarray], rows: int, columns: int) -> np.ndarray:
    """Tiles of one size, row by row, with gaps; places without a tile stay empty."""
    height, width = tiles[0].shape[:2]
    canvas = np.full(
        (rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), BACKGROUND, np.uint8
    )
    for index, tile in enumerate(tiles):
        top = GAP + index // columns * (height + GAP)
        left = GAP + index % columns * (width + GAP)
        canvas[top : top + height, left : left + width] = tile
    return canvas
