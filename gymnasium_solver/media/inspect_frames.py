"""Encodes what the inspector shows: the drawn environment, and the input of the network.

encoder = FrameEncoder()
body = encoder(frame)            # PNG where the first frame is small, otherwise JPEG
net_picture(agent, decision)     # every image that the network gets, side by side; always PNG
"""

import io
from typing import Any

import numpy as np
from PIL import Image

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.media.actors import Decision
from gymnasium_solver.media.explain_look import groups_of
from gymnasium_solver.media.explain_pictures import bounds_of, image_of
from gymnasium_solver.nets.encoder import ObsEncoder

SMALL_PNG = 16 * 1024
JPEG_QUALITY = 85
GAP = 2
BETWEEN = 40  # grey between two planes


class FrameEncoder:
    """The format is chosen by the first frame and then kept."""

    def __init__(self, format: str | None = None) -> None:
        self.format = format
        self.size: tuple[int, int] | None = None
        """Width and height of the first frame."""

    def __call__(self, frame: np.ndarray) -> bytes:
        image = Image.fromarray(np.ascontiguousarray(frame))
        self.size = self.size or image.size
        if self.format is None:
            body = encoded(image, "png")
            self.format = "png" if len(body) <= SMALL_PNG else "jpeg"
            if self.format == "png":
                return body
        return encoded(image, self.format)

    def facts(self) -> dict[str, Any]:
        width, height = self.size or (0, 0)
        return {"format": self.format, "width": width, "height": height}


def encoded(image: Image.Image, format: str) -> bytes:
    file = io.BytesIO()
    if format == "png":
        image.save(file, "PNG", compress_level=3)
    else:
        image.save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def net_picture(agent: Agent, decision: Decision) -> tuple[np.ndarray, list[dict[str, Any]]] | None:
    """The images that the network gets at their own size, and where each one is; None without."""
    encoder = getattr(agent.net, "encoder", None)
    if not isinstance(encoder, ObsEncoder) or not encoder.layouts:
        return None
    rows: list[np.ndarray] = []
    tiles: list[dict[str, Any]] = []
    top = 0
    for name in encoder.layouts:
        planes = decision.seen.get(f"image {name}")
        if planes is None:
            continue
        groups, bounds = groups_of(agent, name), bounds_of(planes)
        height, width = planes.shape[1:]
        strip = np.full((height, len(groups) * (width + GAP) - GAP, 3), BETWEEN, np.uint8)
        for i, group in enumerate(groups):
            left = i * (width + GAP)
            strip[:, left : left + width] = image_of(planes, group, bounds)
            label = f"{name}: {group.label}" if name else group.label
            tiles.append({"label": label, "x": left, "y": top, "w": width, "h": height})
        rows.append(strip)
        top += height + GAP
    if not rows:
        return None
    total = max(strip.shape[1] for strip in rows)
    padded = [
        np.pad(strip, ((0, GAP), (0, total - strip.shape[1]), (0, 0)), constant_values=BETWEEN)
        for strip in rows
    ]
    return np.concatenate(padded)[:-GAP], tiles
