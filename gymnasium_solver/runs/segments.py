"""Append-only segments of arrays: `replay/<start>-<stop>.safetensors`, each written once.

Replay data is too large to be rewritten by every checkpoint. Rows (numbered from the start of the
run; the first axis of every array) are written as they come, and the state of a checkpoint only
lists the segments it needs, with checksums, under state["replay"]["segments"]:

    new = append_segment(directory, start, stop, arrays, previous=segments)
    segments = needed(extended(segments, new), oldest_row)
    save_checkpoint(checkpoints_dir, ..., state={"replay": {"segments": segments}})
    prune(checkpoints_dir, keep)
    prune_segments(directory, referenced(checkpoints_dir))

In this order, a kill at any point leaves every finished checkpoint with all its segments. After
going back to an earlier checkpoint, call `rewind` before the first append.

A segment below SMALL_BYTES is rewritten together with the rows that follow it, so that frequent
checkpoints of a slow env do not create thousands of files.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import list_checkpoints
from gymnasium_solver.runs.files import read_bytes, read_json, reading, write_atomic, writing

SMALL_BYTES = 1_000_000
_FILE = re.compile(r"\d+-\d+\.safetensors")
_TEMP = re.compile(r"\.\d+-\d+\.safetensors\.tmp-\w+")  # the temporary names of write_atomic
_FIX = (
    "Resume from another checkpoint (`gsolve run RUN` lists them), or accept an empty replay "
    "buffer: the weights of this checkpoint are intact."
)

Segment = dict[str, Any]
"""{file, start, stop, size, sha256}: the entry for a segment in a checkpoint's state.json."""


def append_segment(
    directory: Path,
    start: int,
    stop: int,
    arrays: Mapping[str, np.ndarray],
    previous: Sequence[Segment] = (),
) -> Segment:
    """Write rows [start, stop) and return their descriptor; `extended` adds it to a list. If the
    last of `previous` is small and ends at `start`, the new segment includes its rows."""
    named = _checked(start, stop, arrays)
    last = previous[-1] if previous else None
    if last is not None and last["stop"] == start and last["size"] < SMALL_BYTES:
        named = _concatenated(_load(directory, last), named)
        start = last["start"]
    file = directory / f"{start}-{stop}.safetensors"
    with writing(f"rows {start} to {stop} of the replay", directory, SafetensorError):
        directory.mkdir(exist_ok=True)  # not its parents: a deleted run folder stays deleted
        data = save(named)
        write_atomic(file, data)
    return {"file": file.name, "start": start, "stop": stop, **_fingerprint(data)}


def extended(segments: Sequence[Segment], new: Segment) -> list[Segment]:
    """The list with a new segment at its end, without the segments that it replaces."""
    return [*(segment for segment in segments if segment["stop"] <= new["start"]), new]


def needed(segments: Iterable[Segment], oldest_row: int) -> list[Segment]:
    """The segments that contain rows from `oldest_row` on."""
    return [segment for segment in segments if segment["stop"] > oldest_row]


def load_segments(
    directory: Path, segments: Iterable[Segment]
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """(first row, arrays) of each segment, verified, in order; one at a time is in memory."""
    for segment in check_segments(list(segments)):
        yield segment["start"], _load(directory, segment)


def referenced(checkpoints_dir: Path) -> set[str]:
    """The segment files listed by finished checkpoints."""
    files: set[str] = set()
    for checkpoint in list_checkpoints(checkpoints_dir):
        # A damaged checkpoint cannot be resumed from, with or without its replay.
        with suppress(RunError):
            replay = read_json(checkpoint.path / "state.json", _FIX).get("replay")
            segments = replay.get("segments") if isinstance(replay, dict) else None
            known = segments if isinstance(segments, list) else []
            files |= {str(segment.get("file")) for segment in known if isinstance(segment, dict)}
    return files


def prune_segments(directory: Path, keep: Iterable[str]) -> list[str]:
    """Remove segments not in `keep`, and partial files of killed processes; returns their names."""
    kept, removed = set(keep), []
    with writing("the removal of old replay rows", directory):
        for path in sorted(directory.iterdir()) if directory.is_dir() else []:
            if _TEMP.fullmatch(path.name):
                path.unlink()
            elif _FILE.fullmatch(path.name) and path.name not in kept and path.is_file():
                path.unlink()
                removed.append(path.name)
    return removed


def _checked(start: int, stop: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not 0 <= start < stop:
        raise ValueError(f"rows {start} to {stop}; expected 0 <= start < stop")
    named = {}
    for name, given in arrays.items():
        array = np.asarray(given, order="C")  # safetensors writes raw memory
        if array.dtype.kind not in "biuf":
            raise TypeError(f"array {name} has dtype {array.dtype}; expected numbers or booleans")
        if array.shape[:1] != (stop - start,):
            raise ValueError(f"array {name} has shape {array.shape}; expected {stop - start} rows")
        named[name] = array
    return named


def _concatenated(
    older: dict[str, np.ndarray], newer: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    def layout(arrays: dict[str, np.ndarray]) -> list[tuple[str, str, tuple[int, ...]]]:
        return sorted((name, a.dtype.name, a.shape[1:]) for name, a in arrays.items())

    if layout(older) != layout(newer):
        raise ValueError(
            f"rows of {layout(newer)} after rows of {layout(older)}; expected the same"
        )
    return {name: np.concatenate([older[name], array]) for name, array in newer.items()}


def _load(directory: Path, segment: Segment) -> dict[str, np.ndarray]:
    """The arrays of a segment (writable), after verifying its checksum."""
    file = directory / segment["file"]
    data = read_bytes(file, _FIX)
    for what, found in _fingerprint(data).items():
        if found != segment[what]:
            said = f"its {what} is {found}, the checkpoint says {segment[what]}"
            raise RunError(f"{file} is damaged: {said}. {_FIX}")
    with reading(file, _FIX, SafetensorError, KeyError, ValueError):
        arrays = load(data)
    return {name: arrays[name] for name in sorted(arrays)}


def _fingerprint(data: bytes) -> Segment:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def check_segments(segments: Any) -> list[Segment]:
    """The list of segments in a checkpoint's state; RunError if it is not one."""
    kinds = {"file": str, "start": int, "stop": int, "size": int, "sha256": str}
    if not isinstance(segments, list):
        raise RunError(f"the replay segments are {segments!r}, expected a list. {_FIX}")
    for segment in segments:
        given = segment if isinstance(segment, dict) else {}
        if any(type(given.get(name)) is not kind for name, kind in kinds.items()):
            raise RunError(f"{segment!r} does not describe a replay segment. {_FIX}")
        if not _FILE.fullmatch(segment["file"]):
            raise RunError(f"{segment['file']!r} is not the name of a replay segment. {_FIX}")
    return segments
