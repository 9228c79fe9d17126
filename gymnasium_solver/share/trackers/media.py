"""Videos of a run in the form that a tracker takes."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

MOST_FRAMES = 300
MOST_WIDTH = 320


def as_gif(path: Path) -> tuple[bytes, int, int] | None:
    """A video as GIF with its width and height; None if it is gone or cannot be read here."""
    if not path.is_file():
        return None
    frames = _ffmpeg_frames(path) if path.suffix == ".mp4" else _pillow_frames(path)
    if not frames:
        return None
    from PIL import Image

    small = []
    for frame in frames[:: max(1, len(frames) // MOST_FRAMES)]:
        width = min(MOST_WIDTH, frame.width)
        size = (width, max(1, round(frame.height * width / frame.width)))
        small.append(frame.convert("RGB").resize(size, Image.Resampling.BOX))
    buffer = io.BytesIO()
    small[0].save(buffer, "GIF", save_all=True, append_images=small[1:], duration=50, loop=0)
    return buffer.getvalue(), *small[0].size


def _pillow_frames(path: Path) -> "list[Image.Image]":
    from PIL import Image, ImageSequence

    try:
        with Image.open(path) as image:
            return [frame.copy() for frame in ImageSequence.Iterator(image)]
    except (OSError, ValueError, SyntaxError):
        return []


def _ffmpeg_frames(path: Path) -> "list[Image.Image]":
    try:
        import imageio_ffmpeg
    except ImportError:
        return []
    from PIL import Image

    try:
        frames = imageio_ffmpeg.read_frames(str(path))
        size = next(frames)["size"]
        return [Image.frombytes("RGB", size, data) for data in frames]
    except (OSError, RuntimeError, StopIteration):
        return []
