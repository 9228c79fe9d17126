"""Pictures as uint8 arrays (height, width, 3): scaling, captions, grids, heat maps, bars, and a
picture as text for a terminal.

    tile = fit(frame, 320, 240)
    with_caption(frame, ["CartPole-v1", "step 12   return 12"])
    grid([tile_a, tile_b], 2, 2)
    overlay(picture, map_)                  # heat over an image; black where the map is 0
    strip([("frame 1", picture), ...])      # tiles with captions, side by side

A caption is a strip below the frame: it hides nothing of the game.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

if TYPE_CHECKING:  # imports gymnasium, which a machine that only publishes runs may lack
    from gymnasium_solver.spaces.observations import ImageLayout

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
    return _within(small, height, width, (height - len(small)) // 2, (width - small.shape[1]) // 2)


def _within(
    picture: np.ndarray, height: int, width: int, top: int = 0, left: int = 0
) -> np.ndarray:
    """A picture on a background of this size."""
    canvas = np.full((height, width, 3), BACKGROUND, np.uint8)
    canvas[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return canvas


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font: the same on every machine."""
    return ImageFont.load_default(size)


def caption_height(n_lines: int, size: int) -> int:
    return n_lines * (size + 6) + 6


def with_caption(frame: np.ndarray, lines: Sequence[str], size: int = 14) -> np.ndarray:
    """The frame with lines of text below it, the first one faint; text that is too long is cut."""
    width = frame.shape[1]
    below = Image.new("RGB", (width, caption_height(len(lines), size)), BACKGROUND)
    draw = ImageDraw.Draw(below)
    for row, line in enumerate(lines):
        colour = FAINT if row == 0 and len(lines) > 1 else TEXT
        draw.text((8, 4 + row * (size + 6)), cut(line, width - 12, size), colour, font(size))
    return np.concatenate([frame, np.asarray(below)])


@lru_cache(maxsize=4096)
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


def _page_grid(tiles: Sequence[np.ndarray], most: int) -> np.ndarray:
    """Tiles in as many columns as fit on a page, at most `most`."""
    columns = max(1, min(most, len(tiles), (PAGE - GAP) // (tiles[0].shape[1] + GAP)))
    return grid(tiles, -(-len(tiles) // columns), columns)


# -- what a network gets --------------------------------------------------------------------------

SEAM, BETWEEN = 2, 40  # pixels between two images of the network, and their grey


class Group(NamedTuple):
    """The planes of an image part that are shown as one picture: a frame, or a plane of its own."""

    label: str
    planes: list[int]


def plane_groups(layout: "ImageLayout", shape: tuple[int, ...], stacked: int = 1) -> list[Group]:
    """`shape` of the part in its space, `stacked` frames if a stack has no axis of its own. Three
    planes of a frame are one picture in colour; other planes are shown one by one."""
    n = shape[layout.order[0]] if len(layout.order) == 4 else stacked
    if layout.channels % n:
        n = 1
    per_frame = layout.channels // n
    if per_frame not in (1, 3):
        return [Group(f"plane {i + 1}", [i]) for i in range(layout.channels)]
    if n == 1:
        return [Group("image", list(range(per_frame)))]
    labels = [*(f"{n - 1 - i} before" for i in range(n - 1)), "newest frame"]
    planes = np.arange(layout.channels).reshape(n, per_frame).tolist()
    return [Group(label, own) for label, own in zip(labels, planes, strict=True)]


def group_pictures(planes: np.ndarray, groups: Sequence[Group]) -> list[np.ndarray]:
    """Each group of planes [C, H, W] as a picture. Black and white are 0 and 1, between which
    scaled images are, or the extremes of others."""
    low, high = float(planes.min()), float(planes.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    pictures = []
    for group in groups:
        chosen = (planes[group.planes] - low) / max(high - low, 1e-12)
        if len(chosen) != 3:
            chosen = np.repeat(chosen[:1], 3, axis=0)
        pictures.append((255 * np.clip(chosen, 0, 1)).astype(np.uint8).transpose(1, 2, 0))
    return pictures


Tiles = list[dict[str, Any]]  # the images of a picture: label, place and size


def mosaic(
    rows: Sequence[Sequence[np.ndarray]], labels: Sequence[str] = ()
) -> tuple[np.ndarray, Tiles]:
    """Pictures at their own size, in rows of one size each; and where each labelled one is."""
    heights = [row[0].shape[0] for row in rows]
    widths = [row[0].shape[1] for row in rows]
    width = max(len(row) * (w + SEAM) - SEAM for row, w in zip(rows, widths, strict=True))
    canvas = np.full((sum(heights) + SEAM * (len(rows) - 1), width, 3), BETWEEN, np.uint8)
    places, top = [], 0
    for row, h, w in zip(rows, heights, widths, strict=True):
        for i, picture in enumerate(row):
            left = i * (w + SEAM)
            canvas[top : top + h, left : left + w] = picture
            places.append({"x": left, "y": top, "w": w, "h": h})
        top += h + SEAM
    return canvas, [{"label": a, **b} for a, b in zip(labels, places, strict=False)]


# -- maps, filters and bars -----------------------------------------------------------------------

TILE = 168  # pixels: images are enlarged to about this height
SMALL_TEXT = 12  # size of letters
HEAT = np.array([(8, 8, 24), (96, 18, 110), (190, 52, 84), (246, 130, 38), (252, 250, 170)])
BLUE, WHITE, ORANGE = (0, 114, 178), (245, 245, 245), (213, 94, 0)
OPAQUE = 0.8  # of the strongest heat over a picture
PAGE = 940  # width of a page in pixels
MOST_KERNELS, MOST_INPUTS = 192, 12  # shown of a layer; the inputs of one channel
MOST_MAPS = 64  # activations shown of a layer
BAR_WIDTH, BAR_HEIGHT, NAME_WIDTH = 640, 22, 190


def enlarge(picture: np.ndarray, height: int = TILE) -> np.ndarray:
    """A picture enlarged by a whole number to at most about `height`; a large one is shrunk."""
    if picture.shape[0] > 2 * height or picture.shape[1] > 3 * height:
        return resized(picture, min(2 * height / picture.shape[0], 3 * height / picture.shape[1]))
    return resized(picture, float(max(1, round(height / picture.shape[0]))))


def unit(map_: np.ndarray) -> np.ndarray:
    """Divided by its largest magnitude; all zeros stay so."""
    top = float(np.abs(map_).max())
    return map_ / top if top > 0 and math.isfinite(top) else np.zeros_like(map_)


def stretched(map_: np.ndarray) -> np.ndarray:
    """A map scaled so that its lowest value is 0 and its highest 1; a constant map becomes 0."""
    low, high = float(map_.min()), float(map_.max())
    return (map_ - low) / (high - low) if high - low > 1e-6 * abs(high) else np.zeros_like(map_)


class Palette(NamedTuple):
    heat: np.ndarray  # colours of values from 0 to 1, evenly spaced
    signed: np.ndarray  # of values from -1 to 1


def _palette(heat: str, signed: str) -> Palette:
    """From colours in hexadecimal digits."""
    rows = [[list(bytes.fromhex(colour)) for colour in text.split()] for text in (heat, signed)]
    return Palette(np.array(rows[0]), np.array(rows[1]))


PALETTES = {
    "inferno": Palette(HEAT, np.array([BLUE, WHITE, ORANGE])),
    "viridis": _palette("440154 3b528b 21918c 5ec962 fde725", "2166ac f7f7f7 b2182b"),  # and RdBu
    "plasma": _palette("0d0887 7e03a8 cc4778 f89540 f0f921", "3b4cc0 dddddd b40426"),  # coolwarm
    "magma": _palette("000004 51127c b73779 fc8961 fcfdbf", "0000ff ffffff ff0000"),  # seismic
    "cividis": _palette("00224e 434e6c 7d7c78 bcaf6f fee838", "4575b4 ffffbf d73027"),  # RdYlBu
}


def heat(map_: np.ndarray, colours: np.ndarray = HEAT) -> np.ndarray:
    """Values from 0 to 1 as colours."""
    place = np.clip(map_, 0, 1) * (len(colours) - 1)
    below = np.minimum(place.astype(int), len(colours) - 2)
    part = (place - below)[..., None]
    return (colours[below] * (1 - part) + colours[below + 1] * part).astype(np.uint8)


def signed(map_: np.ndarray, colours: np.ndarray = PALETTES["inferno"].signed) -> np.ndarray:
    """Values from -1 to 1: blue, white, orange, or other colours."""
    return heat((np.clip(map_, -1, 1) + 1) / 2, colours)


def overlay(picture: np.ndarray, map_: np.ndarray, colours: np.ndarray = HEAT) -> np.ndarray:
    """Heat over a grey version of a picture; `map_` from 0 to 1."""
    return _over(picture, np.clip(map_, 0, 1), heat(map_, colours))


def signed_overlay(picture: np.ndarray, map_: np.ndarray) -> np.ndarray:
    """Orange where the map is positive, blue where it is negative; `map_` from -1 to 1."""
    colours = np.where((map_ >= 0)[..., None], (255, 140, 40), (60, 160, 255))
    return _over(picture, np.clip(np.abs(map_), 0, 1), colours)


def _over(picture: np.ndarray, strength: np.ndarray, colours: np.ndarray) -> np.ndarray:
    part = OPAQUE * strength[..., None] ** 0.7
    grey = picture.mean(axis=2, keepdims=True) * 0.6
    return (grey * (1 - part) + colours * part).astype(np.uint8)


def strip(tiles: Sequence[tuple[str, np.ndarray]], columns: int = 5) -> np.ndarray:
    """Pictures of any size with a caption each, in rows."""
    height = max(picture.shape[0] for _, picture in tiles)
    width = max(96, *(picture.shape[1] for _, picture in tiles))
    labelled = [
        with_caption(_within(picture, height, width), [label], SMALL_TEXT)
        for label, picture in tiles
    ]
    return _page_grid(labelled, columns)


def channel_grid(maps: np.ndarray, colours: np.ndarray = HEAT) -> np.ndarray:
    """Activations [K, h, w] as tiles of heat, all on one scale."""
    side = float(max(1, round(64 / max(maps.shape[1:]))))
    return _page_grid([resized(heat(one, colours), side) for one in unit(maps[:MOST_MAPS])], 16)


def filters_shown(n_out: int, n_in: int) -> tuple[int, int]:
    """How many channels of a layer are shown, and how many inputs of each."""
    inputs = min(n_in, MOST_INPUTS)
    return min(n_out, MOST_KERNELS // inputs), inputs


def filter_grid(
    weights: np.ndarray, colours: np.ndarray = PALETTES["inferno"].signed
) -> np.ndarray:
    """Kernels [out, in, h, w] on one scale: a block per output channel, its inputs in a row."""
    n_out, n_in = filters_shown(*weights.shape[:2])
    factor = float(max(1, round(28 / max(weights.shape[2:]))))
    blocks = [
        grid([resized(signed(kernel, colours), factor) for kernel in channel], 1, n_in)
        for channel in unit(weights[:n_out, :n_in])
    ]
    return _page_grid(blocks, len(blocks))


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


# -- in a terminal --------------------------------------------------------------------------------


class HalfBlocks:
    """A picture for rich to print in at most `columns` x `rows` characters of two pixels each."""

    def __init__(self, frame: np.ndarray, columns: int, rows: int) -> None:
        scale = max(frame.shape[1] / columns, frame.shape[0] / (2 * rows), 1.0)
        size = max(1, int(frame.shape[1] / scale)), max(2, int(frame.shape[0] / scale))
        self.pixels = np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX))

    @property
    def height(self) -> int:
        """The height in characters."""
        return len(self.pixels) // 2

    def __rich_console__(self, console: object, options: object) -> Iterator[Segment]:
        for y in range(0, len(self.pixels) - 1, 2):
            row = np.concatenate([self.pixels[y], self.pixels[y + 1]], axis=1)
            changes = np.flatnonzero((row[1:] != row[:-1]).any(axis=1)) + 1
            starts = [0, *changes.tolist()]
            for start, end in zip(starts, [*starts[1:], len(row)], strict=True):
                yield Segment("▀" * (end - start), _style(*row[start].tolist()))
            yield Segment.line()


@lru_cache(maxsize=1 << 15)
def _style(r: int, g: int, b: int, r2: int, g2: int, b2: int) -> Style:
    """The foreground is the upper pixel, the background the lower one."""
    return Style(color=Color.from_rgb(r, g, b), bgcolor=Color.from_rgb(r2, g2, b2))
