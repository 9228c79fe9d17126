"""TensorBoard's event files, written without TensorFlow: protocol buffers in checked records.

    with EventFile(path) as file:
        file.add(wall_time, step, [scalar("loss", 0.1), image("frame", gif, 84, 84)])

Field numbers are those of event.proto, summary.proto, tensor.proto and, for hyper-parameters,
api.proto of the HParams plugin.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_POLY = 0x82F63B78  # CRC-32C, reflected
_MASK = 0xA282EAD8
FILE_VERSION = "brain.Event:2"
DT_STRING = 7
SUCCESS, FAILURE = 1, 2  # of the HParams plugin


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLY if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _table()


def masked_crc(data: bytes) -> int:
    """The checksum of a record, rotated as TensorFlow does."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


# -- protocol buffers ---------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_int(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def field_double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def field_float(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def field_bytes(number: int, value: bytes | str) -> bytes:
    data = value.encode(errors="replace") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def field_doubles(number: int, values: Sequence[float]) -> bytes:
    return field_bytes(number, struct.pack(f"<{len(values)}d", *values))


# -- values of a summary ------------------------------------------------------------------------


def scalar(tag: str, value: float) -> bytes:
    limit = 3.4028235e38  # a float holds no more
    return field_bytes(1, tag) + field_float(2, max(-limit, min(limit, value)))


def histogram(tag: str, limits: Sequence[float], counts: Sequence[float]) -> bytes:
    """`limits`: the right edge of each bucket; the first bucket begins one width before it."""
    width = limits[1] - limits[0] if len(limits) > 1 else 1.0
    low = limits[0] - width
    middles = [limit - width / 2 for limit in limits]
    total = sum(counts)
    sums = [sum(c * m**k for c, m in zip(counts, middles, strict=True)) for k in (1, 2)]
    histo = field_double(1, low) + field_double(2, limits[-1]) + field_double(3, total)
    histo += field_double(4, sums[0]) + field_double(5, sums[1])
    histo += field_doubles(6, [low, *limits]) + field_doubles(7, [0.0, *counts])
    return field_bytes(1, tag) + field_bytes(5, histo)


def image(tag: str, encoded: bytes, width: int, height: int) -> bytes:
    """`encoded`: a PNG, or a GIF, which TensorBoard plays."""
    content = field_int(1, height) + field_int(2, width) + field_int(3, 3)
    return field_bytes(1, tag) + field_bytes(4, content + field_bytes(4, encoded))


def text(tag: str, markdown: str) -> bytes:
    tensor = field_int(1, DT_STRING) + field_bytes(2, field_bytes(2, field_int(1, 1)))
    tensor += field_bytes(8, markdown)
    return field_bytes(1, tag) + field_bytes(8, tensor) + field_bytes(9, _plugin("text"))


def hparams_start(values: Mapping[str, Any], group: str, start_s: float) -> bytes:
    """The hyper-parameters of the run in this folder."""
    entries = b"".join(
        field_bytes(1, field_bytes(1, name) + field_bytes(2, _value(value)))
        for name, value in values.items()
    )
    info = entries + field_bytes(4, group) + field_double(5, start_s)
    data = field_bytes(3, info)
    return field_bytes(1, "_hparams_/session_start_info") + field_bytes(9, _plugin("hparams", data))


def hparams_end(is_success: bool, end_s: float) -> bytes:
    info = field_int(1, SUCCESS if is_success else FAILURE) + field_double(2, end_s)
    data = field_bytes(4, info)
    return field_bytes(1, "_hparams_/session_end_info") + field_bytes(9, _plugin("hparams", data))


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return field_int(4, int(value))
    if isinstance(value, int | float):
        return field_double(2, float(value))
    return field_bytes(3, str(value))


def _plugin(name: str, content: bytes = b"") -> bytes:
    data = field_bytes(1, name) + (field_bytes(2, content) if content else b"")
    return field_bytes(1, data) + (field_int(4, 2) if name == "text" else b"")


# -- the file -----------------------------------------------------------------------------------


def event(wall_time: float, step: int, values: Sequence[bytes]) -> bytes:
    summary = b"".join(field_bytes(1, value) for value in values)
    return field_double(1, wall_time) + field_int(2, step) + field_bytes(5, summary)


class EventFile:
    """Appends events. `size`: where an earlier writer is known to have ended."""

    def __init__(self, path: Path, size: int | None = None, wall_time: float = 0.0) -> None:
        self.path = path
        self._file = path.open("ab" if size is not None else "wb")
        if size is not None:
            self._file.truncate(size)
        else:
            self._write(field_double(1, wall_time) + field_bytes(3, FILE_VERSION))

    def add(self, wall_time: float, step: int, values: Sequence[bytes]) -> None:
        if values:
            self._write(event(wall_time, step, values))

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
