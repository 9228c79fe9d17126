"""Reads TensorBoard's event files: just enough to compare them with what was written."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymnasium_solver.share.trackers.tensorboard import masked_crc


def records(path: Path) -> Iterator[bytes]:
    """The records of a file; AssertionError if a checksum is wrong or the end is torn."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        (length,) = struct.unpack("<Q", head)
        assert struct.unpack("<I", data[at + 8 : at + 12])[0] == masked_crc(head)
        body = data[at + 12 : at + 12 + length]
        assert struct.unpack("<I", data[at + 12 + length : at + 16 + length])[0] == masked_crc(body)
        yield body
        at += 16 + length
    assert at == len(data)


def fields(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: integers, or bytes of any other kind."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def values(path: Path) -> Iterator[tuple[int, str, dict[int, list[Any]]]]:
    """(step, tag, fields) of every value of every summary."""
    for record in records(path):
        event = fields(record)
        for summary in event.get(5, []):
            for value in fields(summary).get(1, []):
                parts = fields(value)
                yield event.get(2, [0])[0], parts[1][0].decode(), parts


def scalars(path: Path) -> list[tuple[int, str, float]]:
    return [
        (step, tag, struct.unpack("<f", parts[2][0])[0])
        for step, tag, parts in values(path)
        if 2 in parts
    ]
