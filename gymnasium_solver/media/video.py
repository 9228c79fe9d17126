"""Writes frames to a video file: MP4, GIF or WebP, by the suffix of its name.

    with open_video(Path("best.mp4"), fps=50) as video:
        video.add(frame)                # uint8 (height, width, 3), all of one size

MP4 is H.264 in yuv420p with its index at the start (faststart), which every browser plays while it
loads. It needs ffmpeg, which the extra `video` brings. GIF and WebP are written by Pillow.

The file appears under its name when it is complete. If writing fails, no file is left.
"""

import os
import subprocess
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
from PIL import Image

from gymnasium_solver.errors import GsolveError

SUFFIXES = (".mp4", ".gif", ".webp")
FFMPEG_HINT = 'MP4 needs ffmpeg: pip install "gymnasium-solver[video]", or write .gif or .webp'
# GIF counts in hundredths of a second, and browsers slow down anything above 50 frames a second.
# At 25 the files of both are half as large and look the same.
PILLOW_FPS = 25.0
CRF = 20  # constant rate factor of x264: 18 is visually lossless, 23 is its default
PAD = 16  # grey of the pixels added to an odd side


class VideoError(GsolveError):
    """A video cannot be written."""


def ffmpeg_exe() -> str | None:
    """Path of the ffmpeg to use; None if there is none."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return None


def open_video(path: Path, fps: float) -> "VideoWriter":
    """A writer for the format that the suffix names; VideoError if it is unknown or unavailable."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise VideoError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}.")
    if not fps > 0:
        raise VideoError(f"fps must be above 0, got {fps}.")
    if suffix != ".mp4":
        return PillowWriter(path, fps)
    exe = ffmpeg_exe()
    if exe is None:
        raise VideoError(f"{path.name}: {FFMPEG_HINT}.")
    return Mp4Writer(path, fps, exe)


class VideoWriter(ABC):
    """Counts the frames and checks that they are of one size."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self.fps = path, fps
        self.n_frames = 0
        self.shape: tuple[int, ...] | None = None
        self._part = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._part.touch()
        except OSError as error:
            raise VideoError(f"{path} cannot be written: {error.strerror or error}.") from error

    def add(self, frame: np.ndarray) -> None:
        if self.shape is None:
            self.shape = frame.shape
        if frame.shape != self.shape:
            raise VideoError(
                f"{self.path}: a frame has the shape {frame.shape}, the first one {self.shape}."
            )
        self._write(np.ascontiguousarray(frame, np.uint8))
        self.n_frames += 1

    def close(self) -> None:
        """Complete the file."""
        if not self.n_frames:
            self.discard()
            raise VideoError(f"{self.path}: no frame was drawn.")
        self._finish()
        self._part.replace(self.path)

    def discard(self) -> None:
        """Stop, and leave no file."""
        self._part.unlink(missing_ok=True)

    @abstractmethod
    def _write(self, frame: np.ndarray) -> None: ...

    @abstractmethod
    def _finish(self) -> None:
        """Complete the partial file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class Mp4Writer(VideoWriter):
    """Sends raw frames to an ffmpeg process."""

    def __init__(self, path: Path, fps: float, exe: str) -> None:
        super().__init__(path, fps)
        self._exe = exe
        self._process: subprocess.Popen[bytes] | None = None

    def _write(self, frame: np.ndarray) -> None:
        height, width, _ = frame.shape  # even sides, as yuv420p needs them
        frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), constant_values=PAD)
        if self._process is None:
            self._process = self._start(frame.shape[1], frame.shape[0])
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame.data)
        except OSError as error:
            raise self._failed() from error

    def _start(self, width: int, height: int) -> "subprocess.Popen[bytes]":
        given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
        coded = ["-c:v", "libx264", "-preset", "veryfast", "-crf", str(CRF), "-pix_fmt", "yuv420p"]
        return subprocess.Popen(
            [
                *(self._exe, "-y", "-v", "error", *given, "-r", f"{self.fps:.6g}", "-i", "-"),
                *("-an", *coded, "-threads", "1", "-movflags", "+faststart", "-f", "mp4"),
                str(self._part),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,  # errors alone, a few lines
            start_new_session=os.name == "posix",  # Ctrl-C is for us, not for ffmpeg
        )

    def _finish(self) -> None:
        process = self._process
        assert process is not None
        try:
            _, said = process.communicate()
        except OSError as error:
            raise self._failed() from error
        if process.returncode != 0:
            raise self._failed(said)

    def discard(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        super().discard()

    def _failed(self, said: bytes = b"") -> VideoError:
        """The error with the last line that ffmpeg wrote; `said`: its output, if already read."""
        process, self._process = self._process, None
        assert process is not None
        if process.stderr is not None and not process.stderr.closed:
            said = process.stderr.read()
            process.kill()
        process.wait()
        self.discard()
        lines = said.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {process.returncode}"
        return VideoError(f"{self.path}: ffmpeg failed: {why}")


class PillowWriter(VideoWriter):
    """GIF or WebP. Frames are kept, compressed, until the file is written at the end."""

    def __init__(self, path: Path, fps: float) -> None:
        super().__init__(path, fps)
        self._tape = FrameTape()
        self._step = max(1.0, fps / PILLOW_FPS)  # one of this many frames is written
        self._next = 0.0

    def _write(self, frame: np.ndarray) -> None:
        if self.n_frames >= round(self._next):
            self._tape.append(frame)
            self._next += self._step

    def _finish(self) -> None:
        images = (Image.fromarray(frame) for frame in self._tape)
        first = next(images)
        duration = 1000.0 * self._step / self.fps
        kind = self.path.suffix[1:].upper()
        more = {"optimize": False} if kind == "GIF" else {"quality": 80, "method": 2}
        how = {"save_all": True, "duration": round(duration), "loop": 0, **more}
        try:
            first.save(self._part, kind, append_images=images, **how)
        except (OSError, ValueError) as error:
            self.discard()
            raise VideoError(f"{self.path} cannot be written: {error}.") from error


class FrameTape:
    """Frames of one size in memory, compressed without loss."""

    def __init__(self) -> None:
        self._bodies: list[bytes] = []
        self._shape: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self._bodies)

    def append(self, frame: np.ndarray) -> None:
        self._shape = frame.shape
        self._bodies.append(zlib.compress(np.ascontiguousarray(frame).data, 1))

    def __iter__(self) -> Iterator[np.ndarray]:
        for body in self._bodies:
            yield np.frombuffer(zlib.decompress(body), np.uint8).reshape(self._shape)
