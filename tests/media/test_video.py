"""Video files: format, size, number of frames, and what is left behind when something fails."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gymnasium_solver.media import video as module
from gymnasium_solver.media.video import FrameTape, VideoError, VideoWriter, open_video
from tests.media.counting import count_in, needs_ffmpeg, picture_of, read_video


def fill(video: VideoWriter, n: int) -> None:
    for count in range(n):
        video.add(picture_of(count % 200))
    video.close()


def write(path: Path, n: int = 6, fps: float = 10) -> None:
    fill(open_video(path, fps), n)


@needs_ffmpeg
def test_an_mp4_plays_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "new" / "count.mp4"
    write(path)
    facts, frames = read_video(path)
    assert facts["codec"] == "h264"
    assert facts["pix_fmt"].startswith("yuv420p")
    assert facts["size"] == (68, 46)  # 67 x 45, made even
    assert facts["fps"] == 10
    assert [count_in(frame) for frame in frames] == [0, 1, 2, 3, 4, 5]
    body = path.read_bytes()
    assert body.index(b"moov") < body.index(b"mdat")  # faststart: the index comes first


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_gif_and_webp_need_nothing_but_pillow(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"count{suffix}"
    write(path, fps=10)
    with Image.open(path) as image:
        assert image.n_frames == 6  # type: ignore[attr-defined]
        assert image.size == (67, 45)
        counts = []
        for index in range(6):
            image.seek(index)
            counts.append(count_in(np.asarray(image.convert("RGB"))))
        assert counts == [0, 1, 2, 3, 4, 5]
        assert image.info["duration"] == 100
        assert image.info["loop"] == 0


def test_a_fast_gif_drops_frames_and_keeps_its_length(tmp_path: Path) -> None:
    write(tmp_path / "fast.gif", n=50, fps=50)
    with Image.open(tmp_path / "fast.gif") as image:
        assert image.n_frames == 25  # type: ignore[attr-defined]
        assert image.info["duration"] == 40


@pytest.mark.parametrize("name", ["a.gif", pytest.param("a.mp4", marks=needs_ffmpeg)])
def test_a_failure_leaves_no_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "videos" / name
    with pytest.raises(ValueError, match="reshape"), open_video(path, 10) as video:
        video.add(picture_of(1).reshape(1, 2, 3, 4))
    with pytest.raises(VideoError, match="no frame was drawn"), open_video(path, 10):
        pass
    assert list(path.parent.iterdir()) == []


def test_what_cannot_be_written_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(VideoError, match=r"a\.avi: expected a name that ends in \.mp4, \.gif"):
        open_video(Path("a.avi"), 10)
    with pytest.raises(VideoError, match="fps must be above 0, got 0"):
        open_video(Path("a.gif"), 0)
    (tmp_path / "file").touch()
    with pytest.raises(VideoError, match=r"cannot be written: (Not a directory|File exists)"):
        open_video(tmp_path / "file" / "a.gif", 10)
    monkeypatch.setattr(module, "ffmpeg_exe", lambda: None)
    with pytest.raises(VideoError, match=r"MP4 needs ffmpeg: pip install .*\[video\]"):
        open_video(Path("a.mp4"), 10)
    writer = open_video(tmp_path / "a.gif", 10)
    writer.add(picture_of(1))
    with pytest.raises(VideoError, match=r"shape \(4, 4, 3\), the first one \(45, 67, 3\)"):
        writer.add(np.zeros((4, 4, 3), np.uint8))
    writer.discard()


@needs_ffmpeg
def test_what_ffmpeg_complains_about_is_told(tmp_path: Path) -> None:
    script = tmp_path / "ffmpeg"
    script.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    script.chmod(0o755)
    writer = module.Mp4Writer(tmp_path / "a.mp4", 10, str(script))
    with pytest.raises(VideoError, match="ffmpeg failed: no space left"):
        fill(writer, 2000)
    assert not list(tmp_path.glob("*a.mp4*"))


def test_a_tape_keeps_frames_exactly() -> None:
    tape = FrameTape()
    frames = [picture_of(n) for n in range(3)]
    for frame in frames:
        tape.append(frame)
    assert len(tape) == 3
    assert all(np.array_equal(a, b) for a, b in zip(tape, frames, strict=True))
