"""Event files of TensorBoard, written without TensorFlow or protobuf: messages, and the file."""

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Field numbers are those of event.proto, summary.proto, tensor.proto and, for hyper-parameters,
# api.proto of the HParams plugin.

DT_STRING = 7
SUCCESS, FAILURE = 1, 2  # of the HParams plugin


def message(*fields: tuple[int, Any]) -> bytes:
    """(number, value) of each field: a whole number, a double, a float (np.float32), text, bytes or
    another message, or a list of doubles."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(int(value))]
        elif isinstance(value, float):
            parts += [_varint(number << 3 | 1), struct.pack("<d", value)]
        elif isinstance(value, np.float32):
            parts += [_varint(number << 3 | 5), struct.pack("<f", value)]
        else:
            data = value.encode(errors="replace") if isinstance(value, str) else value
            data = struct.pack(f"<{len(data)}d", *data) if isinstance(data, list) else data
            parts += [_varint(number << 3 | 2), _varint(len(data)), data]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def scalar(tag: str, value: float) -> bytes:
    limit = 3.4028235e38  # a float holds no more
    return message((1, tag), (2, np.float32(max(-limit, min(limit, value)))))


def histogram(tag: str, limits: Sequence[float], counts: Sequence[float]) -> bytes:
    """`limits`: the right edge of each bucket; the first bucket begins one width before it."""
    width = limits[1] - limits[0] if len(limits) > 1 else 1.0
    low, total = limits[0] - width, float(sum(counts))
    middles = [limit - width / 2 for limit in limits]
    sums = [sum(c * m**k for c, m in zip(counts, middles, strict=True)) for k in (1, 2)]
    values = [low, limits[-1], total, *map(float, sums), [low, *limits], [0.0, *counts]]
    return message((1, tag), (5, message(*enumerate(values, start=1))))


def image(tag: str, encoded: bytes, width: int, height: int) -> bytes:
    """`encoded`: a PNG, or a GIF, which TensorBoard plays."""
    return message((1, tag), (4, message((1, height), (2, width), (3, 3), (4, encoded))))


def text(tag: str, markdown: str) -> bytes:
    shape = message((2, message((1, 1))))
    tensor = message((1, DT_STRING), (2, shape), (8, markdown))
    return message((1, tag), (8, tensor), (9, message((1, message((1, "text"))), (4, 2))))


def hparams_start(values: Mapping[str, Any], group: str, start_s: float) -> bytes:
    """The hyper-parameters of the run in this folder."""
    entries = []
    for name, value in values.items():
        typed: tuple[int, Any] = (3, str(value))
        if isinstance(value, int | float):
            typed = (4, value) if isinstance(value, bool) else (2, float(value))
        entries.append((1, message((1, name), (2, message(typed)))))
    info = message(*entries, (4, group), (5, start_s))
    return _hparams("start", message((3, info)))


def hparams_end(is_success: bool, end_s: float) -> bytes:
    info = message((1, SUCCESS if is_success else FAILURE), (2, end_s))
    return _hparams("end", message((4, info)))


def _hparams(when: str, data: bytes) -> bytes:
    plugin = message((1, message((1, "hparams"), (2, data))))
    return message((1, f"_hparams_/session_{when}_info"), (9, plugin))


# -- the file -------------------------------------------------------------------------------------

_CRC = [0] * 256  # CRC-32C, reflected
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = (_crc >> 1) ^ (0x82F63B78 if _crc & 1 else 0)
    _CRC[_byte] = _crc


def masked_crc(data: bytes) -> int:
    """The checksum of a record, rotated as TensorFlow does."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class EventFile:
    """Appends events. `size`: where an earlier writer is known to have ended."""

    def __init__(self, path: Path, size: int | None = None, wall_time: float = 0.0) -> None:
        self.path = path
        self._file = path.open("ab" if size is not None else "wb")
        if size is not None:
            self._file.truncate(size)
        else:
            self._write(message((1, wall_time), (3, "brain.Event:2")))

    def add(self, wall_time: float, step: int, values: Sequence[bytes]) -> None:
        if values:
            summary = message(*((1, value) for value in values))
            self._write(message((1, wall_time), (2, step), (5, summary)))

    def add_graph(self, wall_time: float, graph: bytes) -> None:
        self._write(message((1, wall_time), (4, graph)))

    def _write(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        sums = struct.pack("<I", masked_crc(length)), struct.pack("<I", masked_crc(data))
        self._file.write(length + sums[0] + data + sums[1])

    def sync(self) -> int:
        """The size of the file, now on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
