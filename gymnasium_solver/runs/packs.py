"""Frame packs: the still images of an episode, in files that can be read while they are written.

    writer = PackWriter(folder, "render")
    writer.add(body)                          # one encoded image
    pack_bytes(folder, "render", chunk=0)     # the file, for a browser
    frame_bytes(folder, "render", t=70)       # one image

A file `<view>-<chunk>.pack` has up to CHUNK images. It begins with a u32 count and CHUNK + 1 u32
offsets from its start (little-endian); image i is the bytes from offset i to offset i + 1. The
table has a fixed size, so nothing moves when an image is added. The count is written last: a reader
that takes it first finds whole images, also while the file grows and after the writer was killed.
"""

import os
import stat
import struct
from pathlib import Path

from gymnasium_solver.errors import RunError

CHUNK = 64
HEADER = 4 * (CHUNK + 2)
LARGEST = 1 << 30  # bytes of a pack that is read; 64 images of any size we write are far below


def pack_path(folder: Path, view: str, chunk: int) -> Path:
    return folder / f"{view}-{chunk:04d}.pack"


class PackWriter:
    def __init__(self, folder: Path, view: str) -> None:
        self.folder, self.view, self.n_frames = folder, view, 0
        self._handle: int | None = None
        self._end = HEADER

    def add(self, body: bytes) -> None:
        slot = self.n_frames % CHUNK
        if slot == 0:
            self._open(self.n_frames // CHUNK)
        assert self._handle is not None
        _write_at(self._handle, body, self._end)
        self._end += len(body)
        _write_at(self._handle, struct.pack("<I", self._end), 4 * (slot + 2))
        _write_at(self._handle, struct.pack("<I", slot + 1), 0)
        self.n_frames += 1

    def _open(self, chunk: int) -> None:
        self.close()
        path = pack_path(self.folder, self.view, chunk)
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        header = struct.pack("<II", 0, HEADER) + bytes(4 * CHUNK)
        _write_at(self._handle, header, 0)
        self._end = HEADER

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _write_at(handle: int, data: bytes, place: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(handle, rest, place)
        rest, place = rest[written:], place + written


def pack_bytes(folder: Path, view: str, chunk: int) -> bytes:
    """A whole pack; RunError if it is missing or damaged."""
    path = pack_path(folder, view, chunk)
    try:
        found = os.lstat(path)  # a link in a copied folder could point anywhere
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise RunError(f"{path} is not a frame pack.")
        data = path.read_bytes()
    except OSError:
        raise RunError(f"{path.parent.name} has no frames {path.name}.") from None
    offsets_of(data, path.name)
    return data


def offsets_of(pack: bytes, name: str = "pack") -> tuple[int, ...]:
    """The offsets of the whole images: one more than there are images."""
    if len(pack) < HEADER:
        raise RunError(f"{name} is not a frame pack: it is too short.")
    count = struct.unpack_from("<I", pack)[0]
    if count > CHUNK:
        raise RunError(f"{name} is damaged: it says that it has {count} images.")
    offsets = struct.unpack_from(f"<{count + 1}I", pack, 4)
    if offsets[0] != HEADER or offsets[-1] > len(pack) or list(offsets) != sorted(offsets):
        raise RunError(f"{name} is damaged: its offsets are wrong.")
    return offsets


def frame_bytes(folder: Path, view: str, t: int) -> bytes:
    """The encoded image of one step; RunError if there is none."""
    pack = pack_bytes(folder, view, t // CHUNK)
    offsets = offsets_of(pack)
    slot = t % CHUNK
    if slot + 1 >= len(offsets):
        raise RunError(f"{folder.name} has no frame of step {t}.")
    return pack[offsets[slot] : offsets[slot + 1]]


def count_frames(folder: Path, view: str) -> int:
    """How many whole images there are."""
    chunk = 0
    while pack_path(folder, view, chunk + 1).is_file():
        chunk += 1
    try:
        with pack_path(folder, view, chunk).open("rb") as file:
            head = file.read(4)
    except OSError:
        return 0
    count: int = struct.unpack("<I", head)[0] if len(head) == 4 else 0
    return chunk * CHUNK + min(count, CHUNK)
